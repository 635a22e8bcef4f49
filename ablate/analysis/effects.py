"""The size of each contrast with the baseline: paired differences in the metric's unit and in standard deviations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import gammaln

from ablate.analysis.arms import t_half_width
from ablate.analysis.outcomes import ON_THE_BLOCK, arms_of, outcomes
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
    """One row an arm on the study's seeds other than the baseline (twins and A/A arms too), in plan order.

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
    arms = arms_of(trials, *ON_THE_BLOCK, baseline=baseline)
    if not arms or baseline not in outcome.value:
        return pd.DataFrame(columns=["arm", "metric", *_FIELDS])
    d = paired_differences(outcome, arms, baseline)
    known = d.notna().to_numpy()
    b = np.where(known, outcome.value.loc[d.index, [baseline]].to_numpy(dtype=float), np.nan)
    a = np.where(known, outcome.value.loc[d.index, arms].to_numpy(dtype=float), np.nan)
    gap = d.to_numpy(dtype=float)
    n = known.sum(axis=0)
    mean, sd = _mean(gap), _sd(gap)
    half = t_half_width(sd, n, alpha)
    average = np.sqrt((_sd(a) ** 2 + _sd(b) ** 2) / 2.0)
    table = {
        "n_pairs": n,
        "n_dropped": outcome.planned[arms].sum().to_numpy() - n,
        "mean_arm": _mean(a),
        "mean_baseline": _mean(b),
        "difference": mean,
        "sd_difference": sd,
        "low": mean - half,
        "high": mean + half,
        "d_z": _ratio(mean, sd),
        "g_av": _small_sample(n - 1) * _ratio(mean, average),
        "improvement": _improvement(gap, goal),
        "correlation": _correlation(a, b),
        "pairing_gain": _ratio(2.0 * average**2, sd**2),
    }
    return pd.DataFrame({"arm": arms, "metric": outcome.metric, **table})


_FIELDS = [
    "n_pairs", "n_dropped", "mean_arm", "mean_baseline", "difference", "sd_difference", "low", "high", "d_z", "g_av",
    "improvement", "correlation", "pairing_gain",
]  # fmt: skip


def _mean(x: Array) -> Array:
    """Mean of each column over its known values; NaN without one."""
    n = (~np.isnan(x)).sum(axis=0)
    return np.where(n > 0, np.nansum(x, axis=0) / np.maximum(n, 1), np.nan)


def _sd(x: Array) -> Array:
    """Standard deviation of each column over its known values; NaN below two."""
    n = (~np.isnan(x)).sum(axis=0)
    square = np.nansum((x - _mean(x)) ** 2, axis=0)
    return np.where(n >= 2, np.sqrt(square / np.maximum(n - 1, 1)), np.nan)


def _ratio(above: Array, below: Array) -> Array:
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def _small_sample(degrees: npt.NDArray[np.int64]) -> Array:
    """Hedges' J(m) = Gamma(m/2) / (sqrt(m/2) Gamma((m-1)/2)); NaN for m < 2."""
    m = np.maximum(degrees, 2).astype(float)
    factor = np.exp(gammaln(m / 2) - gammaln((m - 1) / 2)) / np.sqrt(m / 2)
    return np.where(degrees >= 2, factor, np.nan)


def _improvement(d: Array, goal: str | None) -> Array:
    if goal is None:
        return np.full(d.shape[1], np.nan)
    better = np.where(np.isnan(d), np.nan, ((d < 0) if goal == "minimize" else (d > 0)) + 0.5 * (d == 0))
    return _mean(better)


def _correlation(a: Array, b: Array) -> Array:
    """Pearson's r of each pair of columns; NaN below three pairs or where one doesn't vary."""
    n = (~np.isnan(a)).sum(axis=0)
    covariance = _mean((a - _mean(a)) * (b - _mean(b))) * n / np.maximum(n - 1, 1)
    varies = (n >= 3) & (_sd(a) > 0) & (_sd(b) > 0)
    return np.where(varies, covariance / np.where(varies, _sd(a) * _sd(b), 1.0), np.nan)
