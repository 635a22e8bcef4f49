"""The problems found in a document, each at its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ablate.errors import Problem, SpecError
from ablate.spec.config_types import annotation_at, members
from ablate.spec.nodes import Node, Place, dotted, scalar
from ablate.spec.wording import hint, listed, shown

Loc = tuple[str | int, ...]
"""Keys and list positions from the root of the document."""


class Findings:
    """Collects the problems of one document."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.problems: list[Problem] = []

    def add(self, loc: Loc, message: str, *, at_key: bool = False, path: str | None = None) -> None:
        """Add a problem of what stands at `loc`, or of the nearest thing around it that the file has."""
        shown_path = dotted(loc) if path is None else path
        self.problems.append(self.place(loc, at_key=at_key).problem(shown_path, message))

    def place(self, loc: Loc, *, at_key: bool = False) -> Place:
        """A scalar's or list's own place; a mapping's is that of its key."""
        node, place = self.root, self.root.place
        for part in loc:
            if isinstance(node.value, dict) and part in node.value:
                entry = node.value[part]
                node, place = entry.node, entry.key_place
                if not (at_key or isinstance(node.value, dict)):
                    place = node.place
            elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                place = node.place
            elif isinstance(node.value, dict | list) and node.value:
                break
        return place

    def raise_any(self) -> None:
        """Raise all problems found, in the order of the file.

        Raises: SpecError if there are any.
        """
        if self.problems:
            raise SpecError(sorted(set(self.problems)))


def at(root: Node, loc: Loc) -> Node | None:
    """The node at a place of the document, or None."""
    node: Node | None = root
    for part in loc:
        if node is not None and isinstance(node.value, dict) and part in node.value:
            node = node.value[part].node
        elif node is not None and isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
        else:
            return None
    return node


# --- pydantic's errors in our words -------------------------------------------------------------

ALLOWED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "none_required": "null",
    "finite_number": "a finite number",
    "greater_than": "a number > {gt:g}",
    "greater_than_equal": "a number >= {ge:g}",
    "less_than": "a number < {lt:g}",
    "less_than_equal": "a number <= {le:g}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}
"""What is allowed where pydantic reports an error of this type. Others speak for themselves."""

PATTERNS = {
    r"^[a-z0-9-]{1,64}$": "1 to 64 of a-z, 0-9 and -",
    r"^(last|step:[0-9]+)$": "last or step:N",
}
"""Patterns in words."""

OTHER_MEMBERS = {"literal_error", "string_type", "none_required", "too_short"}
"""What the scalar members of a union say of a list or mapping whose own member says more."""

STRICTNESS = {"int_type", "int_from_float", "float_type"}


def add_errors(findings: Findings, error: ValidationError, prefix: Loc, annotation: Any) -> list[Loc]:
    """Add what pydantic found wrong with the value at `prefix`, one problem a place. Returns the places."""
    grouped: dict[Loc, list[Mapping[str, Any]]] = {}
    for item in error.errors(include_url=False):
        loc = _in_document(findings.root, prefix, item["loc"], missing=item["type"] == "missing")
        grouped.setdefault(loc, []).append(item)
    for loc, items in grouped.items():
        deeper = any(other[: len(loc)] == loc and other != loc for other in grouped)
        if deeper and all(item["type"] in OTHER_MEMBERS for item in items):
            continue
        message, at_key = _worded(items, annotation_at(annotation, loc[len(prefix) : -1]), loc)
        findings.add(loc[:-1] if items[0]["type"] == "missing" else loc, message, at_key=at_key, path=dotted(loc))
    return list(grouped)


def _in_document(root: Node, prefix: Loc, loc: Loc, *, missing: bool) -> Loc:
    """Pydantic's place without the names of union members, which no document has."""
    found: Loc = prefix
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        node = at(root, found)
        inside = node is None or (isinstance(node.value, dict | list) and at(root, (*found, part)) is not None)
        if inside or (last and missing):
            found = (*found, part)
    return found


def _worded(items: Sequence[Mapping[str, Any]], parent: Any, loc: Loc) -> tuple[str, bool]:
    """The sentence for all that is wrong at one place, and whether it is about the key."""
    first = items[0]
    if first["type"] == "missing":
        return "missing; this key is required", True
    if first["type"] == "extra_forbidden":
        names = members(parent)
        return f"unknown key; allowed: {listed(names)}{hint(str(loc[-1]), names)}", True
    if first["type"] in ("value_error", "assertion_error"):
        return str(first["ctx"]["error"]), False
    return worded_value(first["input"], items), False


def worded_value(value: Any, items: Sequence[Mapping[str, Any]]) -> str:
    """The sentence for a value that is not allowed."""
    allowed = list(dict.fromkeys(_allowed(item) for item in items))
    message = f"got {shown(value)}; allowed: {' or '.join(allowed)}"
    if isinstance(value, str) and any(item["type"] in STRICTNESS for item in items):
        number = scalar(value[:MAX_NUMBER])
        if isinstance(number, int | float) and not isinstance(number, bool):
            return f"{message}; a quoted number is text"
    if isinstance(value, str):
        choices = [choice for item in items for choice in _choices(item)]
        return message + hint(value, choices)
    return message


MAX_NUMBER = 100


def _allowed(item: Mapping[str, Any]) -> str:
    template = ALLOWED.get(item["type"])
    if item["type"] == "string_pattern_mismatch" and item["ctx"]["pattern"] in PATTERNS:
        return PATTERNS[item["ctx"]["pattern"]]
    return template.format(**item.get("ctx", {})) if template else str(item["msg"])


def _choices(item: Mapping[str, Any]) -> list[str]:
    expected = str(item.get("ctx", {}).get("expected", ""))
    return [part.strip("'") for part in expected.replace(" or ", ", ").split(", ")] if expected else []
