#!/usr/bin/env python3
"""Recomputes figures of vtax-stats with scipy and statsmodels, for fixed data.

For developers; no gate runs it. Its output is recorded in
crates/vtax-stats/src/tests/independent.rs, whose tests compare our values with it. When a formula
changes, run it again and record the output:

    python3 -m venv target/statistics-venv
    target/statistics-venv/bin/pip install scipy==1.17.1 statsmodels==0.15.0
    target/statistics-venv/bin/python3 scripts/check_statistics.py

It shares nothing with vtax: the intervals of the ratio are computed by applying scipy's exact
signed-rank test to every candidate, and p with ties and zeros by permuting all signs.
"""

import sys

import numpy
import scipy
import statsmodels
from scipy import stats
from statsmodels.stats.multitest import multipletests

# The same numbers as in independent.rs.
SAMPLES = [61.2, 58.7, 64.9, 60.1, 59.5, 71.3, 60.8, 62.4]
BASELINE = [61.2, 58.7, 64.9, 60.1, 59.5, 71.3, 60.8, 62.4, 66.0, 63.3, 57.9]
CELL = [66.8, 64.1, 67.2, 65.9, 66.3, 72.0, 59.9, 68.8, 70.7, 69.9, 61.0]
TIED = [1.0, 1.25, 1.25, 0.75, 1.0, 1.5, 2.0, 1.125, 1.75, 0.5]
MANY = [1.0 + i * 37 % 81 / 1024.0 - 30.5 / 1024.0 for i in range(80)]
P_VALUES = [0.0009765625, 0.041, 0.013, 0.013, 0.27, 0.64, 0.0021]


def mean_interval(samples, confidence):
    """Student's t interval of the mean's logarithm, by the delta method."""
    mean = numpy.mean(samples)
    logarithms = stats.t.interval(
        confidence, len(samples) - 1, loc=numpy.log(mean), scale=stats.sem(samples) / mean
    )
    return numpy.exp(logarithms)


def walsh_averages(differences):
    rows, columns = numpy.triu_indices(len(differences))
    return numpy.sort((differences[rows] + differences[columns]) / 2)


def signed_rank_interval(differences, confidence):
    """Interval of the centres that the exact two-sided signed-rank test doesn't reject."""
    averages = walsh_averages(differences)
    between = (averages[1:] + averages[:-1]) / 2
    refused = [
        stats.wilcoxon(differences - centre, method="exact").pvalue <= 1 - confidence
        for centre in between
    ]
    kept = [index for index, no in enumerate(refused) if not no]
    return averages[kept[0]], averages[kept[-1] + 1]


def signed_rank(differences, method):
    """Two-sided p, with Pratt's treatment of zeros."""
    return stats.wilcoxon(differences, zero_method="pratt", method=method, correction=True).pvalue


def all_signs():
    return stats.PermutationMethod(n_resamples=numpy.inf)


def show(name, values):
    print(f"{name}: {', '.join(f'{value:.12g}' for value in numpy.atleast_1d(values))}")


def main():
    print(
        f"python {sys.version.split()[0]}, numpy {numpy.__version__}, "
        f"scipy {scipy.__version__}, statsmodels {statsmodels.__version__}"
    )
    samples = numpy.array(SAMPLES)
    show("mean, median, sd", [samples.mean(), numpy.median(samples), samples.std(ddof=1)])
    show("mean's interval at 95 %", mean_interval(samples, 0.95))
    show("mean's interval at 99 %", mean_interval(samples, 0.99))
    differences = numpy.log(numpy.array(CELL) / numpy.array(BASELINE))
    show("ratio", numpy.exp(numpy.median(walsh_averages(differences))))
    show("ratio's interval at 95 %", numpy.exp(signed_rank_interval(differences, 0.95)))
    show("ratio's interval at 99 %", numpy.exp(signed_rank_interval(differences, 0.99)))
    show("sd of log ratios", differences.std(ddof=1))
    show("signed-rank p", signed_rank(differences, "exact"))
    show("signed-rank p of the first six", signed_rank(differences[:6], "exact"))
    # The logarithms of 2 and 0.5 have the same magnitude.
    tied = numpy.log(TIED)
    show("signed-rank p with ties and zeros", signed_rank(tied, all_signs()))
    many = numpy.log(MANY)
    show("signed-rank p of 80", signed_rank(many, "asymptotic"))
    show("signed-rank p of the first 50", signed_rank(many[:50], "exact"))
    show("adjusted by Holm", multipletests(P_VALUES, method="holm")[1])


if __name__ == "__main__":
    main()
