"""Checks the result of `vtax run pods`, and prints its figures: one line per test, one column per row of the study."""

import json
import sys

ROWS = sys.argv[1].split(",")
document = json.load(sys.stdin)
cells = document["cells"]
assert {cell["method"] for cell in cells} == set(ROWS), sorted({cell["method"] for cell in cells})
tests = {}
for cell in cells:
    assert cell["status"] == "measured", cell
    ends = cell["ends"]["pairs"][0]
    nodes = {ends[end]["pod"]["node"] for end in ("initiator", "responder")}
    assert len(nodes) == (1 if cell["method"].startswith("one-node") else 2), ends
    published = ends["responder"].get("published")
    assert bool(published) == cell["method"].endswith("-service"), ends
    summary = cell["summary"]
    figure = summary["rtt_us"]["mean"]["mean"] if "rtt_us" in summary else summary["goodput_mbps"]["mean"]
    unit = "us" if "rtt_us" in summary else "Mb/s"
    tests.setdefault(f"{cell['transport']} {cell['test']} ({unit})", {})[cell["method"]] = figure
for test, figures in tests.items():
    print(f"    {test}: " + ", ".join(f"{row} {figures[row]:.0f}" for row in ROWS))
