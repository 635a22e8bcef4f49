"""Sequences of a file, one after another: nothing but the row at hand is in memory.

Every error names the file, the row and what is allowed.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import json
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from ablate.errors import StudyError
from ablate.workloads.sequence_file.config import FORMATS, Column, Data

LONGEST_LINE = 64 * 2**20
"""Bytes; a longer line is taken for a mistake, such as a quote that is never closed."""

BATCH = 4096
"""Rows of a parquet file that are read at once."""

UTF8_BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


class Record(NamedTuple):
    """One row.

    Attributes:
        place: its line, or its row in a parquet file, from 1.
        text: the sequence, in NFC; may be empty.
        group: what must not be in two splits.
        factors: a level for each of `Data.factor_names`; "" where the row has none.
    """

    place: int
    text: str
    group: str
    factors: tuple[str, ...]


Rows = Iterator[tuple[int, Sequence[str]]]
"""Place and cells of each row."""


def read_records(data: Data) -> Iterator[Record]:
    """The rows of the file.

    Raises: StudyError for a file that cannot be read as its format, with the place and what is allowed.
    """
    path = Path(data.path)
    try:
        match data.kind:
            case "txt":
                yield from _records(data, ["text"], _text_rows(path))
            case "tsv":
                yield from _with_header(data, _tab_rows(path))
            case "csv":
                yield from _with_header(data, _comma_rows(path))
            case "jsonl":
                yield from _records(data, names := _json_names(data), _json_rows(path, names))
            case "parquet":
                yield from _parquet_records(data, path)
            case _:
                endings = ", ".join(FORMATS)
                raise StudyError(f"{path}: its ending is none of {endings}, each also with .gz; say data.format")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise StudyError(f"{path} cannot be read: {reason}") from error


# --- rows of each format --------------------------------------------------------------------------


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line with its ending, as text."""
    with _opened(path) as file:
        number = 0
        while raw := file.readline(LONGEST_LINE + 1):
            number += 1
            if number == 1:
                if raw.startswith(UTF16_BOMS):
                    _refuse(path, 1, "the file is UTF-16; allowed: UTF-8; convert it: iconv -f utf-16 -t utf-8")
                raw = raw.removeprefix(UTF8_BOM)
            if len(raw) > LONGEST_LINE:
                _refuse(path, number, f"a line of more than {LONGEST_LINE // 2**20} MiB")
            if b"\0" in raw:
                _refuse(path, number, f"a NUL byte at byte {raw.index(0) + 1} of the line; allowed: text in UTF-8")
            try:
                yield number, raw.decode()
            except UnicodeDecodeError as error:
                _refuse(
                    path,
                    number,
                    f"not UTF-8: byte 0x{raw[error.start]:02x} at byte {error.start + 1} of the line; "
                    "convert it: iconv -f latin1 -t utf-8, or whatever it is in",
                )
        if number == 0:
            raise StudyError(f"{path} is empty")


def _opened(path: Path) -> BinaryIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def _text_rows(path: Path) -> Rows:
    for number, line in _lines(path):
        yield number, (_bare(line),)


def _tab_rows(path: Path) -> Rows:
    for number, line in _lines(path):
        if line := _bare(line):
            yield number, line.split("\t")


