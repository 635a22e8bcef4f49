"""The table that all trials of a study share: sequences, splits and the surprisal of every token.

It is a folder named by a hash of all that went in, of .npy files and a `meta.json` with their checksums. It appears
whole, by one rename, whoever else makes it at the same time; a trial opens it memory-mapped and never makes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ablate.errors import StudyError
from ablate.workloads.contract import Prepared
from ablate.workloads.sequence_vae.config import Reference
from ablate.workloads.sequence_vae.data import SPLITS, Array, SequenceData, target_mask
from ablate.workloads.sequence_vae.reference import one_thread, surprisals, train_reference
from losses import ReconstructionLossConfig, prepare_reference, zfree_reference_scale

META = "meta.json"
ARRAYS = ("tokens", "lengths", "surprisal", "factors", "optimal_nll", "factor_nll")


@dataclass(frozen=True)
class ReferenceTable:
    """N rows, split by split: `splits` are slices. Within select and report rows stand in hash order.

    Attributes:
        sha256: of the surprisals.
        tokens: [N, T] int32.
        lengths: [N] int32 tokens of each row without the padding.
        surprisal: [N, L] float32 nats under the frozen reference, 0 where there is no target.
        factors: [N, F] int64, one column for each of `factor_names`.
        optimal_nll, factor_nll: [N] nats as SequenceData has them, nan where not known.
        facts: the numbers of `Prepared.facts`.
    """

    sha256: str
    vocabulary: int
    splits: dict[str, slice]
    factor_names: tuple[str, ...]
    tokens: Array
    lengths: Array
    surprisal: Array
    factors: Array
    optimal_nll: Array
    factor_nll: Array
    facts: dict[str, Any]


def prepare_table(key: str, load: Callable[[], SequenceData], settings: Reference, shared_dir: Path) -> Prepared:
    """Make the table of that key unless it is there and whole.

    Args:
        load: gives the data; called only where the table has to be made.
    """
    folder = shared_dir / key
    warnings: tuple[str, ...] = ()
    if folder.exists():
        problem = _fault(folder)
        if problem is None:
            return _prepared(key, _meta(folder), ())
        warnings = (f"the reference table {key} is damaged ({problem}): it is made again",)
        _remove(folder)
    shared_dir.mkdir(parents=True, exist_ok=True)
    made = shared_dir / f".{key}-{uuid.uuid4().hex[:8]}"
    made.mkdir()
    try:
        with one_thread():
            _write(made, load(), settings)
        # where another process was first its table stands, made from the same content
        with contextlib.suppress(OSError):
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return _prepared(key, _meta(folder), warnings)


def is_prepared(key: str, shared_dir: Path) -> bool:
    """Whether a table of that key is there with files of the right sizes."""
    folder = shared_dir / key
    return folder.exists() and _fault(folder, checksums=False) is None


def open_table(key: str, shared_dir: Path) -> ReferenceTable:
    """The table of that key, memory-mapped.

    Raises: StudyError where it is missing or a file of it has another size.
    """
    folder = shared_dir / key
    problem = _fault(folder, checksums=False) if folder.exists() else "it is not there"
    if problem is not None:
        raise StudyError(f"reference table {folder}: {problem}; `ablate run` makes it before the first trial")
    meta = _meta(folder)
    # mode c: PyTorch wants writable memory; what is written would stay private to the process
    arrays: dict[str, Array] = {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in ARRAYS}
    return ReferenceTable(
        sha256=meta["files"]["surprisal.npy"]["sha256"],
        vocabulary=meta["vocabulary"],
        splits={name: slice(*bounds) for name, bounds in meta["splits"].items()},
        factor_names=tuple(meta["factors"]),
        facts=meta["facts"],
        **arrays,
    )


def _write(folder: Path, data: SequenceData, settings: Reference) -> None:
    """Train the reference, score every row, and write the whole table into an empty folder."""
    data, bounds = _in_table_order(data)
    trained = train_reference(data, settings)
    arrays = _arrays(data, surprisals(trained.decoder, data))
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    meta = {
        "vocabulary": data.vocabulary,
        "splits": bounds,
        "factors": list(data.factors),
        "facts": {
            "reference_steps": trained.steps,
            "reference_best_step": trained.best_step,
            **_facts(arrays, bounds),
        },
        "files": {path.name: _stamp(path) for path in sorted(folder.iterdir())},
    }
    (folder / META).write_text(json.dumps(meta, indent=1))


def _arrays(data: SequenceData, surprisal: NDArray[np.float32]) -> dict[str, Array]:
    count = len(data.tokens)
    unknown = np.full(count, np.nan)
    factors = [np.asarray(values, dtype=np.int64) for values in data.factors.values()]
    return {
        "tokens": data.tokens.astype(np.int32),
        "lengths": data.lengths.astype(np.int32),
        "surprisal": surprisal,
        "factors": np.stack(factors, axis=1) if factors else np.empty((count, 0), dtype=np.int64),
        "optimal_nll": unknown if data.optimal_nll is None else data.optimal_nll,
        "factor_nll": unknown if data.factor_nll is None else data.factor_nll,
    }


def _in_table_order(data: SequenceData) -> tuple[SequenceData, dict[str, tuple[int, int]]]:
    """The data with its rows split by split, those of select and report by hash, and each split's bounds."""
    parts, bounds, start = [], {}, 0
    for name in SPLITS:
        rows = np.asarray(data.splits[name])
        part = rows if name == "train" else rows[np.argsort(_hashes(data.tokens, rows), kind="stable")]
        parts.append(part)
        bounds[name] = (start, start + len(part))
        start += len(part)
    order = np.concatenate(parts)
    return (
        SequenceData(
            tokens=data.tokens[order],
            lengths=data.lengths[order],
            splits={name: np.arange(*span) for name, span in bounds.items()},
            vocabulary=data.vocabulary,
            factors={name: values[order] for name, values in data.factors.items()},
            optimal_nll=None if data.optimal_nll is None else data.optimal_nll[order],
            factor_nll=None if data.factor_nll is None else data.factor_nll[order],
        ),
        bounds,
    )


