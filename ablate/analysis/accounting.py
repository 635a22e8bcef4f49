"""Nothing is dropped in silence: every planned trial is counted, and verdicts are bounded by what is missing."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy import stats

from ablate.analysis.arms import t_half_width
from ablate.analysis.outcomes import Outcomes, arm_roles, arms_of, only_removes, outcomes
from ablate.analysis.signflip import simultaneous
from ablate.analysis.verdicts import OF_A_REMOVAL, paired_differences, read_interval


def intention_to_treat(
    trials: pd.DataFrame, *, metric: str, goal: str, alpha: float = 0.05, baseline: str = "baseline"
) -> pd.DataFrame:
    """Every planned trial of each arm by how it ended, and the mean with diverged trials counted as the worst value.

    Returns: `arm, planned, complete, diverged, failed, pruned, unfinished, mean, low, high, mean_worst, low_worst,
        high_worst`. `mean` is over COMPLETE trials; `mean_worst` counts each diverged one as the worst value that
        any trial of the study reached. t intervals over seeds, marginal.
    """
    outcome = outcomes(trials, metric)
    worst = _worst(outcome, goal)
    rows = []
    for arm in arm_roles(trials, baseline):
        own = trials.loc[trials["arm"] == arm]
        diverged = outcome.diverged[arm]
        value = outcome.value[arm]
        counted = value.mask(diverged, worst)
        failed = int((own["state"] == "FAIL").sum())
        rows.append(
            {
                "arm": arm,
                "planned": len(own),
                "complete": int((own["state"] == "COMPLETE").sum()),
                "diverged": int(diverged.sum()),
                "failed": failed - int(((own["state"] == "FAIL") & (own["reason"] == "diverged")).sum()),
                "pruned": int((own["state"] == "PRUNED").sum()),
                "unfinished": int(own["state"].isin(["WAITING", "RUNNING"]).sum()),
                **_mean(value, alpha, ""),
                **_mean(counted, alpha, "_worst"),
            }
        )
    return pd.DataFrame(rows)


def _worst(outcome: Outcomes, goal: str) -> float:
    values = outcome.value.to_numpy(dtype=float)
    if not np.isfinite(values).any():
        return math.nan
    return float(np.nanmax(values) if goal == "minimize" else np.nanmin(values))


def _mean(values: pd.Series[float], alpha: float, suffix: str) -> dict[str, float]:
    known = values.dropna().to_numpy(dtype=float)
    n = len(known)
    mean = float(known.mean()) if n else math.nan
    sd = float(known.std(ddof=1)) if n >= 2 else math.nan
    half = float(t_half_width(np.array([sd]), np.array([n]), alpha)[0])
    return {f"mean{suffix}": mean, f"low{suffix}": mean - half, f"high{suffix}": mean + half}


def verdict_bounds(
    trials: pd.DataFrame,
    *,
    metric: str,
    goal: str,
    sesoi: float,
    alpha: float = 0.05,
    baseline: str = "baseline",
) -> pd.DataFrame:
    """What each verdict could become whatever the missing pairs had shown (Manski bounds on the study's own range).

    Every planned pair that is missing (failed, diverged, unfinished, on either side) is set to the study's largest
    |difference| against all arms, then for all; the whole family is tested again.

    Returns: `arm, n_missing, verdict_if_against, verdict_if_for, holds`; `holds`: both are the same.
    Source: Horowitz and Manski 2000.
    """
    outcome = outcomes(trials, metric)
    arms = arms_of(trials, "comparison", baseline=baseline)
    if not arms or baseline not in outcome.value:
        return pd.DataFrame(columns=["arm", "n_missing", "verdict_if_against", "verdict_if_for", "holds"])
    known = paired_differences(outcome, arms, baseline).reindex(outcome.planned.index)
    planned = outcome.planned[arms]
    largest = float(np.nanmax(np.abs(known.to_numpy(dtype=float)), initial=0.0))
    bad = largest if goal == "minimize" else -largest
    missing = planned & known.isna()
    table = pd.DataFrame({"arm": arms, "n_missing": missing.sum().to_numpy()})
    for name, value in (("verdict_if_against", bad), ("verdict_if_for", -bad)):
        found = simultaneous(known.mask(missing, value).to_numpy(dtype=float), alpha)
        readings = [read_interval(low, high, sesoi, goal) for low, high in zip(found.low, found.high, strict=True)]
        table[name] = [
            OF_A_REMOVAL[reading] if only_removes(arm) else reading for arm, reading in zip(arms, readings, strict=True)
        ]
    table["holds"] = table["verdict_if_against"] == table["verdict_if_for"]
    return table


def noise_floor(
    trials: pd.DataFrame, *, metric: str, alpha: float = 0.05, baseline: str = "baseline"
) -> tuple[float, pd.DataFrame]:
    """How large a mean difference noise alone makes: read off the A/A arms, whose true difference is 0.

    With d_i the N paired differences of all A/A arms and n the seeds of one,
    floor = t_(N, 1-alpha/2) sqrt(sum d_i^2 / N) / sqrt(n).

    Returns: the floor (NaN without an A/A pair), and a row an A/A arm: `arm, n_pairs, difference, p_value, flagged`;
        flagged where its own sign-flip test rejects at alpha: then something other than the seed differs.
    """
    outcome = outcomes(trials, metric)
    arms = arms_of(trials, "aa", baseline=baseline)
    columns = ["arm", "n_pairs", "difference", "p_value", "flagged"]
    if not arms or baseline not in outcome.value:
        return math.nan, pd.DataFrame(columns=columns)
    differences = paired_differences(outcome, arms, baseline).to_numpy(dtype=float)
    rows = []
    for j, arm in enumerate(arms):
        alone = simultaneous(differences[:, [j]], alpha)
        rows.append((arm, int(alone.n_pairs[0]), alone.difference[0], alone.p_value[0], alone.p_value[0] <= alpha))
    pooled = differences[~np.isnan(differences)]
    if not len(pooled):
        return math.nan, pd.DataFrame(rows, columns=columns)
    rms = math.sqrt(float(np.mean(pooled**2)))
    floor = float(stats.t.ppf(1 - alpha / 2, len(pooled))) * rms / math.sqrt(len(pooled) / len(arms))
    return floor, pd.DataFrame(rows, columns=columns)
