"""The space of a search: its dimensions in the order in which they are asked for, and the arm that answers make.

Define by run: whether a conditional factor is asked for hangs on the answers before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.spec.designs import Unit, levels
from ablate.spec.expressions import Call, Chain, Path, Term, Unary
from ablate.spec.models import Factor
from ablate.spec.paths import canonical
from ablate.spec.searches import searched_as_range

SMALLEST_SHARE = 1e-6
"""Shares are made of u in [SMALLEST_SHARE, 1 - SMALLEST_SHARE]; at the ends ln u would be 0 or unbounded."""


@dataclass(frozen=True)
class Range:
    """A dimension that takes numbers."""

    name: str
    low: float
    high: float
    log: bool = False
    integer: bool = False


@dataclass(frozen=True)
class Choice:
    """A dimension that takes one of several options; the options are plain scalars that Optuna tells apart."""

    name: str
    options: tuple[Any, ...]


Dimension = Range | Choice
Suggest = Callable[[Dimension], Any]
"""Answers with a number of the range, or an option."""


@dataclass(frozen=True)
class Answer:
    """What a sampler answered, in words of the study.

    Attributes:
        values: value by path, of the factors that were asked for.
        shares: share of the effective token weight by path, of a simplex; else empty.
    """

    values: dict[str, Any]
    shares: dict[str, float]


class Space:
    """What a search may propose.

    Args:
        moved: units that move as one.
        sampler: name of the sampler: some step through levels, others take ranges.
        simplex: whether the units are shares of the effective token weight.
        varies: whether a factor's `when` holds under these values of studied paths.
        whens: parsed `when` by path.
    """

    def __init__(
        self,
        moved: Sequence[Unit],
        sampler: str,
        *,
        simplex: bool,
        varies: Callable[[str, Mapping[str, Any]], bool],
        whens: Mapping[str, Term],
    ) -> None:
        self.simplex = simplex
        self._varies = varies
        self._whens = whens
        self._units = {unit[0].path: unit for unit in _in_asking_order(moved, whens)}
        self.dimensions: dict[str, Dimension] = {
            name: Range(name, SMALLEST_SHARE, 1 - SMALLEST_SHARE) if simplex else _dimension(unit, sampler)
            for name, unit in self._units.items()
        }

    @property
    def size(self) -> int | None:
        """How many combinations there are, conditions aside; None where some dimension is a range."""
        sizes = [len(dim.options) if isinstance(dim, Choice) else None for dim in self.dimensions.values()]
        return math.prod(size for size in sizes if size is not None) if None not in sizes else None

    def ask(self, suggest: Suggest) -> Answer:
        """Ask for each dimension that is in play, in order."""
        if self.simplex:
            return Answer({}, self._shares({name: float(suggest(dim)) for name, dim in self.dimensions.items()}))
        values: dict[str, Any] = {}
        for name, unit in self._units.items():
            if all(factor.path not in self._whens or self._varies(factor.path, values) for factor in unit):
                values |= _values(unit, self.dimensions[name], suggest(self.dimensions[name]))
        return Answer(values, {})

    def _shares(self, uniform: Mapping[str, float]) -> dict[str, float]:
        """Uniform over the simplex: s_k = e_k / sum_j e_j with e_k = -ln u_k; a group shares its part equally."""
        parts = {name: -math.log(u) for name, u in uniform.items()}
        total = sum(parts.values())
        return {factor.path: parts[name] / total / len(unit) for name, unit in self._units.items() for factor in unit}

    def locate(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answers that give these values of the studied paths; None where they lie outside of the space.

        A conditional factor that is out of play needs no answer.
        """
        if self.simplex:
            return None
        found: dict[str, Any] = {}
        for name, unit in self._units.items():
            if not all(factor.path not in self._whens or self._varies(factor.path, values) for factor in unit):
                continue
            answer = _answer(unit, self.dimensions[name], values)
            if answer is None:
                return None
            found[name] = answer
        return found


def _dimension(unit: Unit, sampler: str) -> Dimension:
    first = unit[0]
    if searched_as_range(unit, sampler):
        assert first.low is not None
        assert first.high is not None
        return Range(first.path, first.low, first.high, first.log, _whole(first))
    steps = [level[0] for level in levels(unit)]
    plain = all(step is None or isinstance(step, bool | int | float | str) for step in steps)
    if not (plain and len(set(steps)) == len(steps)):  # Optuna merges True, 1 and 1.0, and keeps scalars alone
        steps = [canonical(step) for step in steps]
    if len(set(steps)) < len(steps):
        steps = [canonical(list(level)) for level in levels(unit)]
    return Choice(first.path, tuple(steps))


def _whole(factor: Factor) -> bool:
    return factor.kind == "int" or (factor.kind == "free" and all(isinstance(level, int) for level in factor.levels))


def _values(unit: Unit, dimension: Dimension, answer: Any) -> dict[str, Any]:
    """The values of a unit's factors: of one level, or each at the same relative position of its own range."""
    if isinstance(dimension, Choice):
        level = levels(unit)[dimension.options.index(answer)]
        return {factor.path: value for factor, value in zip(unit, level, strict=True)}
    first, *others = unit
    values = {first.path: int(answer) if dimension.integer else float(answer)}
    for factor in others:
        values[factor.path] = _at(factor, _position(first, float(answer)))
    return values


def _position(factor: Factor, value: float) -> float:
    assert factor.low is not None
    assert factor.high is not None
    if factor.log:
        return math.log(value / factor.low) / math.log(factor.high / factor.low)
    return (value - factor.low) / (factor.high - factor.low)


def _at(factor: Factor, share: float) -> float:
    assert factor.low is not None
    assert factor.high is not None
    value = (
        factor.low * (factor.high / factor.low) ** share
        if factor.log
        else factor.low + share * (factor.high - factor.low)
    )
    value = min(max(value, factor.low), factor.high)
    return round(value) if _whole(factor) else value


def _answer(unit: Unit, dimension: Dimension, values: Mapping[str, Any]) -> Any:
    """What to answer for these values; None where no answer gives them."""
    wanted = [values[factor.path] for factor in unit]
    if isinstance(dimension, Choice):
        for option, level in zip(dimension.options, levels(unit), strict=True):
            if canonical(list(level)) == canonical(wanted):
                return option
        return None
    number = wanted[0]
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if not dimension.low <= number <= dimension.high:
        return None
    near = _values(unit, dimension, number)
    same = all(math.isclose(near[factor.path], values[factor.path], rel_tol=1e-9) for factor in unit)
    return number if same else None


def _in_asking_order(moved: Sequence[Unit], whens: Mapping[str, Term]) -> Iterator[Unit]:
    """Each unit after those that its conditions read; where conditions read each other, the order of the file."""
    left = list(moved)
    while left:
        ready = next((unit for unit in left if not _reads(unit, left, whens)), left[0])
        left.remove(ready)
        yield ready


def _reads(unit: Unit, left: Sequence[Unit], whens: Mapping[str, Term]) -> bool:
    """Whether a condition of the unit reads a factor of another unit that has not been asked for."""
    read = {path for factor in unit if factor.path in whens for path in paths_read(whens[factor.path])}
    return any(factor.path in read for other in left if other is not unit for factor in other)


def paths_read(term: Term) -> Iterator[str]:
    """The paths of the configuration that an expression reads."""
    match term:
        case Path(parts):
            yield ".".join(parts)
        case Call(_, paths):
            yield from (".".join(parts) for parts in paths)
        case Unary(_, operand):
            yield from paths_read(operand)
        case Chain(first, rest):
            yield from paths_read(first)
            for _, operand in rest:
                yield from paths_read(operand)
