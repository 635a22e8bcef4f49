"""The table that all trials of a study share: sequences, splits and the surprisal of every token.

It is a folder named by a hash of all that went in. A data table lies beside it, shared with every other reference over
the same data. A trial opens both memory-mapped and never makes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ablate.errors import StudyError
from ablate.workloads.contract import Prepared
from ablate.workloads.sequence_vae.config import Reference
from ablate.workloads.sequence_vae.data import Array, SequenceData
from ablate.workloads.sequence_vae.data_table import DataTable, Write, open_data, prepare_data, row_hashes
from ablate.workloads.sequence_vae.reference import one_thread, surprisals, train_reference
from ablate.workloads.sequence_vae.table_files import array_file, fault, make_whole, read_array, read_meta
from losses import ReconstructionLossConfig, prepare_reference, zfree_reference_scale

PART = 65536
"""Rows that are in memory at once where facts of the whole table are made."""


@dataclass(frozen=True)
class ReferenceTable:
    """N rows, split by split: `splits` are slices. Within select and report rows stand in hash order.

    Attributes:
        sha256: of the surprisals.
        tokens: [N, T] integers.
        lengths: [N] int32 tokens of each row without the padding.
        mask: [N, L] bool, true where there is a target.
        surprisal: [N, L] float32 nats under the frozen reference, 0 where there is no target.
        factors: [N, F] int64, one column for each of `factor_names`.
        optimal_nll, factor_nll: [N] nats as SequenceData has them, None where not known.
        facts: the numbers of `Prepared.facts`.
        levels, texts: as DataTable has them.
    """

    sha256: str
    vocabulary: int
    splits: dict[str, slice]
    factor_names: tuple[str, ...]
    tokens: Array
    lengths: Array
    mask: Array
    surprisal: Array
    factors: Array
    optimal_nll: Array | None
    factor_nll: Array | None
    facts: dict[str, Any]
    levels: dict[str, tuple[str, ...]]
    texts: tuple[str, ...]


def prepare_table(key: str, data: str, write: Write, settings: Reference, shared_dir: Path) -> Prepared:
    """Make the reference table of that key, and the data table of the key `data`, unless they are there and whole.

    Args:
        write: writes the data table; called only where that has to be made.
    """
    with one_thread():
        warnings = prepare_data(data, write, shared_dir)
        table = open_data(data, shared_dir)
        described = {"data": data, "data_sha256": table.sha256}
        warnings += make_whole(
            shared_dir / key,
            "reference table",
            lambda folder: described | {"facts": _write(folder, table, settings)},
            expected=described,
        )
    meta = read_meta(shared_dir / key)
    return Prepared(key, meta["files"]["surprisal.npy"]["sha256"], meta["facts"], (*warnings, *table.notes))


def is_prepared(key: str, shared_dir: Path) -> bool:
    """Whether the tables of that key are there with files of the right sizes."""
    return _problem(key, shared_dir) is None


def open_table(key: str, shared_dir: Path) -> ReferenceTable:
    """The table of that key, memory-mapped.

    Raises: StudyError where it is missing or a file of it has another size.
    """
    if (problem := _problem(key, shared_dir)) is not None:
        raise StudyError(f"{problem}; `ablate run` makes it before the first trial")
    meta = read_meta(shared_dir / key)
    data = open_data(meta["data"], shared_dir)
    rows = data.sequences
    return ReferenceTable(
        sha256=meta["files"]["surprisal.npy"]["sha256"],
        vocabulary=rows.vocabulary,
        splits={name: slice(*bounds) for name, bounds in data.bounds.items()},
        factor_names=tuple(rows.factors),
        tokens=rows.tokens,
        lengths=rows.lengths,
        mask=data.mask,
        surprisal=read_array(shared_dir / key, "surprisal"),
        factors=read_array(shared_dir / meta["data"], "factors"),
        optimal_nll=rows.optimal_nll,
        factor_nll=rows.factor_nll,
        facts=meta["facts"],
        levels=data.levels,
        texts=data.texts,
    )


def _problem(key: str, shared_dir: Path) -> str | None:
    """What is missing or of another size, or None."""
    for what, name in (("reference table", lambda: key), ("data table", lambda: read_meta(shared_dir / key)["data"])):
        folder = shared_dir / name()
        problem = fault(folder, checksums=False) if folder.exists() else "it is not there"
        if problem is not None:
            return f"{what} {folder}: {problem}"
    return None


def _write(folder: Path, data: DataTable, settings: Reference) -> dict[str, Any]:
    """Train the reference, score every row, and write the surprisals into an empty folder. Returns: the facts."""
    trained = train_reference(data.sequences, settings)
    rows, places = data.sequences.tokens.shape
    with array_file(folder / "surprisal.npy", (rows, places - 1), np.float32) as file:
        for part in surprisals(trained.decoder, data.sequences, np.arange(rows)):
            file.write(part.tobytes())
    if settings.cross_fit:
        _cross_fit(folder / "surprisal.npy", data.sequences, settings)
    return {
        "reference_steps": trained.steps,
        "reference_best_step": trained.best_step,
        **data.facts,
        **_facts(data, read_array(folder, "surprisal")),
    }


def _cross_fit(path: Path, data: SequenceData, settings: Reference) -> None:
    """Write over the training split's surprisals those of references that have not seen them.

    Rows of one unit (a group, or equal sequences) are in one fold, as they are in one split.

    Raises: StudyError where there is only one fold.
    """
    train = data.splits["train"]
    units = row_hashes(data.tokens[train]) if data.units is None else np.asarray(data.units[train])
    folds = units % settings.cross_fit
    surprisal = np.load(path, mmap_mode="r+")
    for fold in np.unique(folds):
        inside, outside = train[folds == fold], train[folds != fold]
        if not len(outside):
            raise StudyError(f"reference.cross_fit: {settings.cross_fit} folds of one group leave nothing to train on")
        trained = train_reference(replace(data, splits=data.splits | {"train": outside}), settings)
        first = 0
        for part in surprisals(trained.decoder, data, inside):
            surprisal[inside[first : first + len(part)]] = part
            first += len(part)
    surprisal.flush()


def _facts(data: DataTable, surprisal: Array) -> dict[str, Any]:
    """Per token and split the NLL of the reference, of the true distribution and given the factors; c; sizes."""
    facts: dict[str, Any] = {}
    rows = data.sequences
    for name, (start, stop) in data.bounds.items():
        tokens = int((rows.lengths[start:stop].astype(np.int64) - 1).sum())
        facts[f"{name}_examples"], facts[f"{name}_tokens"] = stop - start, tokens
        for measure, values in (
            ("reference_nll_per_token", surprisal),
            ("bayes_nll_per_token", rows.optimal_nll),
            ("factor_nll_per_token", rows.factor_nll),
        ):
            if tokens and values is not None:
                total = sum(float(values[part].sum(dtype=np.float64)) for part in _parts(start, stop))
                facts[f"{name}_{measure}"] = total / tokens
    for mode in ("token_sum", "token_mean"):
        facts[f"zfree_reference_scale_{mode}"] = _scale(
            data, surprisal, ReconstructionLossConfig(token_aggregation=mode)
        )
    return facts


def _scale(data: DataTable, surprisal: Array, config: ReconstructionLossConfig) -> float:
    """c, the mean over the training split of S_b; every example of a table has a target."""
    scales, sizes = [], []
    for part in _parts(*data.bounds["train"]):
        mask = torch.from_numpy(data.mask[part])
        scales.append(zfree_reference_scale(prepare_reference(torch.from_numpy(surprisal[part]), mask, config)))
        sizes.append(len(mask))
    return scales[0] if len(scales) == 1 else float(np.average(scales, weights=sizes))


def _parts(start: int, stop: int) -> Iterator[slice]:
    """The rows from start to stop, some at a time."""
    return (slice(first, min(first + PART, stop)) for first in range(start, stop, PART))
