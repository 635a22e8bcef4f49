"""The data table of a file. The file is read once for splits, factors and vocabulary and once for tokens.

What grows with the file lies on disk: of N rows at most a few numbers each are in memory.
"""

from __future__ import annotations

import hashlib
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ablate.errors import StudyError
from ablate.workloads.sequence_file.config import Data
from ablate.workloads.sequence_file.scan import LEFT_OUT, Scan, check_scan, kept_records, scan_file
from ablate.workloads.sequence_file.spool import Spool
from ablate.workloads.sequence_file.tokenizers import (
    Tokenizer,
    load_tokenizer,
    of_bytes,
    of_characters,
    train_bpe,
)
from ablate.workloads.sequence_vae.data import BOS, EOS, PAD, SPLITS, Array, target_mask
from ablate.workloads.sequence_vae.data_table import described, token_type
from ablate.workloads.sequence_vae.table_files import array_file, read_array

PART = 16384
"""Rows that are in memory at once."""


def write_table(folder: Path, data: Data) -> dict[str, Any]:
    """Write the data table of a file into an empty folder.

    Raises: StudyError for a file that cannot be read, or that leaves a split empty.
    """
    _check_content(data)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".spool-") as spool:
        scan = scan_file(data, Path(spool))
        check_scan(data, scan)
        tokenizer = _tokenizer(data, scan)
        flat, lengths, unknown = _encode(data, scan, tokenizer, Path(spool))
        order, bounds = _order(scan)
        cut = lengths < 0
        _write_tokens(folder, flat, np.abs(lengths), cut, order, len(tokenizer.texts))
        np.save(folder / "lengths.npy", (np.abs(lengths) + np.where(cut, 1, 2)).astype(np.int32)[order])
        np.save(folder / "units.npy", scan.units[order])
        _write_mask(folder)
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


def _tokenizer(data: Data, scan: Scan) -> Tokenizer:
    match data.tokenizer:
        case "bytes":
            return of_bytes()
        case "characters":
            return of_characters(scan.counts, data.vocabulary_size)
        case "bpe":
            training = (record.text for split, record in kept_records(data, scan.splits) if split == 0)
            return train_bpe(training, data.vocabulary_size)
        case "file":
            return load_tokenizer(Path(str(data.tokenizer_file)))


def _encode(data: Data, scan: Scan, tokenizer: Tokenizer, folder: Path) -> tuple[Array, Array, int]:
    """The tokens of every row one after another, how many each has (negative where it was cut), the unknown ones."""
    code = np.dtype(token_type(len(tokenizer.texts))).char
    flat, lengths, unknown = Spool(folder / "flat", code), Spool(folder / "lengths", "i"), 0
    texts = (record.text for _, record in kept_records(data, scan.splits))
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


def _write_mask(folder: Path) -> None:
    lengths, positions = np.load(folder / "lengths.npy"), read_array(folder, "tokens").shape[1] - 1
    with array_file(folder / "mask.npy", (len(lengths), positions), np.bool_) as file:
        for first in range(0, len(lengths), PART):
            file.write(target_mask(lengths[first : first + PART], positions).tobytes())


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
