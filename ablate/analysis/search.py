"""What searches found, and how much of it was luck: progress, winners confirmed on fresh seeds, shrinkage."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
from scipy import integrate, stats

from ablate.analysis.outcomes import outcomes
from ablate.analysis.verdicts import contrasts, paired_differences

PROGRESS_COLUMNS = ["arm", "number", "state", "n_seeds", "value", "best"]
SHRINKAGE_COLUMNS = [
    "arm", "found", "n_found", "n_pairs", "confirmed", "low", "high", "p_adjusted", "verdict", "kept",
]  # fmt: skip


def search_names(trials: pd.DataFrame) -> list[str]:
    """Searches that have proposed an arm of their own, in order."""
    found = {match[1] for arm in trials["arm"].astype(str).unique() if (match := re.match(r"(search-\d+)/\d+$", arm))}
    return sorted(found, key=lambda name: int(name.rpartition("-")[2]))


def search_progress(trials: pd.DataFrame, *, search: str, objective: str, goal: str) -> pd.DataFrame:
    """One row an arm that the search proposed, in order: its mean objective over seeds and the best mean so far.

    `state` is COMPLETE where every seed is, else what keeps it from that: FAIL, PRUNED, RUNNING or WAITING. A PRUNED
    arm's value is the last that it reported; only COMPLETE ones can be best.
    """
    own = trials.loc[trials["arm"].astype(str).str.startswith(f"{search}/")]
    rows = []
    for arm, group in own.groupby("arm", sort=False):
        states = set(group["state"])
        state = next((name for name in ("FAIL", "PRUNED", "RUNNING", "WAITING") if name in states), "COMPLETE")
        column = f"metric.{objective}"
        values = pd.to_numeric(group[column], errors="coerce").dropna() if column in group else pd.Series(dtype=float)
        value = float(values.mean()) if len(values) else math.nan
        rows.append((str(arm), int(str(arm).rpartition("/")[2]), state, len(group), value))
    table = pd.DataFrame(rows, columns=PROGRESS_COLUMNS[:-1]).sort_values("number", ignore_index=True)
    table = table.astype({"number": "int64", "n_seeds": "int64", "value": "float64"})
    complete = table["value"].where((table["state"] == "COMPLETE") & np.isfinite(table["value"]))
    table["best"] = complete.cummin().ffill() if goal == "minimize" else complete.cummax().ffill()
    return table


def shrinkage(
    trials: pd.DataFrame,
    *,
    number: int,
    objective: str,
    objective_goal: str,
    metric: str,
    goal: str,
    sesoi: float | None,
    alpha: float = 0.05,
) -> pd.DataFrame:
    """Each winner of search `number` against the baseline: as the search saw it, and on fresh seeds.

    `found` is the mean paired difference of the objective over the search's own seeds; `confirmed, low, high` that of
    the metric on the report split over fresh seeds, simultaneous over the winners; `kept` = confirmed / found where
    the search saw a gain: what is left of it once nothing is chosen.
    """
    name = f"confirm-{number}"
    fresh = trials.loc[trials["arm"].astype(str).str.startswith(f"{name}/")]
    if fresh.empty or f"metric.{metric}" not in trials:
        return pd.DataFrame(columns=SHRINKAGE_COLUMNS)
    table = contrasts(
        fresh, metric=metric, goal=goal, sesoi=sesoi, alpha=alpha, baseline=f"{name}/baseline", family="confirm"
    )
    labels = {arm: _in_search(trials, number, arm) for arm in table["arm"]}
    known = [label for label in labels.values() if label is not None]
    found: dict[str, tuple[float, int]] = {}
    if known and f"metric.{objective}" in trials:
        differences = paired_differences(outcomes(trials, objective), known, "baseline")
        found = {arm: (float(differences[arm].mean()), int(differences[arm].notna().sum())) for arm in known}
    seen = [found.get(labels[arm] or "", (math.nan, 0)) for arm in table["arm"]]
    table = table.rename(columns={"difference": "confirmed"}).assign(
        found=[value for value, _ in seen], n_found=[count for _, count in seen]
    )
    sign = 1.0 if objective_goal == "minimize" else -1.0
    gained = table["found"].mul(sign) < 0
    table["kept"] = (table["confirmed"] / table["found"]).where(gained)
    return table[SHRINKAGE_COLUMNS]


def _in_search(trials: pd.DataFrame, number: int, arm: str) -> str | None:
    """The arm as the search knew it: its own, or one that another design has too."""
    label = f"search-{number}/{arm.rpartition('/')[2]}"
    return label if (trials["arm"] == label).any() else None


def expected_best(n: int) -> float:
    """Expected largest of n independent standard normal values: how good the best of n equal arms looks, in SDs.

    E max = integral of x n phi(x) Phi(x)^(n-1) dx; 2.34 for n = 64.
    """
    if n < 2:
        return 0.0
    value, _ = integrate.quad(lambda x: x * n * stats.norm.pdf(x) * stats.norm.cdf(x) ** (n - 1), -8.0, 12.0)
    return float(value)
