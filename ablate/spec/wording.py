"""How a problem is worded: what was got; what is allowed; the nearest name."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

MAX_SHOWN = 60


def shown(value: Any) -> str:
    """A value as a reader of the file knows it, cut to a length that fits a line."""
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value), repr(value))
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "a whole number of more than 60 digits"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return cut(text, MAX_SHOWN)


def cut(text: str, length: int) -> str:
    """The text, as far as it fits."""
    return text if len(text) <= length else f"{text[:length]}…"


def printable(text: str) -> str:
    """The text with what would break a line or steer a terminal written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was most likely meant: near as a whole, or in its last part."""
    known = sorted(set(names))
    name = name[:200]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    if close:
        return close[0]
    last_part = {known_name.rpartition(".")[2]: known_name for known_name in reversed(known)}
    close = difflib.get_close_matches(name.rpartition(".")[2], last_part, n=1, cutoff=0.7)
    return last_part[close[0]] if close else None


def hint(name: str, names: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing where no name is near."""
    near = nearest(name, names)
    return f"; did you mean {near}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Names in order, for `allowed: …`."""
    return ", ".join(sorted(set(names))) or "none"
