"""Shapley values of the terms: each one's effect averaged over every company it can keep."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
import numpy.typing as npt
import pandas as pd

from ablate.analysis.configurations import arms_of_design, design_names, two_level_units
from ablate.analysis.outcomes import arms_of, only_removes, outcomes
from ablate.analysis.signflip import simultaneous

Array = npt.NDArray[np.float64]
Coalition = frozenset[int]

COLUMNS = ["term", "n_seeds", "shapley", "low", "high", "p_adjusted", "leave_one_out", "empty_run"]


def shapley(trials: pd.DataFrame, *, metric: str, alpha: float = 0.05, baseline: str = "baseline") -> pd.DataFrame:
    """Effect of removing each term, averaged over the coalitions of the other terms, where all of them were run.

    phi_i = sum_S w(S) [v(S) - v(S + i)] / sum_S w(S), w(S) = |S|! (k-|S|-1)! / k!, S over the sets of the other
    k-1 terms, v the outcome with the terms of S on; so it has the sign of a contrast (arm minus baseline), and equals
    the leave-one-out difference where the terms add up. The empty set is in where an arm with no term was run; most
    studies can't have one, and then the average is over the non-empty sets.

    The values of single seeds are the sample: simultaneous intervals over the terms, by sign flips of whole seeds.

    Returns: empty where the coalitions were not all run; `empty_run` says whether the empty one was.
    Source: Shapley 1953; Owen 2014 for its use on outcomes of designed runs.
    """
    for arms in _lattices(trials, baseline):
        units = two_level_units(trials, arms, baseline)
        table = {frozenset(i for i, unit in enumerate(units) if not unit.off[a]): arm for a, arm in enumerate(arms)}
        table[frozenset(range(len(units)))] = baseline
        if len(units) >= 2 and _complete(table, len(units)):
            return _values(trials, metric, table, [unit.name for unit in units], alpha)
    return pd.DataFrame(columns=COLUMNS)


def _lattices(trials: pd.DataFrame, baseline: str) -> list[list[str]]:
    """Sets of removing arms that may be complete: all of them, then those of each factorial or grid."""
    removing = [arm for arm in arms_of(trials, "comparison", baseline=baseline) if only_removes(arm)]
    found = [removing]
    for design in design_names(trials, "factorial", "grid"):
        own = set(arms_of_design(trials, design))
        found.append([arm for arm in removing if arm in own])
    return [arms for arms in found if arms]


def _complete(table: dict[Coalition, str], k: int) -> bool:
    return all(frozenset(some) in table for size in range(1, k + 1) for some in combinations(range(k), size))


def _values(
    trials: pd.DataFrame, metric: str, table: dict[Coalition, str], names: list[str], alpha: float
) -> pd.DataFrame:
    k = len(names)
    outcome = outcomes(trials, metric).value
    empty = frozenset[int]()
    per_seed = np.zeros((len(outcome), k))
    for index in range(k):
        others = [other for other in range(k) if other != index]
        total = 0.0
        for size in range(k):
            weight = factorial(size) * factorial(k - size - 1) / factorial(k)
            for some in combinations(others, size):
                without = frozenset(some)
                if without == empty and empty not in table:
                    continue
                change = outcome[table[without]] - outcome[table[without | {index}]]
                per_seed[:, index] += weight * change.to_numpy(dtype=float)
                total += weight
        per_seed[:, index] /= total
    found = simultaneous(per_seed, alpha)
    whole = frozenset(range(k))
    alone = [(outcome[table[whole - {index}]] - outcome[table[whole]]).mean() for index in range(k)]
    return pd.DataFrame(
        {
            "term": names,
            "n_seeds": found.n_pairs,
            "shapley": found.difference,
            "low": found.low,
            "high": found.high,
            "p_adjusted": found.p_adjusted,
            "leave_one_out": alone,
            "empty_run": empty in table,
        }
    )
