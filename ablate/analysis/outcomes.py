"""What the trials of a study ended in: arms by seeds, and which arms belong together.

Everything here reads the `trials` frame alone (one row a planned trial), so it works on an exported study too.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from ablate.spec.checks import FIXED, WEIGHTED_TOTALS

Role = Literal["baseline", "comparison", "twin", "aa", "search", "tuning", "confirm"]
Family = Literal["comparison", "twin", "confirm"]
ON_THE_BLOCK: tuple[Role, ...] = ("comparison", "twin", "aa", "search")
"""Roles of arms that are trained on the study's own seeds, as the baseline is."""

_AA_LABEL = re.compile(r"aa-\d+")
_SEARCH_LABEL = re.compile(r"search(-\d+)?/")
_CONFIRM_LABEL = re.compile(r"confirm-\d+/")
_TUNING_LABEL = re.compile(r"tune/")
_TWIN_SUFFIXES = (" ~rescaled", " ~matched")


@dataclass(frozen=True)
class Outcomes:
    """One metric of every trial, as frames of seeds (rows, ascending) by arms (columns, in plan order).

    Attributes:
        value: the metric where the trial is COMPLETE and the value is finite, else NaN.
        diverged: FAIL `diverged`, or COMPLETE with an infinite value: an outcome without a number.
        ended: COMPLETE or FAIL.
        planned: the trial exists.
    """

    metric: str
    value: pd.DataFrame
    diverged: pd.DataFrame
    ended: pd.DataFrame
    planned: pd.DataFrame


def metric_names(trials: pd.DataFrame) -> list[str]:
    """Metrics that the frame has a column for, without the prefix `metric.`."""
    return [str(column).removeprefix("metric.") for column in trials.columns if str(column).startswith("metric.")]


def is_weight_dependent(metric: str) -> bool:
    """Whether a metric is a weighted total: its scale is what the study changes, so arms can't be compared by it."""
    return WEIGHTED_TOTALS.fullmatch(metric) is not None


def check_metric(trials: pd.DataFrame, metric: str) -> None:
    """Refuse a metric that the frame lacks or that can't compare arms.

    Raises: ValueError.
    """
    if is_weight_dependent(metric):
        raise ValueError(
            f"{metric}: depends on the weights under study, so its scale differs between arms; compare {FIXED} instead"
        )
    names = metric_names(trials)
    if metric not in names:
        near = difflib.get_close_matches(metric, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{metric}: no column metric.{metric}; there are {', '.join(sorted(names)) or 'none'}{hint}")


def arm_roles(trials: pd.DataFrame, baseline: str = "baseline") -> dict[str, Role]:
    """The role of each arm, in the order in which the plan has them.

    An arm that a search shares with another design is compared; one that a search alone has is not. A frame without
    `designs` or `replicate` has roles by label alone.
    """
    first = trials.drop_duplicates("arm")
    designs = first["designs"].fillna("").astype(str) if "designs" in first else [""] * len(first)
    replicates = first["replicate"].fillna(0).astype(int) if "replicate" in first else [0] * len(first)
    columns = zip(first["arm"].astype(str), designs, replicates, strict=True)
    return {arm: _role(arm, designs, replicate, baseline) for arm, designs, replicate in columns}


def _role(label: str, designs: str, replicate: int, baseline: str) -> Role:
    if label == baseline:
        return "baseline"
    if replicate > 0 or _AA_LABEL.fullmatch(label):
        return "aa"
    if label.endswith(_TWIN_SUFFIXES):
        return "twin"
    if _CONFIRM_LABEL.match(label):
        return "confirm"
    if _TUNING_LABEL.match(label):
        return "tuning"
    names = [name.strip() for name in designs.split(",") if name.strip()]
    if _SEARCH_LABEL.match(label) or (names and all(re.fullmatch(r"search(-\d+)?", name) for name in names)):
        return "search"
    return "comparison"


def arms_of(trials: pd.DataFrame, *roles: Role, baseline: str = "baseline") -> list[str]:
    """Labels of the arms with one of these roles, in plan order."""
    return [label for label, role in arm_roles(trials, baseline).items() if role in roles]


def only_removes(label: str) -> bool:
    """Whether each part of an arm's label starts with `-`; a twin's mark is no part."""
    for suffix in _TWIN_SUFFIXES:
        label = label.removesuffix(suffix)
    return all(part.startswith("-") for part in label.split(", "))


def check_references(trials: pd.DataFrame, arms: list[str], baseline: str) -> None:
    """Refuse pairs whose trials used different reference tables, unless the reference or the data is a factor.

    Raises: ValueError.
    """
    studied = any(str(column).startswith(("config.reference", "config.data")) for column in trials.columns)
    if "reference" not in trials or studied:
        return
    used = trials.loc[(trials["state"] == "COMPLETE") & trials["reference"].fillna("").astype(bool)]
    of_baseline = used.loc[used["arm"] == baseline].set_index("seed")["reference"]
    own = used.loc[used["arm"].isin(arms)]
    beside = own["seed"].map(of_baseline)
    other = own.loc[beside.notna() & (beside != own["reference"])]
    if len(other):
        first = other.iloc[0]
        raise ValueError(
            f"{first['arm']}, seed {first['seed']}: trained on reference table {str(first['reference'])[:12]}, the "
            f"baseline on {str(of_baseline[first['seed']])[:12]}; arms over different tables can't be compared"
        )


def outcomes(trials: pd.DataFrame, metric: str) -> Outcomes:
    """One metric as seeds by arms.

    Raises: ValueError as `check_metric`, or if an arm has two trials with one seed.
    """
    check_metric(trials, metric)
    twice = trials.duplicated(["arm", "seed"])
    if twice.any():
        again = trials.loc[twice].iloc[0]
        raise ValueError(f"{again['arm']}, seed {again['seed']}: two rows; the frame has one row a planned trial")
    value = pd.to_numeric(trials[f"metric.{metric}"], errors="coerce").to_numpy(dtype=float)
    complete = (trials["state"] == "COMPLETE").to_numpy()
    failed = (trials["state"] == "FAIL").to_numpy()
    reason = trials["reason"].to_numpy() if "reason" in trials else np.full(len(trials), "")
    diverged = (failed & (reason == "diverged")) | (complete & np.isinf(value))
    column, arms = pd.factorize(trials["arm"].astype(str).to_numpy())
    row, seeds = pd.factorize(trials["seed"].to_numpy(dtype=int), sort=True)

    def spread(filled: npt.NDArray[Any], empty: float | bool) -> pd.DataFrame:
        cells = np.full((len(seeds), len(arms)), empty)
        cells[row, column] = filled
        return pd.DataFrame(cells, index=pd.Index(seeds, name="seed"), columns=pd.Index(arms, name="arm"))

    return Outcomes(
        metric,
        value=spread(np.where(complete & np.isfinite(value), value, np.nan), np.nan),
        diverged=spread(diverged, False),
        ended=spread(complete | failed, False),
        planned=spread(np.ones(len(trials), dtype=bool), False),
    )
