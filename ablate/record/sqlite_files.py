"""Sqlite files that several programs open: made whole under another name, then linked into place."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from ablate.record.file_systems import network_kind


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
        # A write-ahead log lets the dashboards read while the driver writes; it needs memory shared by all of them.
        connection.execute(f"PRAGMA journal_mode={'DELETE' if network_kind(path) else 'WAL'}")
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:  # no links there: two that make it at once leave the one that was last
        temporary.replace(path)
    for leftover in path.parent.glob(f"{temporary.name}*"):
        leftover.unlink()
