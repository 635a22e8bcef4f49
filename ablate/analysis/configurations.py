"""The configurations behind the arms: which factors moved together, and between which values."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd


@dataclass(frozen=True)
class Unit:
    """Factors that moved as one over a set of arms, between two values.

    Attributes:
        paths: the factors, in the frame's order; the first names the unit.
        off: [A], whether each arm has the value that is not the baseline's.
    """

    paths: tuple[str, ...]
    off: npt.NDArray[np.bool_]

    @property
    def name(self) -> str:
        """The path of its first factor."""
        return self.paths[0]


def factor_paths(trials: pd.DataFrame) -> list[str]:
    """The studied paths, without the prefix `config.`."""
    return [str(column).removeprefix("config.") for column in trials.columns if str(column).startswith("config.")]


def arm_configurations(trials: pd.DataFrame, arms: list[str]) -> pd.DataFrame:
    """The value of each factor in each arm: arms (rows) by paths (columns)."""
    paths = factor_paths(trials)
    first = trials.drop_duplicates("arm").set_index("arm").reindex(arms)
    table = first[[f"config.{path}" for path in paths]]
    return table.set_axis(paths, axis=1)


def arms_of_design(trials: pd.DataFrame, design: str) -> list[str]:
    """Arms that a design has as a row, in plan order."""
    own = [design in str(names).split(",") for names in trials["designs"]]
    return list(dict.fromkeys(trials.loc[own, "arm"].astype(str)))


def design_names(trials: pd.DataFrame, *kinds: str) -> list[str]:
    """Names of the designs of these kinds (`factorial`, `factorial-2`, …), in the order of their first arm."""
    names = dict.fromkeys(name for entry in trials["designs"].astype(str).unique() for name in entry.split(","))
    return [name for name in names if name.rstrip("0123456789").removesuffix("-") in kinds]


def two_level_units(trials: pd.DataFrame, arms: list[str], baseline: str = "baseline") -> list[Unit]:
    """The factors that vary over these arms, those that moved together as one unit.

    Raises: ValueError if one takes more than one value beside the baseline's.
    """
    configurations = arm_configurations(trials, [baseline, *arms])
    units: dict[tuple[bool, ...], list[str]] = {}
    for path in configurations.columns:
        keys = [identity(value) for value in configurations[path]]
        others = set(keys[1:]) - {keys[0]}
        if not others:
            continue
        if len(others) > 1:
            raise ValueError(f"{path} takes {len(others)} values beside the baseline's; two levels are needed")
        units.setdefault(tuple(key != keys[0] for key in keys[1:]), []).append(str(path))
    return [Unit(tuple(paths), np.array(off)) for off, paths in units.items()]


def identity(value: Any) -> Hashable:
    """What makes two values of a factor the same: 1 and 1.0 are, 1 and true and "1" are not."""
    if isinstance(value, int | float) and not isinstance(value, bool | np.bool_):
        return "nan" if math.isnan(value) else float(value)
    return type(value).__name__, repr(value)


def is_number(value: Any) -> bool:
    """Whether a factor's value can be placed on an axis."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.bool_)
