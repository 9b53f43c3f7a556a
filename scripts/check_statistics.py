#!/usr/bin/env python3
"""Recomputes figures of vtax-model's statistics with scipy and statsmodels, for fixed data.

For developers; no gate needs it. What it printed is recorded in
crates/vtax-model/src/stats/independent.rs, whose tests hold our values against it. Run it again
when a formula changes, and record what it prints:

    python3 -m venv target/statistics-venv
    target/statistics-venv/bin/pip install scipy==1.17.1 statsmodels==0.15.0
    target/statistics-venv/bin/python3 scripts/check_statistics.py

Nothing here is shared with vtax: the intervals of the ratio come from asking scipy's exact
signed-rank test about every candidate, the sign-flip p-value from its exact permutation test.
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
P_VALUES = [0.0009765625, 0.041, 0.013, 0.013, 0.27, 0.64, 0.0021]


def mean_interval(samples, confidence):
    return stats.t.interval(
        confidence, len(samples) - 1, loc=numpy.mean(samples), scale=stats.sem(samples)
    )


def walsh_averages(differences):
    rows, columns = numpy.triu_indices(len(differences))
    return numpy.sort((differences[rows] + differences[columns]) / 2)


def signed_rank_interval(differences, confidence):
    """The centres that the exact two-sided signed-rank test doesn't refuse."""
    averages = walsh_averages(differences)
    between = (averages[1:] + averages[:-1]) / 2
    refused = [
        stats.wilcoxon(differences - centre, method="exact").pvalue <= 1 - confidence
        for centre in between
    ]
    kept = [index for index, no in enumerate(refused) if not no]
    return averages[kept[0]], averages[kept[-1] + 1]


def sign_flip(differences):
    return stats.permutation_test(
        (differences,),
        numpy.sum,
        permutation_type="samples",
        n_resamples=numpy.inf,
        alternative="two-sided",
    ).pvalue


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
    show("sign-flip p", sign_flip(differences))
    show("sign-flip p of the first six", sign_flip(differences[:6]))
    show("adjusted by Holm", multipletests(P_VALUES, method="holm")[1])


if __name__ == "__main__":
    main()
