"""Designs as the file has them: what each ranges over, and whether its factors have what it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from ablate.spec.file_model import DesignModel, Search
from ablate.spec.findings import Findings, Loc
from ablate.spec.models import MISSING, Design, Factor, SearchSettings
from ablate.spec.paths import matching, same
from ablate.spec.wording import MAX_SHOWN, cut, hint, listed

TERM_WEIGHTS = "reconstruction.*_weight"
"""Weights of the terms of the loss stack: an arm keeps at least one of them on."""

AUTO = "auto"
"""Groups of the weights of terms that the data cannot tell apart, as the reference table has them."""

CANONICAL = "canonical"
"""What a search ranges over: shares of the effective token weight of those groups, a dimension a direction."""

MAX_ARMS = 1_000_000
"""The most arms that one design may have."""

Unit = tuple[Factor, ...]
"""Factors that move as one: one factor, or a group of `together`."""


def units(over: Iterable[str], factors: Mapping[str, Factor], together: Sequence[Sequence[str]]) -> list[Unit]:
    """What a design moves: each factor it ranges over, a group of `together` as one."""
    group_of = {path: group for group in together for path in group}
    found = {tuple(group_of.get(path, (path,))): None for path in over}
    return [tuple(factors[path] for path in group) for group in found]


def moved_units(
    kind: str,
    over: Iterable[str],
    factors: Mapping[str, Factor],
    together: Sequence[Sequence[str]],
    settings: Mapping[str, Any],
) -> list[Unit]:
    """The units of a design; groups of a factorial or a search move as one too, those that share a factor as one."""
    groups = settings.get("groups")
    if kind not in ("factorial", "search") or groups is None or groups == AUTO:
        return units(over, factors, together)
    return units(over, factors, _joined([*together, *groups], factors))


def _joined(groups: Iterable[Sequence[str]], factors: Mapping[str, Factor]) -> list[tuple[str, ...]]:
    """The groups, those that share a member made one; members in the order of the factors."""
    joined: list[set[str]] = []
    for group in groups:
        apart = [other for other in joined if other.isdisjoint(group)]
        touched = [other for other in joined if not other.isdisjoint(group)]
        joined = [*apart, set(group).union(*touched)]
    return [tuple(path for path in factors if path in group) for group in joined]


def removable(unit: Unit) -> bool:
    """Whether setting the unit to `ablate_to` changes the baseline."""
    return not all(same(factor.baseline, factor.ablate_to) for factor in unit)


def levels(unit: Unit) -> list[tuple[Any, ...]]:
    """The values that a unit steps through, one for each of its factors."""
    return list(zip(*(factor.levels for factor in unit), strict=True))


def is_baseline(unit: Unit, level: Sequence[Any]) -> bool:
    """Whether a level is the baseline's."""
    return all(same(value, factor.baseline) for value, factor in zip(level, unit, strict=True))


# --- reading ------------------------------------------------------------------------------------


def resolve_together(
    findings: Findings, groups: Sequence[Sequence[str]], factors: Mapping[str, Factor], known: Iterable[str]
) -> tuple[tuple[str, ...], ...]:
    """The groups of factors that move as one, globs expanded."""
    resolved: list[tuple[str, ...]] = []
    taken: set[str] = set()
    for index, group in enumerate(groups):
        loc: Loc = ("together", index)
        paths = factors_of(findings, group, loc, factors, known)
        if paths is None:
            continue
        if len(paths) < 2:
            findings.add(loc, "one factor; allowed: at least two, which then move as one")
        elif twice := [path for path in paths if path in taken]:
            findings.add(loc, f"{twice[0]} is in another group already")
        else:
            resolved.append(paths)
            taken.update(paths)
    return tuple(resolved)


def factors_of(
    findings: Findings, globs: Sequence[str], loc: Loc, factors: Mapping[str, Factor], known: Iterable[str]
) -> tuple[str, ...] | None:
    """The factors that globs stand for, in the file's order; None where one stands for none."""
    known = list(known)
    names = [*factors, *known]
    wanted: set[str] = set()
    fine = True
    for index, glob in enumerate(globs):
        found = matching(glob, names)
        wanted.update(found)
        if not found and not any(matching(key, [glob]) for key in known):
            place: Loc = (*loc, index) if isinstance(globs, tuple) else loc
            message = f"{cut(glob, MAX_SHOWN)} matches no factor; allowed: {listed(factors)}{hint(glob, factors)}"
            findings.add(place, message)
            fine = False
    return tuple(path for path in factors if path in wanted) if fine else None


