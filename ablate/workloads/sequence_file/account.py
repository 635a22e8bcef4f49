"""The account of what was done to a file: as numbers for the report, as sentences before the first trial."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ablate.workloads.sequence_file.config import Data
from ablate.workloads.sequence_file.scan import LEFT_OUT, Scan
from ablate.workloads.sequence_vae.data import Array


@dataclass(frozen=True)
class Encoded:
    """The tokens of every row that is in a split, in the order of the file.

    Attributes:
        tokens: one row after another.
        lengths: how many each row has; negative where it was cut.
        unknown: how many of all tokens stand for what the vocabulary lacks.
    """

    tokens: Array
    lengths: Array
    unknown: int


def account(data: Data, scan: Scan, encoded: Encoded) -> tuple[dict[str, int], tuple[str, ...]]:
    """Counts by name, and a sentence for each that is not 0."""
    rows = len(scan.units)
    cut = int(np.count_nonzero(encoded.lengths < 0))
    repeated = rows - _distinct(np.sort(scan.texts))
    shared = _in_two_splits(scan) if data.group is not None else 0
    counts = {
        "sequences": rows,
        "empty_sequences": scan.empty,
        "incomplete_sequences": scan.incomplete,
        "repeated_sequences": repeated,
        "sequences_in_two_splits": shared,
        "cut_sequences": cut,
        "unknown_tokens": encoded.unknown,
    }
    sentences = (
        (scan.empty, f"{scan.empty:,} empty sequences are left out"),
        (scan.incomplete, f"{scan.incomplete:,} sequences that lack a factor are left out"),
        (repeated, f"{repeated:,} of {rows:,} sequences repeat another one"),
        (shared, f"{shared:,} distinct sequences stand in more than one split, as the split is by group"),
        (cut, f"{cut:,} of {rows:,} sequences are longer than data.max_tokens ({data.max_tokens}) and are cut"),
        (encoded.unknown, f"{encoded.unknown:,} of {len(encoded.tokens):,} tokens are not in the vocabulary"),
    )
    return counts, tuple(f"{Path(data.path).name}: {sentence}" for count, sentence in sentences if count)


def _distinct(ordered: Array) -> int:
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def _in_two_splits(scan: Scan) -> int:
    """Distinct sequences that are in more than one split."""
    splits = scan.splits[scan.splits != LEFT_OUT].astype(np.uint64)
    both = np.unique((scan.texts & ~np.uint64(3)) | splits)
    hashes = both & ~np.uint64(3)
    return len(np.unique(hashes[1:][hashes[1:] == hashes[:-1]]))
