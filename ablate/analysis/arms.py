"""Each arm by itself: how its trials ended, and the mean of each metric over seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from ablate.analysis.outcomes import arm_roles, metric_names

STATES = ("WAITING", "RUNNING", "COMPLETE", "PRUNED", "FAIL")


def arm_states(trials: pd.DataFrame, baseline: str = "baseline") -> pd.DataFrame:
    """How the trials of each arm ended: `arm, role, designs, n, WAITING, …, FAIL, diverged`, in plan order."""
    roles = arm_roles(trials, baseline)
    counts = pd.crosstab(trials["arm"].astype(str), trials["state"]).reindex(
        index=pd.Index(list(roles)), columns=pd.Index(STATES), fill_value=0
    )
    diverged = trials.loc[(trials["state"] == "FAIL") & (trials["reason"] == "diverged"), "arm"].value_counts()
    first = trials.drop_duplicates("arm").set_index("arm")
    table = pd.DataFrame({"arm": list(roles), "role": list(roles.values())})
    table["designs"] = first["designs"].reindex(table["arm"]).to_numpy() if len(table) else []
    table["n"] = counts.sum(axis=1).to_numpy()
    for state in STATES:
        table[state] = counts[state].to_numpy()
    table["diverged"] = diverged.reindex(table["arm"], fill_value=0).to_numpy() if len(table) else []
    return table


def arm_means(trials: pd.DataFrame, metrics: list[str] | None = None, alpha: float = 0.05) -> pd.DataFrame:
    """Mean of each metric over an arm's COMPLETE trials, with a t interval over seeds.

    [low, high] = mean -+ t_(n-1, 1-alpha/2) sd / sqrt(n); marginal, not adjusted for the number of arms.
    Infinite values are counted in `n_infinite` and left out of the mean.

    Returns: `arm, metric, n, n_infinite, mean, sd, low, high`, in plan order; sd and interval NaN for n < 2.
    """
    names = metric_names(trials) if metrics is None else metrics
    order = list(dict.fromkeys(trials["arm"].astype(str)))
    complete = trials.loc[trials["state"] == "COMPLETE"]
    values = complete[[f"metric.{name}" for name in names]].apply(pd.to_numeric, errors="coerce").astype(float)
    values.columns = pd.Index(names)
    infinite = np.isinf(values)
    arms = complete["arm"].astype(str).to_numpy()
    grouped = values.mask(infinite).groupby(arms)
    parts = {
        "n": grouped.count(),
        "n_infinite": infinite.groupby(arms).sum(),
        "mean": grouped.mean(),
        "sd": grouped.std(ddof=1),
    }
    index = pd.MultiIndex.from_product([order, names], names=["arm", "metric"])
    table = pd.DataFrame(
        {name: pd.Series(part.reindex(order)[names].to_numpy().ravel(), index=index) for name, part in parts.items()}
        if len(complete) and names
        else {name: pd.Series(np.nan, index=index) for name in parts}
    ).reset_index()
    table["n"] = table["n"].fillna(0).astype(int)
    table["n_infinite"] = table["n_infinite"].fillna(0).astype(int)
    n = table["n"].to_numpy()
    half = t_half_width(table["sd"].to_numpy(dtype=float), n, alpha)
    table["low"] = table["mean"] - half
    table["high"] = table["mean"] + half
    return table


def t_half_width(
    sd: np.ndarray[tuple[int], np.dtype[np.float64]], n: np.ndarray[tuple[int], np.dtype[np.int64]], alpha: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """t_(n-1, 1-alpha/2) sd / sqrt(n), elementwise; NaN for n < 2."""
    enough = n >= 2
    degrees = np.where(enough, n - 1, 1)
    half = stats.t.ppf(1.0 - alpha / 2.0, degrees) * sd / np.sqrt(np.maximum(n, 1))
    return np.where(enough, half, np.nan)
