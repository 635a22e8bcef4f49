"""Dotted paths of a configuration: which there are, what stands there, a copy with another value there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from ablate.spec.models import Config


def leaf_paths(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Paths of all values that are not mappings (an empty mapping is a value), in the order of the configuration."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from leaf_paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def all_paths(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Paths of all values, mappings included."""
    for key, value in config.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from all_paths(value, f"{prefix}{key}.")


def value_at(config: Mapping[str, Any], path: str) -> Any:
    """The value at a path.

    Raises: KeyError if there is none.
    """
    value: Any = config
    for key in path.split("."):
        if not isinstance(value, Mapping):
            raise KeyError(path)
        value = value[key]
    return value


def with_value(config: Config, path: str, value: Any) -> Config:
    """A configuration with another value at a path; all that is not on the way there is shared with the given one."""
    key, _, rest = path.partition(".")
    return {**config, key: with_value(config[key], rest, value) if rest else value}


@lru_cache(maxsize=1024)
def glob_pattern(glob: str) -> re.Pattern[str]:
    """`*` stands for any text, dots included."""
    return re.compile(".*".join(map(re.escape, glob.split("*"))), re.DOTALL)


def matching(glob: str, paths: Iterable[str]) -> list[str]:
    """The paths that a glob (or a path) stands for, in their order."""
    pattern = glob_pattern(glob)
    return [path for path in paths if pattern.fullmatch(path)]


#: Canonical JSON: one text for equal values; 1, 1.0, true, "1" and null have different ones.
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def same(left: Any, right: Any) -> bool:
    """Whether two values are one; 1, 1.0, true, "1" and null are five."""
    if type(left) is not type(right):
        return isinstance(left, list | tuple) and canonical(left) == canonical(right)
    return bool(left == right) if isinstance(left, str | int | float) else canonical(left) == canonical(right)
