"""Sqlite files that several programs open: made whole under another name, then linked into place."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path


def sqlite_url(path: Path) -> str:
    """The SQLAlchemy URL of a sqlite file."""
    return f"sqlite:///{path.resolve()}"


def create_sqlite_file(path: Path, create: Callable[[str], None]) -> None:
    """Make a database that appears under its name complete or not at all.

    Creating the tables takes seconds, and a kill or a second program in the middle would break the
    file for good. An empty file, which a program that only opened it leaves behind, counts as absent.

    Args:
        path: where the database is to stand.
        create: makes the tables, given the URL of the temporary file.
    """
    if path.exists() and path.stat().st_size > 0:
        return
    path.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    create(sqlite_url(temporary))
    with contextlib.closing(sqlite3.connect(temporary)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # A write-ahead log lets the dashboards read while the driver writes.
        connection.execute("PRAGMA journal_mode=WAL")
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)
    for leftover in path.parent.glob(f"{temporary.name}*"):
        leftover.unlink()
