"""Effects as draws from a population of data sets, splits or references: what a new one would show."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy import stats

from ablate.analysis.outcomes import arms_of, outcomes
from ablate.analysis.verdicts import paired_differences

COLUMNS = [
    "arm", "n", "mean", "low", "high", "sd", "sd_chance", "sd_between", "new_low", "new_high", "same_sign",
]  # fmt: skip


def random_effects(
    trials: pd.DataFrame, *, metric: str, alpha: float = 0.05, baseline: str = "baseline"
) -> pd.DataFrame:
    """One row an arm: the distribution of its paired difference over seeds that draw data, split or reference anew.

    With d_i the difference on seed i, mean -+ t sd / sqrt(n) is the interval of the mean effect, and
    mean -+ t sd sqrt(1 + 1/n) (`new_low, new_high`) that of the effect on one new data set. sd^2 holds the spread of
    the effect between data sets and the chance of two trainings. The A/A arms differ from the baseline by chance alone
    on each data set, so `sd_chance` is the root mean square of their differences and
    sd_between = sqrt(max(sd^2 - sd_chance^2, 0)), NaN without A/A arms.

    `same_sign`: share of seeds on which the difference has the sign of the mean.
    """
    outcome = outcomes(trials, metric)
    arms = arms_of(trials, "comparison", "twin", baseline=baseline)
    differences = paired_differences(outcome, arms, baseline)
    aa = paired_differences(outcome, arms_of(trials, "aa", baseline=baseline), baseline).to_numpy(dtype=float)
    aa = aa[~np.isnan(aa)]
    chance = math.sqrt(float(np.mean(aa**2))) if len(aa) else math.nan
    rows = [_summary(arm, differences[arm].dropna().to_numpy(dtype=float), chance, alpha) for arm in arms]
    return pd.DataFrame(rows, columns=COLUMNS)


def _summary(
    arm: str, d: np.ndarray[tuple[int], np.dtype[np.float64]], chance: float, alpha: float
) -> tuple[object, ...]:
    n = len(d)
    if n < 2:
        return (arm, n, float(d.mean()) if n else math.nan, *[math.nan] * 8)
    mean, sd = float(d.mean()), float(d.std(ddof=1))
    t = float(stats.t.ppf(1 - alpha / 2, n - 1))
    half, new = t * sd / math.sqrt(n), t * sd * math.sqrt(1 + 1 / n)
    between = math.sqrt(max(sd**2 - chance**2, 0.0)) if math.isfinite(chance) else math.nan
    same = float((np.sign(d) == np.sign(mean)).mean())
    return (arm, n, mean, mean - half, mean + half, sd, chance, between, mean - new, mean + new, same)
