"""Labels of arms: what changed from the baseline, in words of the file."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ablate.spec.designs import Unit, is_baseline
from ablate.spec.models import MISSING
from ablate.spec.nodes import scalar
from ablate.spec.paths import canonical, same

MAX_VALUE = 48
BARE = re.compile(r"[\w./:-]+")


def short_names(paths: Iterable[str], among: Iterable[str]) -> dict[str, str]:
    """For each path its shortest suffix, in whole parts, that no other path ends with."""
    counts: Counter[str] = Counter()
    for path in {*paths, *among}:
        counts.update(_suffixes(path))
    return {path: next((end for end in _suffixes(path) if counts[end] == 1), path) for path in paths}


def _suffixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1)]


def value_text(value: Any) -> str:
    """A value as a label shows it.

    Text stands in quotes where it would be read as something else; a long value is cut, with a hash to tell it apart.
    """
    bare = isinstance(value, str) and BARE.fullmatch(value) and scalar(value) is value
    text = value if bare else canonical(value)
    if len(text) <= MAX_VALUE:
        return str(text)
    return f"{text[:MAX_VALUE]}…{hashlib.sha256(text.encode()).hexdigest()[:6]}"


class Labels:
    """Labels of the arms of one study."""

    def __init__(self, units: Sequence[Unit], among: Iterable[str]) -> None:
        """`units` move in the study; `among` are the paths that a name must tell a path from."""
        self._units = units
        self.names = short_names([factor.path for unit in units for factor in unit], among)
        self._parts: dict[tuple[int, ...], str] = {}

    def changes(self, values: Mapping[str, Any]) -> str:
        """`-path` for a unit that is taken out, `path=value` for another level; a zip by its first path.

        `values` hold every studied path; they are the values of the factors themselves, whose parts are made once.
        """
        found = []
        for unit in self._units:
            key = (id(unit), *(id(values[factor.path]) for factor in unit))
            part = self._parts.get(key)
            if part is None:
                part = self._parts[key] = self._part(unit, [values[factor.path] for factor in unit])
            if part:
                found.append(part)
        return ", ".join(found)

    def _part(self, unit: Unit, level: Sequence[Any]) -> str:
        name = self.names[unit[0].path]
        if is_baseline(unit, level):
            return ""
        pairs = zip(unit, level, strict=True)
        if all(factor.ablate_to is not MISSING and same(value, factor.ablate_to) for factor, value in pairs):
            return f"-{name}"
        return f"{name}={value_text(level[0])}"
