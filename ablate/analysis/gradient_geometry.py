"""Measured cosines of the terms' parameter gradients, pair by pair."""

from __future__ import annotations

import pandas as pd

from ablate.analysis.arms import arm_means
from ablate.analysis.outcomes import metric_names

PREFIX = "gradient_cosine/"


def gradient_pairs(trials: pd.DataFrame) -> list[tuple[str, str]]:
    """The pairs of weights whose gradients were compared, in the order in which they were reported."""
    names = [name.removeprefix(PREFIX) for name in metric_names(trials) if name.startswith(PREFIX)]
    return [(first, second) for first, _, second in (name.partition("/") for name in names)]


def gradient_cosines(
    trials: pd.DataFrame, curves: pd.DataFrame, *, baseline: str = "baseline", alpha: float = 0.05
) -> pd.DataFrame:
    """The cosine of each pair over the baseline's seeds: at the first evaluation, and at the last with its t interval.

    Returns: `first, second, start, n, mean, low, high`; a pair that no COMPLETE trial has is left out.
    """
    pairs = gradient_pairs(trials)
    own = trials.loc[trials["arm"] == baseline]
    if not pairs or own.empty:
        return pd.DataFrame(columns=["first", "second", "start", "n", "mean", "low", "high"])
    names = [f"{PREFIX}{first}/{second}" for first, second in pairs]
    means = arm_means(own, names, alpha).set_index("metric")
    steps = curves.loc[curves["trial_id"].isin(own["trial_id"]) & curves["metric"].isin(names)]
    start = steps.loc[steps["step"] == steps["step"].min()].groupby("metric")["value"].mean()
    table = pd.DataFrame(pairs, columns=["first", "second"]).assign(start=start.reindex(names).to_numpy())
    table = table.join(means.loc[names, ["n", "mean", "low", "high"]].reset_index(drop=True))
    return table.loc[table["n"] > 0].reset_index(drop=True)
