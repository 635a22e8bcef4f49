"""Where the spread of a metric comes from: arms, seeds, and what is left of each arm under each seed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from ablate.analysis.resampling import complete_block

COLUMNS = ["source", "degrees", "mean_square", "variance", "sd", "low_sd", "high_sd", "share"]


def variance_components(
    trials: pd.DataFrame, *, metric: str, alpha: float = 0.05, baseline: str = "baseline"
) -> pd.DataFrame:
    """Variance between arms, between seeds, and of arm x seed (with the residual, as there is one trial a cell).

    Two-way random effects without replication over the largest block of common seeds, A arms by S seeds:
    sigma^2_axs = MS_axs, sigma^2_arm = (MS_arm - MS_axs) / S, sigma^2_seed = (MS_seed - MS_axs) / A, below 0 set to 0.
    Intervals of the sd: Satterthwaite's for the two differences, chi^2 for the residual.

    Returns: a row each for arm, seed and `arm x seed`; empty below two arms or two seeds.
    Source: Searle, Casella, McCulloch 1992, chapter 4.
    """
    values, arms = complete_block(trials, [metric], baseline)
    y = values[metric]
    if len(arms) < 2 or len(y) < 2:
        return pd.DataFrame(columns=COLUMNS)
    seeds, count = y.shape
    grand, by_arm, by_seed = y.mean(), y.mean(axis=0), y.mean(axis=1)
    rest = y - by_arm - by_seed[:, None] + grand
    degrees = {"arm": count - 1, "seed": seeds - 1, "arm x seed": (count - 1) * (seeds - 1)}
    square = {
        "arm": seeds * float(((by_arm - grand) ** 2).sum()) / degrees["arm"],
        "seed": count * float(((by_seed - grand) ** 2).sum()) / degrees["seed"],
        "arm x seed": float((rest**2).sum()) / degrees["arm x seed"],
    }
    residual = square["arm x seed"]
    variance = {
        "arm": max(0.0, (square["arm"] - residual) / seeds),
        "seed": max(0.0, (square["seed"] - residual) / count),
        "arm x seed": residual,
    }
    total = sum(variance.values())
    divisor = {"arm": seeds, "seed": count, "arm x seed": 1}
    rows = []
    for source in degrees:
        effective = _satterthwaite(source, square, degrees, variance[source], divisor[source])
        low, high = _interval(variance[source], effective, alpha)
        rows.append(
            {
                "source": source,
                "degrees": degrees[source],
                "mean_square": square[source],
                "variance": variance[source],
                "sd": np.sqrt(variance[source]),
                "low_sd": low,
                "high_sd": high,
                "share": variance[source] / total if total > 0 else np.nan,
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def _satterthwaite(
    source: str, square: dict[str, float], degrees: dict[str, int], variance: float, divisor: int
) -> float:
    """Degrees of freedom of a difference of mean squares; those of the residual are exact."""
    if source == "arm x seed":
        return float(degrees[source])
    below = (square[source] / divisor) ** 2 / degrees[source]
    below += (square["arm x seed"] / divisor) ** 2 / degrees["arm x seed"]
    return variance**2 / below if below > 0 else 0.0


def _interval(variance: float, degrees: float, alpha: float) -> tuple[float, float]:
    if variance <= 0 or degrees <= 0:
        return float("nan"), float("nan")
    upper, lower = (float(stats.chi2.ppf(level, degrees)) for level in (1 - alpha / 2, alpha / 2))
    high = float(np.sqrt(degrees * variance / lower)) if lower > 0 else float("inf")
    return float(np.sqrt(degrees * variance / upper)), high
