"""A run folder that was moved or copied: MLflow stores where artifacts lie as absolute addresses."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path


def move_artifacts(database: Path, old: str, new: str) -> None:
    """Let every address of an artifact that begins with `old` begin with `new`.

    Args:
        database: MLflow's own sqlite file, which no client has open for writing.
    """
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",  # noqa: S608
                (new, len(old) + 1, len(old), old),
            )