def _hashes(tokens: Array, rows: Array) -> NDArray[np.uint64]:
    """A hash of each row's number and tokens."""
    digests = [hashlib.blake2b(b"%d" % row + tokens[row].astype("<i8").tobytes(), digest_size=8) for row in rows]
    return np.frombuffer(b"".join(digest.digest() for digest in digests), dtype="<u8")


def _facts(arrays: dict[str, Array], bounds: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Per token and split the NLL of the reference, of the true distribution and given the factors; c; sizes."""
    facts: dict[str, Any] = {}
    mask = target_mask(arrays["lengths"], arrays["surprisal"].shape[1])
    for name, (start, stop) in bounds.items():
        tokens = int(mask[start:stop].sum())
        facts[f"{name}_examples"], facts[f"{name}_tokens"] = stop - start, tokens
        for measure, values in (
            ("reference_nll_per_token", arrays["surprisal"]),
            ("bayes_nll_per_token", arrays["optimal_nll"]),
            ("factor_nll_per_token", arrays["factor_nll"]),
        ):
            total = float(values[start:stop].sum(dtype=np.float64))
            if tokens and np.isfinite(total):
                facts[f"{name}_{measure}"] = total / tokens
    train = slice(*bounds["train"])
    surprisal, active = torch.from_numpy(arrays["surprisal"][train]), torch.from_numpy(mask[train])
    for mode in ("token_sum", "token_mean"):
        reference = prepare_reference(surprisal, active, ReconstructionLossConfig(token_aggregation=mode))
        facts[f"zfree_reference_scale_{mode}"] = zfree_reference_scale(reference)
    return facts


def _fault(folder: Path, *, checksums: bool = True) -> str | None:
    """What is wrong with a table's files, or None."""
    try:
        expected = _meta(folder)["files"]
        for name in (f"{array}.npy" for array in ARRAYS):
            size = (folder / name).stat().st_size
            if size != expected[name]["bytes"]:
                return f"{name} has {size} bytes, {expected[name]['bytes']} were written"
            if checksums and _stamp(folder / name) != expected[name]:
                return f"{name} has another checksum"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _meta(folder: Path) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((folder / META).read_text())
    return meta


def _stamp(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "bytes": path.stat().st_size}


def _remove(folder: Path) -> None:
    """Take it out of the way at once, then delete it; another process may be doing the same."""
    aside = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(FileNotFoundError):
        folder.replace(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _prepared(key: str, meta: dict[str, Any], warnings: tuple[str, ...]) -> Prepared:
    return Prepared(key, meta["files"]["surprisal.npy"]["sha256"], meta["facts"], warnings)