def _comma_rows(path: Path) -> Rows:
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader((line for _, line in _lines(path)), strict=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            _refuse(path, reader.line_num, f"{error}; is a quote not closed?")
        if cells:
            yield reader.line_num, cells


def _json_rows(path: Path, names: Sequence[str]) -> Rows:
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            found = json.loads(line.strip())
        except (ValueError, RecursionError) as error:
            _refuse(path, number, f"not JSON: {error}")
        if not isinstance(found, dict):
            _refuse(path, number, f"got {type(found).__name__}; allowed: an object on each line")
        for name in names:
            if name not in found:
                _refuse(path, number, f"no key {name!r}{_near(name, list(found))}")
        yield number, [_cell(found[name]) for name in names]


def _parquet_records(data: Data, path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            columns = file.schema_arrow.names
            wanted = [columns[place] for place in _Columns(data, columns).places]
            yield from _records(data, columns, _parquet_rows(file, columns, wanted))
    except pa.ArrowException as error:
        raise StudyError(f"{path} cannot be read as parquet: {str(error).splitlines()[0]}") from error


def _parquet_rows(file: Any, columns: Sequence[str], wanted: Sequence[str]) -> Rows:
    row = 0
    for batch in file.iter_batches(batch_size=BATCH, columns=list(dict.fromkeys(wanted))):
        read = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        for place in range(batch.num_rows):
            row += 1
            yield row, [_cell(read[name][place]) if name in read else "" for name in columns]


# --- from cells to records ------------------------------------------------------------------------


class _Columns:
    """Where the cells of a record stand; `places` are those of text, group, factors and tags."""

    def __init__(self, data: Data, names: Sequence[str]) -> None:
        self._path = Path(data.path)
        self._names = list(names)
        one = data.kind == "txt"
        self.text = 0 if one else self._place("data.text", data.text)
        self.group = None if data.group is None else self._place("data.group", data.group)
        self.factors = [self._place(f"data.factors.{name}", column) for name, column in data.factors.items()]
        self.tags = None if data.features is None else self._place("data.features.column", data.features.column)
        self.places = [place for place in (self.text, self.group, *self.factors, self.tags) if place is not None]

    def _place(self, key: str, column: Column) -> int:
        if isinstance(column, int):
            if column > len(self._names):
                raise StudyError(f"{self._path}: {key}: got column {column}; it has {len(self._names)}")
            return column - 1
        found = [place for place, name in enumerate(self._names) if name == column]
        if len(found) != 1:
            problem = f"no column {column!r}{_near(column, self._names)}" if not found else f"two columns {column!r}"
            raise StudyError(f"{self._path}: {key}: {problem}; columns: {', '.join(map(repr, self._names))}")
        return found[0]


def _with_header(data: Data, rows: Rows) -> Iterator[Record]:
    first = next(rows, None)
    if first is None:
        raise StudyError(f"{data.path} holds no row")
    number, cells = first
    if data.header:
        return _records(data, cells, rows)
    return _records(data, [str(place + 1) for place in range(len(cells))], _chained(number, cells, rows))


def _chained(number: int, cells: Sequence[str], rows: Rows) -> Rows:
    yield number, cells
    yield from rows


def _records(data: Data, names: Sequence[str], rows: Rows) -> Iterator[Record]:
    columns = _Columns(data, names)
    path, width = Path(data.path), len(names)
    for place, cells in rows:
        if len(cells) != width:
            _refuse(path, place, f"{len(cells)} columns; the first row has {width}")
        text = _normal(cells[columns.text])
        if "\0" in text:
            _refuse(path, place, "a NUL character in the sequence")
        group = text
        if columns.group is not None and not (group := _normal(cells[columns.group])):
            _refuse(path, place, "the group column is empty")
        factors = tuple(cells[column].strip() for column in columns.factors)
        if data.features is not None and columns.tags is not None:
            factors += _levels(data, path, place, cells[columns.tags])
        yield Record(place, text, group, factors)


def _levels(data: Data, path: Path, place: int, tags: str) -> tuple[str, ...]:
    assert data.features is not None
    present = {tag.strip() for tag in tags.split(data.features.split)}
    found = []
    for name, levels in data.features.factors.items():
        among = [level for level in levels if level in present]
        if len(among) > 1:
            _refuse(path, place, f"{tags!r} has {' and '.join(among)}; factor {name} takes one of them")
        found.append(among[0] if among else "")
    return tuple(found)


def _json_names(data: Data) -> list[str]:
    tags = [] if data.features is None else [data.features.column]
    wanted = [data.text, *([] if data.group is None else [data.group]), *data.factors.values(), *tags]
    for column in wanted:
        if isinstance(column, int):
            raise StudyError(f"{data.path}: got column {column}; allowed: a key by its name, as lines have no order")
    return list(dict.fromkeys(str(column) for column in wanted))


def _cell(value: Any) -> str:
    """A value of a typed file as text; "" where there is none."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def _normal(text: str) -> str:
    """Canonically equivalent texts are one (Unicode's NFC)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _bare(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _refuse(path: Path, place: int, problem: str) -> NoReturn:
    raise StudyError(f"{path}:{place}: {problem}")
