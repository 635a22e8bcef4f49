"""The size of each contrast with the baseline: paired differences in the metric's unit and in standard deviations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats
from scipy.special import gammaln

from ablate.analysis.arms import t_half_width
from ablate.analysis.outcomes import Outcomes, arm_roles, outcomes
from ablate.analysis.verdicts import paired_differences

Array = npt.NDArray[np.float64]


def effects(
    trials: pd.DataFrame,
    *,
    metric: str,
    goal: str | None = None,
    alpha: float = 0.05,
    baseline: str = "baseline",
) -> pd.DataFrame:
    """One row an arm other than the baseline (twins and A/A arms too), in plan order.

    Over the n pairs of seeds where arm (a) and baseline (b) are both COMPLETE, d = a - b:

    - `difference` mean d; `low, high` its marginal 1-alpha t interval; `sd_difference` s_d.
    - `d_z` = mean d / s_d.
    - `g_av` = J(n-1) mean d / sqrt((s_a^2 + s_b^2) / 2), J the small-sample factor of Hedges.
    - `improvement` = share of pairs where the arm is better, ties half (NaN without a goal).
    - `correlation` of a and b over pairs; `pairing_gain` = (s_a^2 + s_b^2) / s_d^2: how many times more seeds
      an unpaired comparison of the same precision would take.

    Source: Lakens 2013 (d_z, g_av); Agarwal et al. 2021 (probability of improvement).
    """
    outcome = outcomes(trials, metric)
    arms = [label for label, role in arm_roles(trials, baseline).items() if role != "baseline"]
    if baseline not in outcome.value:
        arms = []
    rows = [_effect(outcome, arm, baseline, goal, alpha) for arm in arms]
    return pd.DataFrame(rows, columns=["arm", "metric", *_FIELDS])


_FIELDS = [
    "n_pairs", "n_dropped", "mean_arm", "mean_baseline", "difference", "sd_difference", "low", "high", "d_z", "g_av",
    "improvement", "correlation", "pairing_gain",
]  # fmt: skip


def _effect(outcome: Outcomes, arm: str, baseline: str, goal: str | None, alpha: float) -> dict[str, object]:
    d = paired_differences(outcome, [arm], baseline)[arm].dropna()
    a = outcome.value.loc[d.index, arm].to_numpy(dtype=float)
    b = outcome.value.loc[d.index, baseline].to_numpy(dtype=float)
    n = len(d)
    mean = float(d.mean()) if n else np.nan
    sd = _sd(d.to_numpy(dtype=float))
    half = float(t_half_width(np.array([sd]), np.array([n]), alpha)[0])
    average = np.sqrt((_sd(a) ** 2 + _sd(b) ** 2) / 2.0)
    return {
        "arm": arm,
        "metric": outcome.metric,
        "n_pairs": n,
        "n_dropped": int(outcome.planned[arm].sum()) - n,
        "mean_arm": float(a.mean()) if n else np.nan,
        "mean_baseline": float(b.mean()) if n else np.nan,
        "difference": mean,
        "sd_difference": sd,
        "low": mean - half,
        "high": mean + half,
        "d_z": _ratio(mean, sd),
        "g_av": _small_sample(n - 1) * _ratio(mean, average),
        "improvement": _improvement(a - b, goal),
        "correlation": _correlation(a, b),
        "pairing_gain": _ratio(2.0 * average**2, sd**2),
    }


def _sd(x: Array) -> float:
    return float(np.std(x, ddof=1)) if len(x) >= 2 else float("nan")


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else float("nan")


def _small_sample(degrees: int) -> float:
    """Hedges' J(m) = Gamma(m/2) / (sqrt(m/2) Gamma((m-1)/2)); NaN for m < 2."""
    if degrees < 2:
        return float("nan")
    return float(np.exp(gammaln(degrees / 2) - gammaln((degrees - 1) / 2)) / np.sqrt(degrees / 2))


def _improvement(d: Array, goal: str | None) -> float:
    if goal is None or not len(d):
        return float("nan")
    better = d < 0 if goal == "minimize" else d > 0
    return float(np.mean(better + 0.5 * (d == 0)))


def _correlation(a: Array, b: Array) -> float:
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(stats.pearsonr(a, b).statistic)
