"""How the outcome moves with the value of one factor, everything else at the baseline."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ablate.analysis.configurations import arm_configurations, identity, is_number
from ablate.analysis.outcomes import arms_of, outcomes
from ablate.analysis.signflip import simultaneous
from ablate.analysis.verdicts import paired_differences

COLUMNS = ["path", "value", "arm", "n_pairs", "mean", "difference", "low", "high", "p_adjusted"]


def dose_paths(trials: pd.DataFrame, baseline: str = "baseline") -> list[str]:
    """Factors that take two or more numbers beside the baseline's in arms that change nothing else."""
    table = _levels(trials, baseline)
    return [str(path) for path, own in table.groupby("path", sort=False)["arm"] if len(own) >= 3]


def dose_response(
    trials: pd.DataFrame, *, metric: str, path: str, alpha: float = 0.05, baseline: str = "baseline"
) -> pd.DataFrame:
    """Paired difference to the baseline at each value of a factor, with a band that is simultaneous over the values.

    Returns: a row a value, ascending, the baseline's own (difference 0) among them: the columns of COLUMNS.
        `mean` is that of the arm over its own seeds.
    """
    levels = _levels(trials, baseline)
    levels = levels.loc[levels["path"] == path]
    outcome = outcomes(trials, metric)
    arms = [arm for arm in levels["arm"] if arm != baseline]
    if not arms:
        return pd.DataFrame(columns=COLUMNS)
    found = simultaneous(paired_differences(outcome, arms, baseline).to_numpy(dtype=float), alpha)
    table = pd.DataFrame(
        {
            "arm": [baseline, *arms],
            "n_pairs": [int(outcome.value[baseline].notna().sum()), *found.n_pairs],
            "difference": [0.0, *found.difference],
            "low": [0.0, *found.low],
            "high": [0.0, *found.high],
            "p_adjusted": [np.nan, *found.p_adjusted],
        }
    )
    table["mean"] = [float(outcome.value[arm].mean()) for arm in table["arm"]]
    merged = levels.merge(table, on="arm", how="left")
    return merged.sort_values("value", kind="stable").reset_index(drop=True)[COLUMNS]


def _levels(trials: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """`path, value, arm`: arms that differ from the baseline in one numeric factor, and the baseline for each."""
    arms = arms_of(trials, "comparison", baseline=baseline)
    configurations = arm_configurations(trials, [baseline, *arms])
    keys = configurations.map(identity)
    rows: list[tuple[str, float, str]] = []
    for path in configurations.columns:
        own = configurations[path]
        if not len(own) or not is_number(own.iloc[0]):
            continue
        others = [column for column in keys.columns if column != path]
        alone = keys.index[(keys[others] == keys[others].iloc[0]).all(axis=1) & (keys[path] != keys[path].iloc[0])]
        numbers = [(str(path), float(own[arm]), str(arm)) for arm in alone if is_number(own[arm])]
        if numbers:
            rows += [(str(path), float(own.iloc[0]), baseline), *numbers]
    return pd.DataFrame(rows, columns=["path", "value", "arm"])
