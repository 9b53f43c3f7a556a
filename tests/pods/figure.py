"""Checks the result of a run between two pods, and prints its figure, its path and its record of the responder."""

import json
import sys

what = sys.argv[1]
cell = json.load(sys.stdin)["cells"][0]
assert cell["status"] == "measured", cell
ends = cell["ends"]["pairs"][0]
pods = [ends[end]["pod"] for end in ("initiator", "responder")]
assert all(pod["node"].startswith("node") and pod["image"] for pod in pods), pods
summary = cell["summary"]
figure, unit = (summary["rtt_us"]["mean"], "µs round trip") if "rtt_us" in summary else (summary["goodput_mbps"], "Mb/s")
low, high = figure["low"], figure["high"]
hops = " - ".join(f"{hop['kind']} of {hop['domain']}" for hop in cell["path"]["hops"])
print(f"{what}: {figure['mean']:.0f} {unit} ({low:.0f} to {high:.0f}), {ends['initiator']['address']} to {ends['responder']['address']} by {hops}")
print(f"    responder: {json.dumps({key: pods[1][key] for key in pods[1] if key != 'uid'})}")
