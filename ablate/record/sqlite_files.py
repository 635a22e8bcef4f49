"""Sqlite files that several programs open: made whole under another name, then linked into place."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

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
    with _no_wait_for_the_disk(temporary):
        create(sqlite_url(temporary))
    with contextlib.closing(sqlite3.connect(temporary)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # A write-ahead log lets the dashboards read while the driver writes; it needs memory shared by all of them.
        connection.execute(f"PRAGMA journal_mode={'DELETE' if network_kind(path) else 'WAL'}")
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:  # no links there: two that make it at once leave the one that was last
        temporary.replace(path)
    for leftover in path.parent.glob(f"{temporary.name}*"):
        leftover.unlink()


@contextlib.contextmanager
def _no_wait_for_the_disk(path: Path) -> Iterator[None]:
    """Let commits to a file that no one else sees yet skip the disk: migrations make hundreds of them."""

    def on_connect(connection: Any, _record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            _number, _name, file = connection.execute("PRAGMA database_list").fetchone()
            if file == str(path.resolve()):
                connection.execute("PRAGMA synchronous=OFF")
                connection.execute("PRAGMA journal_mode=MEMORY")

    event.listen(Engine, "connect", on_connect)
    try:
        yield
    finally:
        event.remove(Engine, "connect", on_connect)
