"""Rate and distortion side by side: what an arm pays in KL for what it gains in likelihood."""

from __future__ import annotations

import pandas as pd

from ablate.analysis.arms import arm_means
from ablate.analysis.effects import effects
from ablate.analysis.outcomes import metric_names

RATE, DISTORTION = "eval/rate_per_token", "eval/nll_per_token"
SHIFT = "rate shift"


def rate_distortion(
    trials: pd.DataFrame,
    *,
    rate: str = RATE,
    distortion: str = DISTORTION,
    alpha: float = 0.05,
    baseline: str = "baseline",
) -> pd.DataFrame:
    """Mean rate and distortion of each arm and their paired differences to the baseline.

    An arm is named `rate shift` where rate and distortion moved in opposite directions, each by more than its own
    paired t interval: it bought likelihood with KL, or sold it, and may be neither better nor worse.

    Returns: `arm, n, rate, rate_low, rate_high, distortion, …, rate_difference, rate_difference_low, …,
        distortion_difference, …, note`; empty where either metric is missing.
    """
    if not {rate, distortion} <= set(metric_names(trials)):
        return pd.DataFrame(columns=["arm", "note"])
    table = pd.DataFrame({"arm": list(dict.fromkeys(trials["arm"].astype(str)))})
    for name, metric in (("rate", rate), ("distortion", distortion)):
        mean = arm_means(trials, [metric], alpha)
        own = mean[["arm", "n", "mean", "low", "high"]].set_axis(
            ["arm", f"{name}_n", name, f"{name}_low", f"{name}_high"], axis=1
        )
        paired = effects(trials, metric=metric, alpha=alpha, baseline=baseline)[["arm", "difference", "low", "high"]]
        paired = paired.set_axis(
            ["arm", f"{name}_difference", f"{name}_difference_low", f"{name}_difference_high"], axis=1
        )
        table = table.merge(own, on="arm", how="left").merge(paired, on="arm", how="left")
    table = table.rename(columns={"rate_n": "n"}).drop(columns="distortion_n")
    up = {name: table[f"{name}_difference_low"] > 0 for name in ("rate", "distortion")}
    down = {name: table[f"{name}_difference_high"] < 0 for name in ("rate", "distortion")}
    shifted = (up["rate"] & down["distortion"]) | (down["rate"] & up["distortion"])
    table["note"] = [SHIFT if flag else "" for flag in shifted]
    return table
