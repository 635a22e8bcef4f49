"""Contrasts of each arm with the baseline, and the verdict read off each interval."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from ablate.analysis.outcomes import Family, Outcomes, arms_of, check_references, only_removes, outcomes
from ablate.analysis.signflip import MINIMUM_PAIRS, Simultaneous, simultaneous

Goal = Literal["minimize", "maximize"]
Reading = Literal["worse", "better", "equivalent", "undecided"]

#: What a reading is called for an arm that only removes something.
OF_A_REMOVAL = {"worse": "needed", "better": "harmful", "equivalent": "droppable", "undecided": "undecided"}

TOO_FEW_SEEDS = "too few seeds"

COLUMNS = [
    "arm", "n_pairs", "n_dropped", "n_diverged", "difference", "low", "high", "p_value", "p_adjusted",
    "significant", "verdict", "reason",
]  # fmt: skip


def contrasts(
    trials: pd.DataFrame,
    *,
    metric: str,
    goal: str | None,
    sesoi: float | None,
    alpha: float = 0.05,
    baseline: str = "baseline",
    family: Family = "comparison",
) -> pd.DataFrame:
    """Arm minus baseline over common seeds, for each arm of a family: one row an arm, in plan order.

    Args:
        trials: one row a planned trial, as `Study.trials()` gives.
        metric: name without `metric.`.
        goal: `minimize` or `maximize`; None: the metric has no better side, so there is no verdict.
        sesoi: smallest effect size of interest, > 0, in the metric's unit; None: no verdict.
        alpha: family-wise error of the tests, 1 - coverage of the intervals.
        family: `comparison`; or `twin` for the rescaled and matched arms, `confirm` for the winners of a search, each
            a family of its own.
    Returns: the columns of COLUMNS. `difference` is the mean over pairs; `low, high` are simultaneous over the
        family; `p_value` is the arm's own sign-flip test, `p_adjusted` max-T; `significant` says p_adjusted <= alpha
        with enough seeds; `verdict` is read off the interval alone. `n_dropped` counts the seeds that are no pair,
        `n_diverged` the arm's diverged trials.
    Raises: ValueError for an unknown or weight-dependent metric, an unknown goal, baseline or family, or pairs that
        used different reference tables.
    """
    _check(goal, sesoi, alpha, family)
    outcome = outcomes(trials, metric)
    arms = arms_of(trials, family, baseline=baseline)
    if baseline not in outcome.value and len(trials):
        raise ValueError(f"no arm is called {baseline!r}; there are {', '.join(sorted(map(str, outcome.value)))}")
    if not arms:
        return pd.DataFrame({name: pd.Series(dtype=object) for name in COLUMNS})
    check_references(trials, arms, baseline)
    differences = paired_differences(outcome, arms, baseline)
    found = simultaneous(differences.to_numpy(dtype=float), alpha)
    diverged = outcome.diverged[arms].sum().to_numpy()
    every = paired_differences(
        outcome, arms_of(trials, "comparison", "twin", "aa", "confirm", baseline=baseline), baseline
    )
    largest = float(np.nanmax(np.abs(every.to_numpy(dtype=float)), initial=0.0))
    readings, reasons = _verdicts(outcome, baseline, differences, found, goal, sesoi, alpha, largest)
    return pd.DataFrame(
        {
            "arm": arms,
            "n_pairs": found.n_pairs,
            "n_dropped": outcome.planned[arms].sum().to_numpy() - found.n_pairs,
            "n_diverged": diverged,
            "difference": found.difference,
            "low": found.low,
            "high": found.high,
            "p_value": found.p_value,
            "p_adjusted": found.p_adjusted,
            "significant": (found.p_adjusted <= alpha) & np.isfinite(found.high),
            "verdict": pd.Series(readings, dtype=object),
            "reason": reasons,
        }
    )[COLUMNS]


def paired_differences(outcome: Outcomes, arms: list[str], baseline: str) -> pd.DataFrame:
    """Arm minus baseline: seeds with a finished baseline (rows) by arms (columns), NaN where the arm has no value."""
    with_baseline = outcome.value[baseline].notna()
    return outcome.value.loc[with_baseline, arms].sub(outcome.value.loc[with_baseline, baseline], axis=0)


def read_interval(low: float, high: float, sesoi: float, goal: str) -> Reading:
    """What an interval of arm minus baseline says, with `sesoi` the smallest effect of interest."""
    if goal == "maximize":
        low, high = -high, -low
    if low > sesoi:
        return "worse"
    if high < -sesoi:
        return "better"
    return "equivalent" if -sesoi <= low and high <= sesoi else "undecided"


def impute_diverged(outcome: Outcomes, differences: pd.DataFrame, value: float) -> pd.DataFrame:
    """Differences with those of diverged trials set to a value."""
    diverged = outcome.diverged.loc[differences.index, differences.columns]
    return differences.mask(diverged & differences.isna(), value)


def _verdicts(
    outcome: Outcomes,
    baseline: str,
    differences: pd.DataFrame,
    found: Simultaneous,
    goal: str | None,
    sesoi: float | None,
    alpha: float,
    largest: float,
) -> tuple[list[str | None], list[str]]:
    """The verdict (None without sesoi or goal) and the reason of each arm; `largest`: the study's |difference|."""
    arms = [str(arm) for arm in differences.columns]
    diverged = outcome.diverged[arms].sum().to_numpy()
    ended = outcome.ended[arms].sum().to_numpy()
    counts = [f"diverged {k}/{n}" if k else "" for k, n in zip(diverged, ended, strict=True)]
    blocks = outcome.diverged.loc[differences.index, arms].sum().to_numpy() + found.n_pairs
    few = [
        (text or TOO_FEW_SEEDS) if have >= MINIMUM_PAIRS else TOO_FEW_SEEDS
        for text, have in zip(counts, blocks, strict=True)
    ]
    short = found.n_pairs < MINIMUM_PAIRS
    if goal is None or sesoi is None:
        return [None] * len(arms), [few[j] if short[j] else "" for j in range(len(arms))]
    bad = largest if goal == "minimize" else -largest
    against, in_favour = found, found
    if diverged.any():
        against, in_favour = (
            simultaneous(impute_diverged(outcome, differences, value).to_numpy(dtype=float), alpha)
            for value in (bad, -bad)
        )
    baseline_diverged = int(outcome.diverged[baseline].sum())
    verdicts: list[str | None] = []
    reasons: list[str] = []
    reading: Reading
    for j, arm in enumerate(arms):
        if short[j]:
            reading, reason = "undecided", few[j]
        elif not diverged[j]:
            reading, reason = read_interval(found.low[j], found.high[j], sesoi, goal), ""
        else:
            more_often = int(diverged[j]) > baseline_diverged
            reading = _both_ways(against, in_favour, j, sesoi, goal, more_often=more_often)
            reason = counts[j] if reading == "undecided" else ""
        verdicts.append(OF_A_REMOVAL[reading] if only_removes(arm) else reading)
        reasons.append(reason)
    return verdicts, reasons


def _both_ways(
    against: Simultaneous, in_favour: Simultaneous, j: int, sesoi: float, goal: str, *, more_often: bool
) -> Reading:
    """The reading that holds however the diverged trials are counted; undecided where there is none."""
    worst = read_interval(against.low[j], against.high[j], sesoi, goal)
    best = read_interval(in_favour.low[j], in_favour.high[j], sesoi, goal)
    # An arm that breaks down more often than the baseline is no replacement for it, whatever it scores where it lives.
    if worst != best or (more_often and worst == "equivalent"):
        return "undecided"
    return worst


def _check(goal: str | None, sesoi: float | None, alpha: float, family: str) -> None:
    if goal not in ("minimize", "maximize", None):
        raise ValueError(f"goal: {goal!r}; it is minimize or maximize")
    if sesoi is not None and not sesoi > 0:
        raise ValueError(f"sesoi: {sesoi!r}; it is a number > 0, or None for no verdict")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: {alpha!r}; it lies between 0 and 1")
    if family not in ("comparison", "twin", "confirm"):
        raise ValueError(f"family: {family!r}; it is comparison, twin or confirm")
