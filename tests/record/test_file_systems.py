"""File systems of a network: known by their type; sqlite files on them keep no shared memory, links are not needed."""

import errno
import os
import sqlite3

import pytest
from sqlalchemy import create_engine, text

from ablate.record import sqlite_files
from ablate.record.file_systems import network_kind
from ablate.record.run_folder import RunFolder
from ablate.record.sqlite_files import create_sqlite_file


@pytest.fixture
def mounts(tmp_path):
    file = tmp_path / "mounts"
    share = str(tmp_path / "the share").replace(" ", "\\040")
    file.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {share} nfs4 rw 0 0\ntmpfs {share}/local tmpfs rw 0 0\nodd\n")
    return file


def test_the_innermost_mount_says_what_a_path_lies_on(tmp_path, mounts):
    assert network_kind(tmp_path / "the share/runs/s", mounts) == "nfs4"
    assert network_kind(tmp_path / "the share/local/s", mounts) is None
    assert network_kind(tmp_path / "the shared", mounts) is None
    assert network_kind(tmp_path, tmp_path / "no mounts here") is None


def journal_of(path, monkeypatch, kind):
    monkeypatch.setattr(sqlite_files, "network_kind", lambda _path: kind)

    def create(url):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("CREATE TABLE t (x)")
        connection.close()

    create_sqlite_file(path, create)
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA journal_mode").fetchone()[0]
    finally:
        connection.close()


def test_a_database_on_a_network_has_no_write_ahead_log(tmp_path, monkeypatch):
    assert journal_of(tmp_path / "a.db", monkeypatch, None) == "wal"
    assert journal_of(tmp_path / "b.db", monkeypatch, "nfs4") == "delete"


def test_where_files_cannot_be_linked_they_are_renamed(tmp_path, monkeypatch):
    def refuse(_source, _target):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    assert journal_of(tmp_path / "a.db", monkeypatch, "cifs") == "delete"
    assert [path.name for path in tmp_path.glob("*a.db*")] == ["a.db"]


def test_only_a_file_that_is_being_made_is_written_without_waiting_for_the_disk(tmp_path):
    def waits(url):
        engine = create_engine(url)
        try:
            with engine.begin() as connection:
                connection.execute(text("CREATE TABLE IF NOT EXISTS t (x)"))
                return connection.execute(text("PRAGMA synchronous")).scalar() > 0
        finally:
            engine.dispose()

    other = f"sqlite:///{tmp_path}/other.db"
    seen = []
    create_sqlite_file(tmp_path / "a.db", lambda url: seen.extend([waits(url), waits(other)]))
    assert seen == [False, True]
    assert waits(f"sqlite:///{tmp_path}/a.db")


def test_a_folder_without_flock_is_locked_by_nothing_and_says_so(tmp_path, monkeypatch):
    from ablate.record import run_folder

    def refuse(_file, _operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(run_folder.fcntl, "flock", refuse)
    folder = RunFolder(tmp_path)
    with folder.locked() as held:
        assert not held
    assert folder.holder() is None
    monkeypatch.undo()
    with folder.locked() as held:
        assert held
