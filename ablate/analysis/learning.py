"""Metrics over steps: the mean of each arm with its band over seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ablate.analysis.arms import t_half_width

COLUMNS = ["arm", "metric", "step", "n", "mean", "low", "high"]


def arm_curves(
    trials: pd.DataFrame, curves: pd.DataFrame, metrics: list[str], *, alpha: float = 0.05, points: int = 60
) -> pd.DataFrame:
    """Mean over seeds at each step, with a pointwise t interval: `arm, metric, step, n, mean, low, high`.

    Trials that didn't end well are in as far as they came; values that are not finite are left out.
    A metric reported at more than `points` steps is read at `points` of them, evenly spaced, the last among them.
    """
    chosen = curves.loc[curves["metric"].isin(metrics), ["trial_id", "step", "metric", "value"]]
    chosen = chosen.loc[np.isfinite(chosen["value"].to_numpy(dtype=float))]
    if chosen.empty:
        return pd.DataFrame(columns=COLUMNS)
    chosen = pd.concat([_thin(part, points) for _, part in chosen.groupby("metric", observed=True, sort=False)])
    arm = pd.Series(trials["arm"].astype(str).to_numpy(), index=trials["trial_id"].astype(str).to_numpy())
    chosen = chosen.assign(arm=arm.reindex(chosen["trial_id"].astype(str)).to_numpy())
    grouped = chosen.groupby(["arm", "metric", "step"], observed=True, sort=False)["value"]
    table = grouped.agg(n="count", mean="mean", sd="std").reset_index()
    half = t_half_width(table["sd"].to_numpy(dtype=float), table["n"].to_numpy(), alpha)
    table["low"] = table["mean"] - half
    table["high"] = table["mean"] + half
    rank = {label: position for position, label in enumerate(dict.fromkeys(trials["arm"].astype(str)))}
    table["metric"] = table["metric"].astype(str)
    table = table.assign(rank=table["arm"].map(rank)).sort_values(["rank", "metric", "step"], kind="stable")
    return table[COLUMNS].reset_index(drop=True)


def difference_curves(
    trials: pd.DataFrame,
    curves: pd.DataFrame,
    metric: str,
    *,
    alpha: float = 0.05,
    points: int = 60,
    baseline: str = "baseline",
) -> pd.DataFrame:
    """Mean paired difference to the baseline at each step that arm and baseline both reported, with a t interval.

    Returns: `arm, step, n, mean, low, high` for every arm but the baseline.
    """
    own = curves.loc[(curves["metric"] == metric) & np.isfinite(curves["value"].to_numpy(dtype=float))]
    if own.empty:
        return pd.DataFrame(columns=["arm", "step", "n", "mean", "low", "high"])
    known = trials.drop_duplicates("trial_id").set_index("trial_id")[["arm", "seed"]]
    joined = _thin(own, points).join(known, on="trial_id", how="inner")
    joined = joined.drop_duplicates(["arm", "seed", "step"], keep="last")
    base = joined.loc[joined["arm"] == baseline, ["seed", "step", "value"]]
    paired = joined.loc[joined["arm"] != baseline].merge(base, on=["seed", "step"], suffixes=("", "_baseline"))
    paired = paired.assign(gap=paired["value"] - paired["value_baseline"])
    grouped = paired.groupby(["arm", "step"], observed=True)["gap"]
    table = grouped.agg(n="count", mean="mean", sd="std").reset_index()
    half = t_half_width(table["sd"].to_numpy(dtype=float), table["n"].to_numpy(), alpha)
    table["low"] = table["mean"] - half
    table["high"] = table["mean"] + half
    rank = {label: position for position, label in enumerate(dict.fromkeys(trials["arm"].astype(str)))}
    table = table.assign(rank=table["arm"].map(rank)).sort_values(["rank", "step"], kind="stable")
    return table[["arm", "step", "n", "mean", "low", "high"]].reset_index(drop=True)


def _thin(part: pd.DataFrame, points: int) -> pd.DataFrame:
    steps = np.unique(part["step"].to_numpy())
    if len(steps) <= points:
        return part
    keep = steps[np.linspace(0, len(steps) - 1, points).round().astype(int)]
    return part.loc[part["step"].isin(keep)]
