"""The table of sequences: made once, memory-mapped by all that need it, whatever reference scores it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.workloads.sequence_vae.data import SPLITS, Array, SequenceData, target_mask
from ablate.workloads.sequence_vae.table_files import make_whole, read_array, read_meta

LIKELIHOODS = ("optimal_nll", "factor_nll")
SMALL = np.iinfo(np.int16).max
"""The largest token that two bytes hold."""

Write = Callable[[Path], Mapping[str, Any]]
"""Writes the arrays of a data table into an empty folder; returns its `meta.json` as `described` makes it."""


@dataclass(frozen=True)
class DataTable:
    """N rows, split by split: within select and report they stand in hash order.

    Attributes:
        sha256: of the tokens.
        sequences: the rows, memory-mapped.
        mask: [N, L] bool, true where there is a target.
        bounds: first row of each split, and the row after its last.
        levels: what the integers of a factor stand for, by factor; empty where they stand for themselves.
        texts: what each token stands for in a reader's eyes; empty where tokens are mere numbers.
        facts: counts that a reader wants of how it was made.
        notes: sentences of the same.
    """

    sha256: str
    sequences: SequenceData
    mask: Array
    bounds: dict[str, tuple[int, int]]
    levels: dict[str, tuple[str, ...]]
    texts: tuple[str, ...]
    facts: dict[str, Any]
    notes: tuple[str, ...]


def prepare_data(key: str, write: Write, shared_dir: Path) -> tuple[str, ...]:
    """Make the data table of that key unless it is there and whole. Returns: warnings."""
    return make_whole(shared_dir / key, "data table", write)


def open_data(key: str, shared_dir: Path) -> DataTable:
    """The data table of that key, memory-mapped."""
    folder = shared_dir / key
    meta = read_meta(folder)
    factors = read_array(folder, "factors")
    known = [name for name in LIKELIHOODS if f"{name}.npy" in meta["files"]]
    sequences = SequenceData(
        tokens=read_array(folder, "tokens"),
        lengths=read_array(folder, "lengths"),
        splits={name: np.arange(*span) for name, span in meta["splits"].items()},
        vocabulary=meta["vocabulary"],
        factors={name: factors[:, place] for place, name in enumerate(meta["factors"])},
        units=read_array(folder, "units"),
        **{name: read_array(folder, name) for name in known},
    )
    return DataTable(
        sha256=meta["files"]["tokens.npy"]["sha256"],
        sequences=sequences,
        mask=read_array(folder, "mask"),
        bounds={name: (start, stop) for name, (start, stop) in meta["splits"].items()},
        levels={name: tuple(levels) for name, levels in meta["levels"].items()},
        texts=tuple(meta["texts"]),
        facts=meta["facts"],
        notes=tuple(meta["notes"]),
    )


def described(
    vocabulary: int,
    bounds: Mapping[str, tuple[int, int]],
    factors: Mapping[str, tuple[str, ...]],
    *,
    texts: tuple[str, ...] = (),
    facts: Mapping[str, Any] | None = None,
    notes: tuple[str, ...] = (),
) -> dict[str, Any]:
    """What `meta.json` of a data table says.

    Args:
        factors: names of the factors in the order of their columns, each with its levels or ().
    """
    return {
        "vocabulary": vocabulary,
        "splits": dict(bounds),
        "factors": list(factors),
        "levels": {name: levels for name, levels in factors.items() if levels},
        "texts": texts,
        "facts": dict(facts or {}),
        "notes": notes,
    }


def write_sequences(folder: Path, data: SequenceData) -> dict[str, Any]:
    """Write sequences that are in memory, in table order."""
    order, bounds = _table_order(data)
    factors = [np.asarray(values, dtype=np.int64)[order] for values in data.factors.values()]
    tokens = data.tokens[order]
    arrays = {
        "tokens": tokens.astype(token_type(data.vocabulary)),
        "lengths": data.lengths[order].astype(np.int32),
        "mask": target_mask(data.lengths[order], tokens.shape[1] - 1),
        "factors": np.stack(factors, axis=1) if factors else np.empty((len(order), 0), dtype=np.int64),
        "units": row_hashes(tokens) if data.units is None else data.units[order],
    }
    arrays |= {name: values[order] for name in LIKELIHOODS if (values := getattr(data, name)) is not None}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return described(data.vocabulary, bounds, dict.fromkeys(data.factors, ()))


def token_type(vocabulary: int) -> type[np.int16] | type[np.int32]:
    """The smallest of two integer types that hold the tokens."""
    return np.int16 if vocabulary <= SMALL else np.int32


def row_hashes(tokens: Array, rows: Array | None = None) -> NDArray[np.uint64]:
    """A hash of each row's tokens, with its number where the rows are given."""
    digests = (
        hashlib.blake2b((b"" if rows is None else b"%d" % rows[place]) + row.astype("<i8").tobytes(), digest_size=8)
        for place, row in enumerate(tokens)
    )
    return np.frombuffer(b"".join(digest.digest() for digest in digests), dtype="<u8")


def _table_order(data: SequenceData) -> tuple[Array, dict[str, tuple[int, int]]]:
    """The rows split by split, those of select and report by hash, and each split's bounds."""
    parts, bounds, start = [], {}, 0
    for name in SPLITS:
        rows = np.asarray(data.splits[name])
        part = rows if name == "train" else rows[np.argsort(row_hashes(data.tokens[rows], rows), kind="stable")]
        parts.append(part)
        bounds[name] = (start, start + len(part))
        start += len(part)
    return np.concatenate(parts), bounds
