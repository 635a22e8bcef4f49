"""The document of a study: its file, what that file extends, and what the command line sets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ablate.errors import Problem, SpecError
from ablate.spec.models import FactorModel
from ablate.spec.nodes import MAX_BYTES, MAX_DEPTH, Entry, Node, Place, compose
from ablate.spec.wording import shown

EXTENDS = "extends"


def read_document(path: Path | str, overrides: Sequence[str], seeds: int | None, problems: list[Problem]) -> Node:
    """The whole document as one mapping: bases first, later wins, then `--set`, then `--seeds`.

    Raises: SpecError where it cannot be read at all; other problems are added to `problems`.
    """
    root = _extended(str(path), problems)
    for override in overrides:
        root = _overridden(root, override, problems)
    if seeds is not None:
        root = _set(root, ["seeds", "count"], Node(Place("--seeds"), seeds), Place("--seeds"))
    return root


# --- files --------------------------------------------------------------------------------------


def _extended(file: str, problems: list[Problem]) -> Node:
    """A file merged over those it extends."""
    chain: list[Node] = []
    seen: list[str] = []
    place: Place | None = None
    while True:
        identity = os.path.realpath(file)
        if identity in seen:
            assert place is not None
            message = f"got {shown(file)}; it extends this file in turn, a cycle"
            raise SpecError([*problems, place.problem(EXTENDS, message)])
        seen.append(identity)
        root = _read(file, place, problems)
        entry = root.value.pop(EXTENDS, None)
        chain.append(root)
        if entry is None or entry.node.value is None:
            break
        place = entry.node.place
        if not isinstance(entry.node.value, str) or not entry.node.value or "\0" in entry.node.value:
            message = f"got {shown(entry.node.plain())}; allowed: the name of a file, relative to this one"
            problems.append(place.problem(EXTENDS, message))
            break
        file = os.path.join(os.path.dirname(file), entry.node.value)  # noqa: PTH118, PTH120 - FILE is shown as given
    merged = chain.pop()
    while chain:
        merged = _merged(merged, chain.pop())
    return merged


def _read(file: str, place: Place | None, problems: list[Problem]) -> Node:
    """The mapping in one file. `place` is where another file names it."""
    try:
        with Path(file).open("rb") as handle:
            content = handle.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if place is None:
            raise SpecError([*problems, Problem(file, 0, 0, "", f"cannot be read: {reason}")]) from None
        raise SpecError([*problems, place.problem(EXTENDS, f"{file} cannot be read: {reason}")]) from None
    if len(content) > MAX_BYTES:
        raise SpecError([*problems, Problem(file, 0, 0, "", "larger than 1 MiB; no study file is")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        message = f"got the byte 0x{content[error.start]:02X}; a study file is UTF-8"
        raise SpecError([*problems, Problem(file, line, column, "", message)]) from None
    root = compose(text, file, problems)
    if root is None or root.value is None:
        raise SpecError([*problems, Problem(file, 1, 1, "", "the file is empty; a study file is a mapping")])
    if not isinstance(root.value, dict):
        message = f"got {shown(root.plain())}; a study file is a mapping"
        raise SpecError([*problems, root.place.problem("", message)])
    return Node(root.place, dict(root.value))


def _merged(below: Node, above: Node) -> Node:
    """Mappings are merged key by key; of anything else the upper one is taken."""
    if not (isinstance(below.value, dict) and isinstance(above.value, dict)):
        return above
    entries: dict[str, Entry] = dict(below.value)
    for key, entry in above.value.items():
        under = entries.get(key)
        entries[key] = Entry(entry.key_place, _merged(under.node, entry.node)) if under else entry
    return Node(above.place, entries)


# --- the command line -----------------------------------------------------------------------------


def _overridden(root: Node, override: str, problems: list[Problem]) -> Node:
    """The document with one `path=value` of the command line."""
    place = Place("--set")
    path, separator, text = override.partition("=")
    path = path.strip()
    if not separator or not path:
        problems.append(place.problem("", f"got {shown(override)}; allowed: path=value"))
        return root
    try:
        if len(text.encode()) > MAX_BYTES:
            raise SpecError([place.problem("", "longer than 1 MiB")])
        found: list[Problem] = []
        node = compose(text, place.file, found)
        problems.extend(place.problem(path, problem.message) for problem in found)
    except UnicodeEncodeError:
        problems.append(place.problem(path, "the value is not UTF-8"))
        return root
    except SpecError as error:
        problems.extend(place.problem(path, problem.message) for problem in error.problems)
        return root
    parts = _parts(root, path)
    if len(parts) > MAX_DEPTH:
        problems.append(place.problem(shown(path), f"nested more than {MAX_DEPTH} deep"))
        return root
    value = _placed(node, place) if node is not None else Node(place, None)
    try:
        return _set(root, parts, value, place)
    except LookupError as error:
        problems.append(place.problem(path, str(error.args[0])))
        return root


def _placed(node: Node, place: Place) -> Node:
    """The node with one place throughout: a line and column of the command line help nobody."""
    if isinstance(node.value, dict):
        entries = {key: Entry(place, _placed(entry.node, place)) for key, entry in node.value.items()}
        return Node(place, entries)
    if isinstance(node.value, list):
        return Node(place, [_placed(item, place) for item in node.value])
    return Node(place, node.value)


def _parts(root: Node, path: str) -> list[str]:
    """The keys that a dotted path names.

    Keys may hold dots themselves: the longest that is there is meant, and under `factors` a new key is all that is
    left of the path, up to a setting of a factor.
    """
    parts: list[str] = []
    node: Node | None = root
    while path:
        keys = node.value if node is not None and isinstance(node.value, dict) else {}
        known = [key for key in keys if path == key or path.startswith(f"{key}.")]
        if known:
            part = max(known, key=len)
        elif parts == ["factors"]:
            head, _, last = path.rpartition(".")
            part = head if head and last in FactorModel.model_fields else path
        else:
            part = path.partition(".")[0]
        parts.append(part)
        path = path[len(part) + 1 :]
        node = _child(node, part)
    return parts


def _child(node: Node | None, part: str) -> Node | None:
    if node is None:
        return None
    if isinstance(node.value, dict):
        entry = node.value.get(part)
        return entry.node if entry else None
    if isinstance(node.value, list) and part.isdecimal() and len(part) < 7 and int(part) < len(node.value):
        item: Node = node.value[int(part)]
        return item
    return None


def _set(node: Node, parts: list[str], value: Node, place: Place) -> Node:
    """The tree with `value` at `parts`; what is not on the way is shared.

    Raises: LookupError if a list on the way has no such item.
    """
    if not parts:
        return value
    part, rest = parts[0], parts[1:]
    if isinstance(node.value, list):
        if _child(node, part) is None:
            raise LookupError(
                f"got the item {shown(part)}; allowed: 0 to {len(node.value) - 1}, the items of this list"
            )
        items = list(node.value)
        items[int(part)] = _set(items[int(part)], rest, value, place)
        return Node(node.place, items)
    entries: dict[str, Entry] = dict(node.value) if isinstance(node.value, dict) else {}
    under = entries.get(part)
    below = under.node if under else Node(place, {})
    entries[part] = Entry(under.key_place if under else place, _set(below, rest, value, place))
    return Node(node.place, entries)
