"""The data table of a file. The file is read once for splits, factors and vocabulary and once for tokens.

What grows with the file lies on disk: of N rows at most a few numbers each are in memory.
"""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ablate.errors import StudyError
from ablate.workloads.sequence_file.config import Data
from ablate.workloads.sequence_file.reading import Record, read_records
from ablate.workloads.sequence_file.tokenizers import (
    Tokenizer,
    graphemes,
    load_tokenizer,
    of_bytes,
    of_characters,
    train_bpe,
)
from ablate.workloads.sequence_vae.data import BOS, EOS, PAD, SPLITS, Array
from ablate.workloads.sequence_vae.data_table import described, token_type
from ablate.workloads.sequence_vae.table_files import array_file

LEFT_OUT = len(SPLITS)
"""Stands for the split of a row that is in none."""

PART = 16384
"""Rows that are in memory at once."""

MOST_LEVELS = 10_000
MISSING_LEVEL = "(none)"


class Spool:
    """Numbers that are appended to a file, and read back memory-mapped."""

    def __init__(self, path: Path, typecode: str) -> None:
        self._path = path
        self._file = path.open("wb")
        self._buffer = array(typecode)

    def extend(self, values: Sequence[int]) -> None:
        """Append numbers."""
        self._buffer.extend(values)
        if len(self._buffer) > PART:
            self._flush()

    def read(self) -> Array:
        """All of them; nothing is appended any more."""
        self._flush()
        self._file.close()
        dtype = np.dtype(self._buffer.typecode)
        return np.memmap(self._path, dtype, "r") if self._path.stat().st_size else np.empty(0, dtype)

    def _flush(self) -> None:
        self._buffer.tofile(self._file)
        del self._buffer[:]


@dataclass
class Levels:
    """The levels of a factor, numbered as they come."""

    name: str
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, level: str) -> int:
        """The number of a level; a new one gets the next."""
        found = self.numbers.setdefault(level or MISSING_LEVEL, len(self.numbers))
        if found >= MOST_LEVELS:
            raise StudyError(f"factor {self.name} has more than {MOST_LEVELS:,} levels; a factor groups sequences")
        return found

    def order(self) -> tuple[tuple[str, ...], Array]:
        """The levels in order, and the place of each number in it."""
        names = tuple(sorted(self.numbers))
        places = np.empty(len(names), dtype=np.int64)
        places[[self.numbers[name] for name in names]] = np.arange(len(names))
        return names, places


@dataclass(frozen=True)
class Scan:
    """What the first reading found, of every row of the file.

    Attributes:
        splits: place in SPLITS, or LEFT_OUT.
        units: hash of the group, for rows that are in a split.
        texts: hash of the sequence, for the same.
        factors: number of the level, factor after factor, for the same.
        counts: of characters, in the training split.
    """

    splits: Array
    units: Array
    texts: Array
    factors: Array
    levels: tuple[Levels, ...]
    counts: Counter[str]
    empty: int
    incomplete: int


def write_table(folder: Path, data: Data) -> dict[str, Any]:
    """Write the data table of a file into an empty folder.

    Raises: StudyError for a file that cannot be read, or that leaves a split empty.
    """
    _check_content(data)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".spool-") as spool:
        scan = _scan(data, Path(spool))
        _check_scan(data, scan)
        tokenizer = _tokenizer(data, scan)
        flat, lengths, unknown = _encode(data, scan, tokenizer, Path(spool))
        order, bounds = _order(scan)
        cut = lengths < 0
        _write_tokens(folder, flat, np.abs(lengths), cut, order, len(tokenizer.texts))
        np.save(folder / "lengths.npy", (np.abs(lengths) + np.where(cut, 1, 2)).astype(np.int32)[order])
        np.save(folder / "units.npy", scan.units[order])
        levels = _write_factors(folder, scan, order)
        if tokenizer.save is not None:
            tokenizer.save(folder)
        facts, notes = _account(data, scan, cut, unknown, len(flat))
        return described(len(tokenizer.texts), bounds, levels, texts=tokenizer.texts, facts=facts, notes=notes)


def _check_content(data: Data) -> None:
    for path, expected in ((data.path, data.sha256), (data.tokenizer_file, data.tokenizer_sha256)):
        if path is None or expected is None:
            continue
        try:
            with Path(path).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise StudyError(f"{path} cannot be read: {error.strerror or error}") from error
        if found != expected:
            raise StudyError(f"{path} has changed since the study was planned: its SHA-256 is {found}, not {expected}")


