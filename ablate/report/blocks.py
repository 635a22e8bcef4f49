"""What a report is made of, before it becomes HTML, Markdown or LaTeX."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

Row = Mapping[Any, Any]


@dataclass(frozen=True)
class Cell:
    """One cell of a shown table.

    Attributes:
        text: what is read.
        sub: a second, smaller line.
        href: where the number comes from: an anchor of the page, or a file of the run folder.
        mark: a verdict or state that colours the cell.
        tip: shown while the pointer rests on the cell.
    """

    text: str
    sub: str = ""
    href: str = ""
    mark: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Sentence:
    """One sentence; `lead` is set in bold and coloured by `mark`."""

    text: str
    lead: str = ""
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.lead}: {self.text}" if self.lead else self.text


@dataclass(frozen=True)
class Table:
    """A table: `frame` in full precision for the csv, `head` and `rows` as read.

    Attributes:
        name: of its csv and tex file.
        fold: shown closed until asked for.
        anchor: id that other cells point to.
    """

    name: str
    title: str
    frame: pd.DataFrame
    head: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    note: str = ""
    fold: bool = False
    anchor: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure: `axes` is any Axes of it, `alt` says in words what it shows."""

    name: str
    title: str
    axes: Axes
    alt: str
    note: str = ""


@dataclass(frozen=True)
class Prose:
    """A paragraph to copy; also a tex file of its name."""

    name: str
    text: str


@dataclass(frozen=True)
class Section:
    """A heading with its sentences and what stands under it.

    Attributes:
        remarks: set apart: what a reader must not miss.
        absent: why the study has nothing to show here; such sections are gathered in one list.
    """

    key: str
    title: str
    sentences: tuple[Sentence, ...] = ()
    remarks: tuple[str, ...] = ()
    blocks: tuple[Table | Picture | Prose, ...] = field(default=())
    absent: str = ""


def file_stem(text: str) -> str:
    """A name that any file system takes, at most 80 characters; a longer one ends in a hash that tells it apart."""
    stem = re.sub(r"[^\w.=-]+", "-", text).strip(".-") or "table"
    return stem if len(stem) <= 80 else f"{stem[:71]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def make_table(
    name: str,
    title: str,
    frame: pd.DataFrame,
    columns: Mapping[str, Callable[[Row], Cell]],
    *,
    note: str = "",
    fold: bool = False,
    anchor: str = "",
    source: pd.DataFrame | None = None,
) -> Table:
    """A table that shows a column for each entry of `columns`; `source` goes to the csv where it is another frame."""
    rows = tuple(tuple(make(row) for make in columns.values()) for row in frame.to_dict("records"))
    return Table(name, title, frame if source is None else source, tuple(columns), rows, note, fold, anchor)
