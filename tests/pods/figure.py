"""Checks the result of a run between two pods, and prints its round-trip time and what is recorded of the pods."""

import json
import sys

what = sys.argv[1]
cell = json.load(sys.stdin)["cells"][0]
assert cell["status"] == "measured", cell
ends = cell["ends"]["pairs"][0]
pods = [ends[end]["pod"] for end in ("initiator", "responder")]
assert all(pod["node"].startswith("node") and pod["image"] for pod in pods), pods
hops = " - ".join(f"{hop['kind']} of {hop['domain']}" for hop in cell["path"]["hops"])
summary = cell["summary"]
print(f"{what}: {json.dumps(summary)[:160]}")
print(f"    {ends['initiator']['address']} to {ends['responder']['address']} by {hops}; {json.dumps(pods[1])}")