# --- the first reading ----------------------------------------------------------------------------


def _scan(data: Data, folder: Path) -> Scan:
    """Split, hashes and levels of every row; the characters of the training split."""
    splits, units, texts = Spool(folder / "splits", "B"), Spool(folder / "units", "Q"), Spool(folder / "texts", "Q")
    factors = Spool(folder / "factors", "i")
    levels = tuple(Levels(name) for name in data.factor_names)
    counts: Counter[str] = Counter()
    empty = incomplete = 0
    for record in read_records(data):
        split, unit = _split(data, record)
        lacks = data.incomplete == "drop" and "" in record.factors
        empty += not record.text
        incomplete += bool(record.text) and lacks
        if not record.text or lacks:
            split = LEFT_OUT
        splits.extend((split,))
        if split == LEFT_OUT:
            continue
        units.extend((unit,))
        texts.extend((_hash64(b"", record.text, record, data),))
        factors.extend([level.number(value) for level, value in zip(levels, record.factors, strict=True)])
        if split == 0 and data.tokenizer == "characters":
            counts.update(graphemes(record.text))
    kept = units.read()
    numbers = factors.read().reshape(len(kept), len(levels))
    return Scan(splits.read(), kept, texts.read(), numbers, levels, counts, empty, incomplete)


def _split(data: Data, record: Record) -> tuple[int, int]:
    """Place of the row's split in SPLITS, or LEFT_OUT, and the hash that decides it."""
    unit = _hash64(b"split/%d/" % data.split_seed, record.group, record, data)
    if data.share < 1 and _hash64(b"share/%d/" % data.seed, record.group, record, data) >= data.share * 2**64:
        return LEFT_OUT, unit
    place = unit / 2**64
    if place < data.report_share:
        return SPLITS.index("report"), unit
    if place < data.report_share + data.select_share:
        return SPLITS.index("select"), unit
    return SPLITS.index("train"), unit


def _hash64(prefix: bytes, text: str, record: Record, data: Data) -> int:
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise StudyError(f"{data.path}:{record.place}: half of a surrogate pair; allowed: whole characters") from None
    return int.from_bytes(hashlib.blake2b(prefix + content, digest_size=8).digest(), "little")


def _check_scan(data: Data, scan: Scan) -> None:
    """See that there is something in each split, and that factors are factors."""
    rows = len(scan.units)
    if rows == 0:
        raise StudyError(f"{data.path} holds no sequence" + _left_out(scan))
    found = np.bincount(scan.splits, minlength=LEFT_OUT)
    for place, name in enumerate(SPLITS):
        if not found[place]:
            distinct, what = len(np.unique(scan.units)), "sequences" if data.group is None else "groups"
            raise StudyError(
                f"{data.path}: no sequence is in the split {name}: {rows:,} sequences, {distinct:,} distinct {what}"
                f"{_left_out(scan)}; allowed: more of them, or other data.select_share, data.report_share, "
                "data.split_seed"
            )
    for level in scan.levels:
        if len(level.numbers) * 2 > rows:
            raise StudyError(
                f"{data.path}: factor {level.name} has {len(level.numbers):,} levels over {rows:,} sequences; a factor "
                "groups sequences: at most one level for two of them"
            )


def _left_out(scan: Scan) -> str:
    parts = [
        text
        for count, text in (
            (scan.empty, f"{scan.empty:,} empty ones"),
            (scan.incomplete, f"{scan.incomplete:,} that lack a factor"),
        )
        if count
    ]
    return f"; left out were {' and '.join(parts)}" if parts else ""


def _kept(data: Data, splits: Array) -> Iterator[tuple[int, Record]]:
    """The rows that are in a split, with its place in SPLITS."""
    for split, record in zip(splits, read_records(data), strict=True):
        if split != LEFT_OUT:
            yield split, record


# --- the second reading ---------------------------------------------------------------------------


def _tokenizer(data: Data, scan: Scan) -> Tokenizer:
    match data.tokenizer:
        case "bytes":
            return of_bytes()
        case "characters":
            return of_characters(scan.counts, data.vocabulary_size)
        case "bpe":
            training = (record.text for split, record in _kept(data, scan.splits) if split == 0)
            return train_bpe(training, data.vocabulary_size)
        case "file":
            return load_tokenizer(Path(str(data.tokenizer_file)))


