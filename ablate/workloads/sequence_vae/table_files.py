"""Folders of arrays that appear whole, are checked by their checksums and shared by memory mapping.

Such a folder holds .npy files and a `meta.json` with their checksums. It comes into being by one rename.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike

from ablate.workloads.sequence_vae.data import Array

META = "meta.json"


def make_whole(
    folder: Path, what: str, write: Callable[[Path], Mapping[str, Any]], expected: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Make a folder unless it is there and whole; of several processes one makes it and the others wait.

    Args:
        what: the kind of table, for messages.
        write: writes the arrays into an empty folder, and returns what `meta.json` says of them.
        expected: what `meta.json` has to say, or the folder is made again.
    Returns: warnings.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _held(folder):
        warnings: tuple[str, ...] = ()
        if folder.exists():
            problem = fault(folder, expected=expected)
            if problem is None:
                return ()
            warnings = (f"the {what} {folder.name} is damaged ({problem}): it is made again",)
            _remove(folder)
        made = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
        made.mkdir()
        try:
            meta = dict(write(made))
            meta["files"] = {path.name: _stamp(path) for path in sorted(made.iterdir())}
            (made / META).write_text(json.dumps(meta, indent=1))
            # where another process was first its folder stands, made from the same content
            with contextlib.suppress(OSError):
                made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return warnings


def fault(folder: Path, *, checksums: bool = True, expected: Mapping[str, Any] | None = None) -> str | None:
    """What is wrong with a folder, or None."""
    try:
        meta = read_meta(folder)
        for name, stamp in meta["files"].items():
            size = (folder / name).stat().st_size
            if size != stamp["bytes"]:
                return f"{name} has {size} bytes, {stamp['bytes']} were written"
            if checksums and _stamp(folder / name) != stamp:
                return f"{name} has another checksum"
        for key, value in (expected or {}).items():
            if meta[key] != value:
                return f"its {key} is {meta[key]}, not {value}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def read_meta(folder: Path) -> dict[str, Any]:
    """What `meta.json` says."""
    meta: dict[str, Any] = json.loads((folder / META).read_text())
    return meta


def read_array(folder: Path, name: str) -> Array:
    """An array of the folder, memory-mapped."""
    # mode c: PyTorch wants writable memory; what is written would stay private to the process
    array: Array = np.load(folder / f"{name}.npy", mmap_mode="c")
    return array


@contextlib.contextmanager
def array_file(path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> Iterator[BinaryIO]:
    """A new .npy file; its rows are then written one part after another, each as `tobytes` gives them."""
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        yield file


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """One process at a time, where the file system has locks; elsewhere several may make the same."""
    with folder.with_name(f".{folder.name}.lock").open("w") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stamp(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "bytes": path.stat().st_size}


def _remove(folder: Path) -> None:
    """Take it out of the way at once, then delete it; another process may be doing the same."""
    aside = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(FileNotFoundError):
        folder.replace(aside)
    shutil.rmtree(aside, ignore_errors=True)
