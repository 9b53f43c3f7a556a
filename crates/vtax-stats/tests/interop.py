"""Reads histograms in text form, one per line, with the PyPI package hdrhistogram.

Prints a JSON object for each with its contents, and the same histogram as that package writes it
(whose zlib stream is deflated). Run by interop.rs in the environment that
`scripts/setup.sh test` creates.
"""

import json
import sys

from hdrh.histogram import HdrHistogram

for line in sys.stdin:
    histogram = HdrHistogram.decode(line.strip())
    print(
        json.dumps(
            {
                "count": histogram.get_total_count(),
                "min": histogram.get_min_value(),
                "max": histogram.get_max_value(),
                "percentiles": [histogram.get_value_at_percentile(p) for p in (50, 99, 99.9)],
                "text": histogram.encode().decode("ascii"),
            }
        )
    )
