"""Reduces the font to the characters of charts, and writes their widths for QuickJS, which can't measure text."""

import json
import sys

from fontTools import subset
from fontTools.ttLib import TTFont

# European languages in Latin script, Greek letters as symbols, punctuation, sub- and superscripts, arrows, mathematics.
CHARACTERS = [
    (0x20, 0x7E), (0xA0, 0x17F), (0x2C6, 0x2C6), (0x2DC, 0x2DC), (0x391, 0x3A9), (0x3B1, 0x3C9), (0x2010, 0x2015),
    (0x2018, 0x201E), (0x2020, 0x2022), (0x2026, 0x2026), (0x2030, 0x2030), (0x2032, 0x2033), (0x2039, 0x203A),
    (0x2044, 0x2044), (0x2070, 0x209C), (0x20AC, 0x20AC), (0x2122, 0x2122), (0x2190, 0x2195), (0x2206, 0x2206),
    (0x2211, 0x2212), (0x221E, 0x221E), (0x2248, 0x2248), (0x2260, 0x2260), (0x2264, 0x2265), (0x25CF, 0x25CF),
    (0x2713, 0x2713), (0x2717, 0x2717), (0xFFFD, 0xFFFD),
]


def cut(source, target):
    options = subset.Options()
    options.layout_features = []
    options.hinting = False
    options.name_IDs = [0, 1, 2, 4, 6, 13, 14, 16, 17]
    options.recalc_timestamp = False
    font = TTFont(source, recalcTimestamp=False)
    font.flavor = None
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=[code for first, last in CHARACTERS for code in range(first, last + 1)])
    cutter.subset(font)
    font.save(target)


def widths(path):
    font = TTFont(path)
    em, metrics = font["head"].unitsPerEm, font["hmtx"]
    advances = {chr(code): round(metrics[glyph][0] / em, 3) for code, glyph in sorted(font.getBestCmap().items())}
    # Other characters are at most as wide as a Chinese one, which is 1 em.
    return {"advances": advances, "other": 1}


found = {}
for key, weight in (("regular", "Regular"), ("bold", "SemiBold")):
    target = f"../fonts/Inter-{weight}.ttf"
    cut(f"node_modules/inter-ui/web/Inter-{weight}.woff2", target)
    found[key] = widths(target)
with open("widths.json", "w", encoding="ascii") as file:
    json.dump(found, file, separators=(",", ":"))
    file.write("\n")
sys.stdout.write("fonts and widths written\n")
