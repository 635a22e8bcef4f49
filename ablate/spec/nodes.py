"""A study file as nodes that know their place, read by the YAML 1.2 core schema and no more of YAML than that.

ruamel.yaml reads the text into events. What it would do beyond that (tags, merge keys, YAML 1.1 booleans and dates)
is not wanted here, and what it does not do (places, all duplicates at once, bounds) is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from ruamel.yaml.reader import ReaderError

from ablate.errors import Problem, SpecError
from ablate.spec.wording import cut, printable, shown

MAX_BYTES = 2**20
MAX_DEPTH = 100
MAX_PATH = 200
MAX_ALIASED = 10_000
"""The most values that all aliases of a file may stand for together."""


@dataclass(frozen=True)
class Place:
    """Where something is written; line and column count from 1, 0 is no place in a file."""

    file: str
    line: int = 0
    column: int = 0

    def problem(self, path: str, message: str) -> Problem:
        """A problem at this place, in one line whatever the file's names hold."""
        return Problem(self.file, self.line, self.column, printable(cut(path, MAX_PATH)), printable(message))


@dataclass(frozen=True)
class Entry:
    """A value of a mapping, with the place of its key."""

    key_place: Place
    node: Node


@dataclass(frozen=True)
class Node:
    """A value of the file: a scalar, a list of nodes, or a mapping of entries."""

    place: Place
    value: Any
    size: int = 1

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: entry.node.plain() for key, entry in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def dotted(parts: Iterable[str | int]) -> str:
    """A path as it is shown: `designs[1].grid`."""
    text = ""
    for part in parts:
        if part == "":
            continue
        item = f"[{part}]" if isinstance(part, int) else part
        text += item if not text or item.startswith("[") else f".{item}"
    return text


# --- scalars ------------------------------------------------------------------------------------

WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text, 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 16)),
    (
        re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"),
        lambda text: float(text) + 0.0,
    ),  # no -0.0
    (re.compile(r"[-+]?\.(?:inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
)
"""YAML 1.2.2, section 10.3.2: the plain scalars that are no text."""


def scalar(text: str) -> Any:
    """The value of a plain scalar; the text itself where it is text.

    Raises: ValueError if it is a whole number of more digits than Python reads.
    """
    if text in WORDS:
        return WORDS[text]
    for pattern, value in NUMBERS:
        if pattern.fullmatch(text):
            return value(text)
    return text


# --- composing ----------------------------------------------------------------------------------


@dataclass
class _Composer:
    """Builds nodes from events; `problems` collects what can be read past."""

    file: str
    events: Iterator[Any]
    problems: list[Problem]
    anchors: dict[str, Node | None] = field(default_factory=dict)
    aliased: int = 0

    def place(self, event: Any) -> Place:
        mark = event.start_mark
        return Place(self.file, mark.line + 1, mark.column + 1)

    def report(self, event: Any, path: tuple[str, ...], message: str) -> None:
        self.problems.append(self.place(event).problem(dotted(path), message))

    def refuse(self, event: Any, message: str) -> SpecError:
        """An error after which nothing more can be read."""
        return SpecError([*self.problems, self.place(event).problem("", message)])

    def compose(self, event: Any, path: tuple[str, ...]) -> Node:
        if isinstance(event, AliasEvent):
            return self.alias(event)
        if event.tag is not None:
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            self.report(event, path, f"got the tag {tag}; tags are not allowed, values are what they look like")
        anchor = event.anchor
        if anchor:
            self.anchors[anchor] = None
        node = self.content(event, path)
        if anchor:
            self.anchors[anchor] = node
        return node

    def alias(self, event: AliasEvent) -> Node:
        if event.anchor not in self.anchors:
            raise self.refuse(event, f"got the alias *{event.anchor}; there is no anchor &{event.anchor} before it")
        node = self.anchors[event.anchor]
        if node is None:
            raise self.refuse(event, f"the anchor &{event.anchor} holds itself; it would expand without bound")
        self.aliased += node.size
        if self.aliased > MAX_ALIASED:
            raise self.refuse(event, f"the aliases of this file expand to more than {MAX_ALIASED} values")
        return node

    def content(self, event: Any, path: tuple[str, ...]) -> Node:
        if isinstance(event, ScalarEvent):
            return Node(self.place(event), self.scalar(event, path))
        if len(path) >= MAX_DEPTH:
            raise self.refuse(event, f"nested more than {MAX_DEPTH} deep")
        return self.sequence(event, path) if isinstance(event, SequenceStartEvent) else self.mapping(event, path)

    def scalar(self, event: ScalarEvent, path: tuple[str, ...]) -> Any:
        text = event.value
        if any("\ud800" <= character <= "\udfff" for character in text):
            self.report(event, path, "half of a surrogate pair is no text")
            return ""
        if event.style:
            return text
        try:
            return scalar(text)
        except ValueError:
            self.report(event, path, f"a number of {len(text)} digits is too long")
            return 0

    def sequence(self, start: Any, path: tuple[str, ...]) -> Node:
        items: list[Node] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            items.append(self.compose(event, (*path, f"[{len(items)}]")))
        return Node(self.place(start), items, 1 + sum(item.size for item in items))

    def mapping(self, start: Any, path: tuple[str, ...]) -> Node:
        entries: dict[str, Entry] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = self.compose(event, (*path, ""))
            name = key.value
            node = self.compose(next(self.events), (*path, name if isinstance(name, str) else ""))
            if node.value is None and node.place.line > self.place(event).line:
                node = replace(node, place=self.place(event))  # no value at all: ruamel places it at what comes next
            if not isinstance(name, str):
                self.report(event, path, f"got the key {shown(key.plain())}; a key is text, so quote it")
            elif name in entries:
                first = entries[name].key_place.line
                self.report(event, (*path, name), f"duplicate key; the first is in line {first}")
            else:
                entries[name] = Entry(self.place(event), node)
        return Node(self.place(start), entries, 1 + sum(entry.node.size for entry in entries.values()))


def compose(text: str, file: str, problems: list[Problem]) -> Node | None:
    """The one document of a YAML text; None if it holds none. What can be read past is added to `problems`.

    Raises: SpecError where nothing more can be read.
    """
    composer = _Composer(file, YAML(typ="safe", pure=True).parse(text), problems)
    root: Node | None = None
    try:
        for event in composer.events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    raise composer.refuse(event, "a second document starts here; a file is one document")
                root = composer.compose(next(composer.events), ())
            elif isinstance(event, StreamEndEvent):
                break
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise SpecError([*problems, place.problem("", _syntax(error))]) from None
    except ReaderError as error:
        raise SpecError([*problems, _unreadable(text, file, error)]) from None
    return root


def _syntax(error: MarkedYAMLError) -> str:
    problem = str(error.problem or error.context or "not YAML")
    if "'\\t'" in problem:
        return "got a tab; indent with spaces"
    context = f", {error.context}" if error.context and error.context != problem else ""
    return f"not YAML: {problem}{context}"


def _unreadable(text: str, file: str, error: ReaderError) -> Problem:
    start = text[: int(error.position)]
    line, column = start.count("\n") + 1, len(start) - (start.rfind("\n") + 1) + 1
    return Place(file, line, column).problem("", f"got the character U+{int(error.character):04X}; it is not allowed")
