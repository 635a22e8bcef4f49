"""The designs: each a function from the units that it moves to its rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.spec.designs import Unit, is_baseline, levels, removable


@dataclass(frozen=True)
class Row:
    """One row of a design.

    Attributes:
        values: value by path, of the units that the design sets in this row; all else is at baseline.
        kept: the unit that alone is left in, where that is what the row shows.
    """

    values: dict[str, Any]
    kept: Unit | None = None


@dataclass(frozen=True)
class Skipped:
    """A row that a design does not have, and why."""

    unit: Unit
    reason: str


Rows = Iterator[Row | Skipped]


def leave_one_out(moved: Sequence[Unit]) -> Rows:
    """One unit at `ablate_to`, the rest at baseline."""
    for unit in moved:
        if removable(unit):
            yield Row(_ablated(unit))
        else:
            yield Skipped(unit, "the baseline has it at `ablate_to` already")


def add_one_in(moved: Sequence[Unit]) -> Rows:
    """All units at `ablate_to` but one, which keeps its baseline value."""
    for unit in moved:
        if removable(unit):
            others = [other for other in moved if other is not unit]
            yield Row({path: value for other in others for path, value in _ablated(other).items()}, kept=unit)
        else:
            yield Skipped(unit, "the baseline has it at `ablate_to` already")


def one_at_a_time(moved: Sequence[Unit]) -> Rows:
    """Each level of each unit but the baseline's, the rest at baseline."""
    for unit in moved:
        others = [level for level in levels(unit) if not is_baseline(unit, level)]
        for level in others:
            yield Row(_at(unit, level))
        if not others:
            yield Skipped(unit, "it has no level but the baseline's")


def grid(moved: Sequence[Unit]) -> Rows:
    """Every combination of the units' levels, the last unit's changing fastest."""
    steps = [[_at(unit, level) for level in levels(unit)] for unit in moved]
    for combination in itertools.product(*steps):
        yield Row({path: value for step in combination for path, value in step.items()})


def _ablated(unit: Unit) -> dict[str, Any]:
    return {factor.path: factor.ablate_to for factor in unit}


def _at(unit: Unit, level: Sequence[Any]) -> dict[str, Any]:
    return {factor.path: value for factor, value in zip(unit, level, strict=True)}


DESIGNS: dict[str, Callable[[Sequence[Unit]], Rows]] = {
    "leave_one_out": leave_one_out,
    "add_one_in": add_one_in,
    "one_at_a_time": one_at_a_time,
    "grid": grid,
}
