"""Numbers that come one after another, more than memory holds."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ablate.workloads.sequence_vae.data import Array

PART = 65536
"""Numbers that are in memory before they go to the file."""


class Spool:
    """Numbers that are appended to a file, and read back memory-mapped.

    Args:
        path: a file that is not there yet.
        typecode: of Python's array.
    """

    def __init__(self, path: Path, typecode: str) -> None:
        self._path = path
        self._buffer = array(typecode)

    def extend(self, values: Iterable[int]) -> None:
        """Append numbers."""
        self._buffer.extend(values)
        if len(self._buffer) >= PART:
            self._flush()

    def read(self) -> Array:
        """All of them so far."""
        self._flush()
        dtype = np.dtype(self._buffer.typecode)
        return np.memmap(self._path, dtype, "r") if self._path.stat().st_size else np.empty(0, dtype)

    def _flush(self) -> None:
        with self._path.open("ab") as file:
            self._buffer.tofile(file)
        del self._buffer[:]
