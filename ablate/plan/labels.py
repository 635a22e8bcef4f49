"""Labels of arms: what changed from the baseline, in words of the file."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ablate.spec.designs import Unit, is_baseline, same
from ablate.spec.models import MISSING
from ablate.spec.nodes import scalar
from ablate.spec.paths import canonical

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


def label_of(units: Sequence[Unit], values: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """`-path` for a unit that is taken out, `path=value` for another level; a zip by its first path."""
    parts = []
    for unit in units:
        level = [values[factor.path] for factor in unit]
        if is_baseline(unit, level):
            continue
        first = unit[0]
        if all(factor.ablate_to is not MISSING and same(values[factor.path], factor.ablate_to) for factor in unit):
            parts.append(f"-{names[first.path]}")
        else:
            parts.append(f"{names[first.path]}={value_text(values[first.path])}")
    return ", ".join(parts)
