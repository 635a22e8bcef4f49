"""The designs: each a function from the units that it moves to its rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablate.plan.factorial import (
    FIRST_ROWS,
    LEAST_SCREENED,
    LETTERS,
    ROMAN,
    Fraction,
    Signs,
    fractions,
    plackett_burman,
)
from ablate.spec.designs import AUTO, Unit, is_baseline, levels, removable


class DesignError(Exception):
    """A design that does not exist for what it is asked to move."""


@dataclass(frozen=True)
class Moved:
    """What a design moves.

    Attributes:
        units: factors that move as one, in the order of the file.
        names: short name of each path.
        settings: the design's own keys.
    """

    units: Sequence[Unit]
    names: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def name(self, unit: Unit) -> str:
        """A unit by its first path."""
        return self.names[unit[0].path]

    def removable(self) -> Iterator[Unit | Note]:
        """The units that can be taken out, and a note on each that cannot."""
        for unit in self.units:
            yield (
                unit
                if removable(unit)
                else Note(f"{self.name(unit)} skipped, the baseline has it at `ablate_to` already")
            )


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
class Note:
    """What a reader of the plan has to know of a design."""

    text: str


Rows = Iterator[Row | Note]


def leave_one_out(moved: Moved) -> Rows:
    """One unit at `ablate_to`, the rest at baseline."""
    for unit in moved.removable():
        yield unit if isinstance(unit, Note) else Row(_ablated(unit))


UNKNOWN_GROUPS = Note(
    "its groups come from the reference table: `ablate terms FILE` makes it, `ablate run FILE` before the first trial"
)


def leave_group_out(moved: Moved) -> Rows:
    """All units of one group at `ablate_to`, the rest at baseline."""
    if moved.settings["groups"] == AUTO:
        yield UNKNOWN_GROUPS
        return
    for group in moved.settings["groups"]:
        members = [unit for unit in moved.units if any(factor.path in group for factor in unit)]
        yield Row({path: value for unit in members for path, value in _ablated(unit).items()})


def add_one_in(moved: Moved) -> Rows:
    """All units at `ablate_to` but one, which keeps its baseline value."""
    for unit in moved.removable():
        if isinstance(unit, Note):
            yield unit
        else:
            others = [other for other in moved.units if other is not unit]
            yield Row({path: value for other in others for path, value in _ablated(other).items()}, kept=unit)


def one_at_a_time(moved: Moved) -> Rows:
    """Each level of each unit but the baseline's, the rest at baseline."""
    for unit in moved.units:
        others = [level for level in levels(unit) if not is_baseline(unit, level)]
        for level in others:
            yield Row(_at(unit, level))
        if not others:
            yield Note(f"{moved.name(unit)} skipped, it has no level but the baseline's")


def grid(moved: Moved) -> Rows:
    """Every combination of the units' levels, the last unit's changing fastest."""
    steps = [[_at(unit, level) for level in levels(unit)] for unit in moved.units]
    for combination in itertools.product(*steps):
        yield Row({path: value for step in combination for path, value in step.items()})


def factorial(moved: Moved) -> Rows:
    """Each unit at its baseline value (+) or at `ablate_to` (-): all combinations, or a balanced part of them.

    Raises: DesignError where there is no such fraction.
    """
    if moved.settings.get("groups") == AUTO:
        yield UNKNOWN_GROUPS
        return
    found = list(moved.removable())
    yield from (item for item in found if isinstance(item, Note))
    units = [item for item in found if not isinstance(item, Note)]
    if moved.settings["fraction"] == "plackett_burman":
        rows, notes = _screening(len(units))
    else:
        design = _regular(len(units), moved.settings["resolution"])
        rows, notes = list(design.rows()), _regular_notes(design, [moved.name(unit) for unit in units])
    yield from map(Note, notes)
    for signs in rows:
        out = (unit for unit, sign in zip(units, signs, strict=True) if sign < 0)
        yield Row({path: value for unit in out for path, value in _ablated(unit).items()})


AVERAGED = (
    "an effect is averaged over the other factors, unlike in leave_one_out, which has them at baseline; "
    "a baseline that is no row of the design is an extra arm, outside the effects"
)


def _regular(size: int, resolution: str | None) -> Fraction:
    """The full factorial, or the smallest fraction of at least that resolution."""
    if resolution is None:
        return Fraction(size)
    wanted = next(number for number, roman in ROMAN.items() if roman == resolution)
    there = fractions(size)
    for fraction in there:
        if fraction.resolution >= wanted:
            return fraction
    possible = [f"{ROMAN[fraction.resolution]} with {2**fraction.base} arms" for fraction in there]
    screening = plackett_burman(size)
    possible += [f"fraction: plackett_burman with {len(screening)}"] if screening else []
    possible.append(f"fraction: full with {2**size}")
    raise DesignError(f"no fraction of resolution {resolution} for {size} factors; possible: {', '.join(possible)}")


def _regular_notes(design: Fraction, names: Sequence[str]) -> list[str]:
    """Generators, aliases, and what is estimated."""
    letters = ", ".join(f"{letter} = {name}" for letter, name in zip(LETTERS, names, strict=False))
    if not design.products:
        return [f"all {2**design.size} combinations of {letters}", AVERAGED]
    size = f"2^({design.size}-{len(design.products)})"
    aliases = ", ".join(design.aliases()) or "none"
    return [
        f"{size}, resolution {ROMAN[design.resolution]}, {2**design.base} arms; {letters}",
        f"generators {design.generators()}",
        f"aliases of up to two factors: {aliases}",
        AVERAGED,
    ]


def _screening(size: int) -> tuple[list[Signs], list[str]]:
    """A Plackett-Burman design and what it estimates.

    Raises: DesignError outside the tables.
    """
    rows = plackett_burman(size)
    if rows is None:
        most = max(FIRST_ROWS) - 1
        raise DesignError(f"no Plackett-Burman design for {size} factors; possible: {LEAST_SCREENED} to {most} factors")
    power = len(rows).bit_count() == 1
    mixed = "aliased with" if power else "partly aliased with all"
    return rows, [f"Plackett-Burman, {len(rows)} arms; main effects are {mixed} interactions of two factors", AVERAGED]


def _ablated(unit: Unit) -> dict[str, Any]:
    return {factor.path: factor.ablate_to for factor in unit}


def _at(unit: Unit, level: Sequence[Any]) -> dict[str, Any]:
    return {factor.path: value for factor, value in zip(unit, level, strict=True)}


DESIGNS: dict[str, Callable[[Moved], Rows]] = {
    "leave_one_out": leave_one_out,
    "leave_group_out": leave_group_out,
    "add_one_in": add_one_in,
    "one_at_a_time": one_at_a_time,
    "grid": grid,
    "factorial": factorial,
}