def resolve_designs(
    findings: Findings,
    models: Sequence[DesignModel | None],
    factors: Mapping[str, Factor],
    together: Sequence[Sequence[str]],
    known: Sequence[str],
    search: Callable[[Search, Loc, Sequence[Unit]], SearchSettings | None],
) -> tuple[Design, ...]:
    """The designs in order.

    Args:
        known: the keys of `factors`, also of those that could not be read.
        search: reads the settings of a search over units, and adds what is wrong with them.
    """
    counts: Counter[str] = Counter()
    designs: list[Design] = []
    for index, model in enumerate(models):
        if model is None:
            continue
        kind = next(iter(model.model_fields_set))
        loc: Loc = ("designs", index, kind)
        groups, settings, loc = _ranges(getattr(model, kind), loc)
        reached = [factors_of(findings, group, place, factors, known) for group, place in groups]
        counts[kind] += 1
        if not all(reached):
            continue
        resolved = tuple(paths for paths in reached if paths)
        over = tuple(path for path in factors if any(path in paths for paths in resolved))
        if (kind == "leave_group_out" or _nested(model)) and settings.get("groups") != AUTO:
            settings = settings | {"groups": resolved}
        moved = moved_units(kind, over, factors, together, settings)
        if message := _unfit(kind, moved, settings):
            findings.add(loc, message)
        elif model.search is not None:
            found = search(_as_asked(model.search), loc[:-1], moved)
            known_later = {"groups": AUTO} if settings.get("groups") == AUTO else {}
            designs.append(Design(kind, f"{kind}-{counts[kind]}", over, known_later, search=found))
            continue
        designs.append(Design(kind, kind if counts[kind] == 1 else f"{kind}-{counts[kind]}", over, settings))
    return tuple(designs)


def _ranges(written: Any, loc: Loc) -> tuple[list[tuple[Sequence[str], Loc]], dict[str, Any], Loc]:
    """What a design ranges over (groups of globs, each with its place), its settings, and where that is written."""
    if written == AUTO:
        return [([TERM_WEIGHTS], loc)], {"groups": AUTO}, loc
    if isinstance(written, str):
        return [([written], loc)], {}, loc
    if isinstance(written, tuple):
        if any(isinstance(group, tuple) for group in written):
            return [(group, (*loc, index)) for index, group in enumerate(written)], {}, loc
        return [(written, loc)], {}, loc
    if isinstance(written, Search) and isinstance(written.over, str):
        found = {"groups": AUTO} if written.over == CANONICAL else {}
        return [([TERM_WEIGHTS if found else written.over], (*loc, "over"))], found, (*loc, "over")
    groups, settings, place = _ranges(written.over, (*loc, "over"))
    return groups, written.model_dump(exclude={"over"}) | settings, place


def _as_asked(search: Search) -> Search:
    """A search; in canonical coordinates it is one of shares."""
    return search.model_copy(update={"simplex": True}) if search.over == CANONICAL else search


def _nested(model: DesignModel) -> bool:
    """Whether a factorial is over groups of factors."""
    over = model.factorial.over if model.factorial is not None else ()
    return any(isinstance(group, tuple) for group in over)


def _unfit(kind: str, moved: list[Unit], settings: Mapping[str, Any]) -> str | None:
    """Why a design over these units has no arms, or too many; None where it is sound."""
    if kind in ("leave_one_out", "leave_group_out", "add_one_in", "factorial"):
        without = [factor.path for unit in moved for factor in unit if factor.ablate_to is MISSING]
        if without:
            return f"{', '.join(without)} without `ablate_to`; {kind} needs one in every factor"
        if not any(map(removable, moved)):
            return "yields no arm: the baseline has every one of these factors at `ablate_to` already"
    if kind == "factorial" and settings.get("groups") != AUTO:
        moving = sum(map(removable, moved))
        if moving < 2:
            return "one factor; allowed: at least two that are not at `ablate_to` already"
        if settings["resolution"] is None and settings["fraction"] != "plackett_burman" and 2**moving > MAX_ARMS:
            return f"a full factorial of {2**moving} arms; at most {MAX_ARMS}"
    if kind in ("one_at_a_time", "grid", "search"):
        for unit in moved:
            if len({len(factor.levels) for factor in unit}) > 1:
                counts = ", ".join(f"{factor.path} {len(factor.levels)}" for factor in unit)
                return f"factors that move together have as many levels each; got {counts}"
    if kind == "one_at_a_time" and all(is_baseline(unit, level) for unit in moved for level in levels(unit)):
        return "yields no arm: these factors have no level but the baseline's"
    if kind == "grid":
        size = prod(len(unit[0].levels) for unit in moved)
        if size > MAX_ARMS:
            return f"a grid of {size} arms; at most {MAX_ARMS}"
        if all(is_baseline(unit, level) for unit in moved for level in levels(unit)):
            return "yields no arm: these factors have no level but the baseline's"
    return None
