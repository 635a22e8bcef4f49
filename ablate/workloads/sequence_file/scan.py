"""The first reading of a file: the split of every row, its factors, and the characters of the training split."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ablate.errors import StudyError
from ablate.workloads.sequence_file.config import Data
from ablate.workloads.sequence_file.reading import Record, read_records
from ablate.workloads.sequence_file.spool import Spool
from ablate.workloads.sequence_file.tokenizers import graphemes
from ablate.workloads.sequence_vae.data import SPLITS, Array

LEFT_OUT = len(SPLITS)
"""Stands for the split of a row that is in none."""

MOST_LEVELS = 10_000
MISSING_LEVEL = "(none)"


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


def scan_file(data: Data, folder: Path) -> Scan:
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


def check_scan(data: Data, scan: Scan) -> None:
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


def kept_records(data: Data, splits: Array) -> Iterator[tuple[int, Record]]:
    """The rows that are in a split, with its place in SPLITS."""
    for split, record in zip(splits, read_records(data), strict=True):
        if split != LEFT_OUT:
            yield split, record
