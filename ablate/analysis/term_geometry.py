"""What the geometry of the terms predicted, held against what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from ablate.analysis.arms import t_half_width
from ablate.analysis.configurations import arm_configurations, identity
from ablate.analysis.effects import effects
from ablate.analysis.outcomes import arm_roles, outcomes

Array = npt.NDArray[np.float64]

PREFIX = "canonical."
LEAST_ARMS = 5
"""Arms from which a rank correlation has an interval."""

SAME = 1e-3
"""Distance, and relative distance of beta_eff, below which an arm is predicted to be the baseline's training."""

_OBJECTIVE = ("reconstruction.", "auxiliary.")
_BETA = "kl.beta"


def canonical_columns(trials: pd.DataFrame) -> list[str]:
    """Canonical coordinates that the frame has, without their prefix."""
    return [str(column).removeprefix(PREFIX) for column in trials.columns if str(column).startswith(PREFIX)]


def arm_coordinates(trials: pd.DataFrame) -> pd.DataFrame:
    """The canonical coordinates of each arm: `arm` and a column for each, in plan order."""
    names = canonical_columns(trials)
    first = trials.drop_duplicates("arm").reset_index(drop=True)
    table = first[["arm", *(f"{PREFIX}{name}" for name in names)]]
    return table.rename(columns={f"{PREFIX}{name}": name for name in names})


def only_the_objective(trials: pd.DataFrame, arms: list[str], baseline: str = "baseline") -> list[str]:
    """Arms that differ from the baseline in the weights of the objective alone: coordinates say all of them."""
    table = arm_configurations(trials, [baseline, *arms])
    others = [path for path in table.columns if path != _BETA and not str(path).startswith(_OBJECTIVE)]
    base = [identity(value) for value in table.loc[baseline, others]]
    return [arm for arm in arms if [identity(value) for value in table.loc[arm, others]] == base]


def predictions(
    trials: pd.DataFrame, *, metric: str, sesoi: float | None = None, alpha: float = 0.05, baseline: str = "baseline"
) -> pd.DataFrame:
    """Each arm's distance from the baseline beside its measured effect.

    Arms that change anything but the objective, A/A and search arms, and arms without coordinates or without a pair of
    seeds are left out.

    Returns: `arm, role, distance, log_beta_ratio, difference, low, high, n_pairs, effect, failed`, nearest first;
        `log_beta_ratio` is |log(beta_eff / that of the baseline)|, `effect` is |difference|, `[low, high]` its marginal
        t interval; `failed`: predicted to be the baseline's training, and the whole interval is beyond sesoi (beyond 0
        without one) all the same.
    """
    roles = arm_roles(trials, baseline)
    arms = only_the_objective(trials, [arm for arm, role in roles.items() if role in ("comparison", "twin")])
    measured = effects(trials, metric=metric, alpha=alpha, baseline=baseline)
    table = arm_coordinates(trials).merge(measured, on="arm")
    table = table.loc[table["arm"].isin(arms) & (table["n_pairs"] > 0) & table["distance"].notna()]
    own = trials.loc[trials["arm"] == baseline, f"{PREFIX}beta_eff"]
    base = float(own.iloc[0]) if len(own) else math.nan
    ratio = table["beta_eff"].to_numpy(dtype=float) / base if base else np.full(len(table), np.nan)
    with np.errstate(divide="ignore"):
        log_ratio = np.abs(np.log(np.where(ratio > 0, ratio, np.nan)))
    same = (table["distance"] < SAME) & (np.nan_to_num(log_ratio) < SAME)
    found = table.assign(
        role=table["arm"].map(roles),
        log_beta_ratio=log_ratio,
        effect=table["difference"].abs(),
        failed=same & _beyond(table, sesoi),
    )
    columns = ["arm", "role", "distance", "log_beta_ratio", "difference", "low", "high", "n_pairs", "effect", "failed"]
    return found[columns].sort_values("distance", kind="stable").reset_index(drop=True)


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation over n arms, with its interval; nan where there is none."""

    value: float
    low: float
    high: float
    n: int


def rank_correlation(x: Array, y: Array, alpha: float = 0.05) -> RankCorrelation:
    """Spearman's rho with the interval tanh(artanh rho -+ z sqrt((1 + rho^2 / 2) / (n - 3))).

    For the interval a perfect rho is taken as one neighbouring swap short of it, 1 - 12 / (n (n^2 - 1)): ranks of so
    few arms show no more than that.

    Source: Bonett & Wright 2000.
    """
    known = np.isfinite(x) & np.isfinite(y)
    x, y, n = x[known], y[known], int(known.sum())
    if n < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return RankCorrelation(math.nan, math.nan, math.nan, n)
    rho = float(stats.spearmanr(x, y).statistic)
    if n < LEAST_ARMS:
        return RankCorrelation(rho, math.nan, math.nan, n)
    most = 1.0 - 12.0 / (n * (n**2 - 1))
    inner = min(max(rho, -most), most)
    half = float(stats.norm.ppf(1.0 - alpha / 2.0)) * math.sqrt((1.0 + inner**2 / 2.0) / (n - 3))
    return RankCorrelation(rho, math.tanh(math.atanh(inner) - half), math.tanh(math.atanh(inner) + half), n)


def paired_arms(
    trials: pd.DataFrame,
    pairs: Iterable[tuple[str, str]],
    *,
    metric: str,
    sesoi: float | None = None,
    alpha: float = 0.05,
) -> pd.DataFrame:
    """The measured difference of arms that are predicted to be one training, over the seeds that both have.

    Returns: `first, second, n_pairs, difference, low, high, failed`, first minus second with its t interval; `failed`
        where the whole interval is beyond sesoi, or beyond 0 without one.
    """
    value = outcomes(trials, metric).value
    rows = []
    for first, second in pairs:
        gap = (value[first] - value[second]).dropna().to_numpy() if {first, second} <= set(value) else np.empty(0)
        rows.append(
            (first, second, len(gap), gap.mean() if len(gap) else np.nan, gap.std(ddof=1) if len(gap) > 1 else np.nan)
        )
    table = pd.DataFrame(rows, columns=["first", "second", "n_pairs", "difference", "sd"])
    half = t_half_width(table["sd"].to_numpy(dtype=float), table["n_pairs"].to_numpy(dtype=int), alpha)
    table["low"], table["high"] = table["difference"] - half, table["difference"] + half
    table["failed"] = _beyond(table, sesoi)
    return table.drop(columns="sd")


def _beyond(table: pd.DataFrame, sesoi: float | None) -> npt.NDArray[np.bool_]:
    """Whether the whole interval [low, high] is on one side of [-sesoi, sesoi]."""
    margin = sesoi or 0.0
    beyond: npt.NDArray[np.bool_] = ((table["low"] > margin) | (table["high"] < -margin)).to_numpy(dtype=bool)
    return beyond
