"""The full history of a trial: an append-only file, one JSON line a report, written before any store.

A line is `{"step": 10, "time": 1700000000.0, "metrics": {"train/kl": 0.5}}`. Values that JSON has no
number for are the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ablate.workloads.contract import Row

Point = tuple[int, str, float]
"""Step, metric and value of a curve: plain tuples, since a study may have them by the million."""


def encode_metrics(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Metrics as strict JSON values."""
    return {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()}


def decode_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The inverse of encode_metrics."""
    return {str(name): float(value) for name, value in metrics.items()}


def encode_row(row: Row) -> dict[str, Any]:
    """One line of the file, as a JSON value."""
    return {"step": row.step, "time": row.time, "metrics": encode_metrics(row.metrics)}


def decode_row(line: Mapping[str, Any]) -> Row:
    """The inverse of encode_row."""
    return Row(int(line["step"]), float(line["time"]), decode_metrics(line["metrics"]))


def read_history(path: Path) -> list[Row]:
    """All rows; a torn last line, which a kill in the middle of a write leaves, is no row."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    return list(_whole_rows(text))


def _whole_rows(text: bytes) -> Iterator[Row]:
    for line in text.split(b"\n")[:-1]:
        if line.strip():
            yield decode_row(json.loads(line))


class HistoryFile:
    """A trial's history, open for appending. What it holds already is not appended again."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._drop_torn_line(path)
        self.rows = read_history(path)
        self._seen = {(row.step, name) for row in self.rows for name in row.metrics}

    def _drop_torn_line(self, path: Path) -> None:
        text = path.read_bytes()
        if text and not text.endswith(b"\n"):
            self._file.truncate(text.rfind(b"\n") + 1)

    def append(self, rows: Iterable[Row]) -> list[Row]:
        """Append what is new by (step, metric); a resumed trial reports some steps twice.

        Returns: the rows as appended.
        """
        fresh = []
        for row in rows:
            metrics = {name: value for name, value in row.metrics.items() if (row.step, name) not in self._seen}
            if metrics:
                fresh.append(Row(row.step, row.time, metrics))
                self._seen.update((row.step, name) for name in metrics)
        if fresh:
            self._file.write(b"".join(json.dumps(encode_row(row)).encode() + b"\n" for row in fresh))
            self._file.flush()
            self.rows.extend(fresh)
        return fresh

    def close(self, *, sync: bool = True) -> None:
        """Close the file. `sync`: what was appended is on disk as far as the kernel is concerned; some 3 ms."""
        if sync:
            os.fsync(self._file.fileno())
        self._file.close()


def value_at(rows: Iterable[Row], metric: str, at: str) -> float | None:
    """The metric's value at `last` or `step:N` (the report of exactly that step); None where there is none."""
    wanted = None if at == "last" else int(at.removeprefix("step:"))
    value = None
    for row in rows:
        if metric in row.metrics and (wanted is None or row.step == wanted):
            value = row.metrics[metric]
    return value


def last_values(rows: Iterable[Row]) -> dict[str, float]:
    """The last value of each metric."""
    return {name: value for row in rows for name, value in row.metrics.items()}
