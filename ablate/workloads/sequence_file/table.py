"""The data table of a file. The file is read once for splits, factors and vocabulary and once for tokens.

What grows with the file lies on disk: of N rows at most a few numbers each are in memory.
"""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ablate.errors import StudyError
from ablate.workloads.sequence_file.account import Encoded, account
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
from ablate.workloads.sequence_vae.table_files import array_file

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
        encoded = _encode(data, scan, tokenizer, Path(spool))
        order, bounds = _order(scan)
        levels = _write_rows(folder, scan, encoded, order, token_type(len(tokenizer.texts)))
        if tokenizer.save is not None:
            tokenizer.save(folder)
        facts, notes = account(data, scan, encoded)
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


def _encode(data: Data, scan: Scan, tokenizer: Tokenizer, folder: Path) -> Encoded:
    code = np.dtype(token_type(len(tokenizer.texts))).char
    tokens, lengths, unknown = Spool(folder / "tokens", code), Spool(folder / "lengths", "i"), 0
    texts = (record.text for _, record in kept_records(data, scan.splits))
    while batch := list(islice(texts, PART)):
        for ids in tokenizer.encode(batch, data.max_tokens):
            cut = len(ids) > data.max_tokens
            ids = ids[: data.max_tokens]
            tokens.extend(ids)
            lengths.extend((-len(ids) if cut else len(ids),))
            if tokenizer.unknown is not None:
                unknown += ids.count(tokenizer.unknown)
    return Encoded(tokens.read(), lengths.read(), unknown)


# --- the table ------------------------------------------------------------------------------------


def _order(scan: Scan) -> tuple[Array, dict[str, tuple[int, int]]]:
    """The rows split by split, those of select and report by hash, and each split's bounds."""
    splits = scan.splits[scan.splits != LEFT_OUT]
    order = np.argsort(splits, kind="stable")
    bounds, start = {}, 0
    for name, count in zip(SPLITS, np.bincount(splits, minlength=len(SPLITS)).tolist(), strict=True):
        rows = order[start : start + count]
        if name != "train":
            rows[:] = rows[np.argsort(scan.texts[rows], kind="stable")]
        bounds[name] = (start, start + count)
        start += count
    return order, bounds


def _write_rows(
    folder: Path, scan: Scan, encoded: Encoded, order: Array, dtype: type[np.integer]
) -> dict[str, tuple[str, ...]]:
    """Write every array of the table, part by part. Returns: the levels of each factor, in alphabetical order."""
    rows, longest = len(order), int(np.abs(encoded.lengths).max())
    starts = np.cumsum(np.abs(encoded.lengths), dtype=np.int64)
    starts -= np.abs(encoded.lengths)
    ordered = [level.order() for level in scan.levels]
    shapes: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
        "tokens": ((rows, longest + 2), dtype),
        "lengths": ((rows,), np.int32),
        "mask": ((rows, longest + 1), np.bool_),
        "units": ((rows,), np.uint64),
        "factors": ((rows, len(ordered)), np.int64),
    }
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(array_file(folder / f"{name}.npy", shape, kind))
            for name, (shape, kind) in shapes.items()
        }
        for first in range(0, rows, PART):
            part = order[first : first + PART]
            tokens, lengths = _padded(encoded, starts, part, longest, dtype)
            files["tokens"].write(tokens.tobytes())
            files["lengths"].write(lengths.tobytes())
            files["mask"].write(target_mask(lengths, longest + 1).tobytes())
            files["units"].write(scan.units[part].tobytes())
            numbers = scan.factors[part].T
            columns = [places[column] for (_, places), column in zip(ordered, numbers, strict=True)]
            files["factors"].write(np.stack(columns, axis=1).tobytes() if columns else b"")
    return {level.name: names for level, (names, _) in zip(scan.levels, ordered, strict=True)}


def _padded(encoded: Encoded, starts: Array, rows: Array, longest: int, dtype: type[np.integer]) -> tuple[Array, Array]:
    """Each row as BOS, its tokens, EOS unless it was cut, PAD; and how many tokens that is without PAD."""
    signed = encoded.lengths[rows]
    length, place = np.abs(signed), np.arange(longest)
    tokens = np.full((len(rows), longest + 2), PAD, dtype=dtype)
    tokens[:, 0] = BOS
    inside = place < length[:, None]
    tokens[:, 1:-1][inside] = encoded.tokens[(starts[rows, None] + place)[inside]]
    whole = np.flatnonzero(signed >= 0)
    tokens[whole, length[whole] + 1] = EOS
    return tokens, (length + 1 + (signed >= 0)).astype(np.int32)