def _encode(data: Data, scan: Scan, tokenizer: Tokenizer, folder: Path) -> tuple[Array, Array, int]:
    """The tokens of every row one after another, how many each has (negative where it was cut), the unknown ones."""
    flat, lengths, unknown = Spool(folder / "flat", "i"), Spool(folder / "lengths", "i"), 0
    texts = (record.text for _, record in _kept(data, scan.splits))
    while batch := list(islice(texts, PART)):
        for ids in tokenizer.encode(batch, data.max_tokens):
            cut = len(ids) > data.max_tokens
            ids = ids[: data.max_tokens]
            flat.extend(ids)
            lengths.extend((-len(ids) if cut else len(ids),))
            if tokenizer.unknown is not None:
                unknown += ids.count(tokenizer.unknown)
    return flat.read(), lengths.read(), unknown


# --- the table ------------------------------------------------------------------------------------


def _order(scan: Scan) -> tuple[Array, dict[str, tuple[int, int]]]:
    """The rows split by split, those of select and report by hash, and each split's bounds."""
    splits = scan.splits[scan.splits != LEFT_OUT]
    parts, bounds, start = [], {}, 0
    for place, name in enumerate(SPLITS):
        rows = np.flatnonzero(splits == place)
        parts.append(rows if name == "train" else rows[np.argsort(scan.texts[rows], kind="stable")])
        bounds[name] = (start, start + len(rows))
        start += len(rows)
    return np.concatenate(parts), bounds


def _write_tokens(folder: Path, flat: Array, lengths: Array, cut: Array, order: Array, vocabulary: int) -> None:
    """Each row as BOS, its tokens, EOS unless it was cut, PAD."""
    dtype = token_type(vocabulary)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    longest = int(lengths.max())
    place = np.arange(longest)
    with array_file(folder / "tokens.npy", (len(order), longest + 2), dtype) as file:
        for first in range(0, len(order), PART):
            rows = order[first : first + PART]
            length = lengths[rows, None]
            tokens = np.full((len(rows), longest + 2), PAD, dtype=dtype)
            tokens[:, 0] = BOS
            inside = place < length
            tokens[:, 1:-1][inside] = flat[(starts[rows, None] + place)[inside]]
            ended = np.flatnonzero(~cut[rows])
            tokens[ended, length[ended, 0] + 1] = EOS
            file.write(tokens.tobytes())


def _write_factors(folder: Path, scan: Scan, order: Array) -> dict[str, tuple[str, ...]]:
    """Levels in alphabetical order. Returns: the levels of each factor."""
    columns, levels = [], {}
    for place, level in enumerate(scan.levels):
        levels[level.name], places = level.order()
        columns.append(places[scan.factors[:, place][order]])
    np.save(folder / "factors.npy", np.stack(columns, axis=1) if columns else np.empty((len(order), 0), dtype=np.int64))
    return levels


def _account(data: Data, scan: Scan, cut: Array, unknown: int, tokens: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What was done to the file, as numbers and as sentences."""
    rows = len(scan.units)
    distinct = len(np.unique(scan.texts))
    shared = _in_two_splits(scan) if data.group is not None else 0
    facts = {
        "sequences": rows,
        "empty_sequences": scan.empty,
        "incomplete_sequences": scan.incomplete,
        "repeated_sequences": rows - distinct,
        "sequences_in_two_splits": shared,
        "cut_sequences": int(cut.sum()),
        "unknown_tokens": unknown,
    }
    sentences = (
        (scan.empty, f"{scan.empty:,} empty sequences are left out"),
        (scan.incomplete, f"{scan.incomplete:,} sequences that lack a factor are left out"),
        (rows - distinct, f"{rows - distinct:,} of {rows:,} sequences repeat another one"),
        (shared, f"{shared:,} distinct sequences stand in more than one split, as the split is by group"),
        (facts["cut_sequences"], f"{facts['cut_sequences']:,} of {rows:,} sequences are longer than data.max_tokens "
         f"({data.max_tokens}) and are cut"),
        (unknown, f"{unknown:,} of {tokens:,} tokens are not in the vocabulary"),
    )  # fmt: skip
    return facts, tuple(f"{Path(data.path).name}: {sentence}" for count, sentence in sentences if count)


def _in_two_splits(scan: Scan) -> int:
    """Distinct sequences that are in more than one split."""
    splits = scan.splits[scan.splits != LEFT_OUT].astype(np.uint64)
    both = np.unique((scan.texts & ~np.uint64(3)) | splits)
    hashes = both & ~np.uint64(3)
    return len(np.unique(hashes[1:][hashes[1:] == hashes[:-1]]))
