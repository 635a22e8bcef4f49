"""A store that cannot be opened or read is an error that names it, without the secrets of its address."""

import traceback

import pytest
from sqlalchemy.exc import IntegrityError

from ablate.errors import StudyError
from ablate.record import optuna_stores
from ablate.record.mlflow_tracking import Tracker, TrackingError
from ablate.record.optuna_storage import Ledger

SECRET = "hunter2/p@ss"


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.setenv("PORT", "hunter2")


def shown(action):
    """What Python would print of the error that an action raises."""
    with pytest.raises((StudyError, TrackingError)) as caught:
        action()
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("postgresql+psycopg://me:${SECRET}@127.0.0.1:9/a", "refused"),
        ("mysql+pymysql://me:${SECRET}@127.0.0.1:9/a", "refused"),
        ("oracle+nothing://me:${SECRET}@127.0.0.1:9/a", "pip install 'ablate-toolkit[stores]'"),
        ("postgresql+psycopg://me@127.0.0.1:${PORT}/a", "it is no SQLAlchemy URL"),
        ("${SECRET}", "it is no SQLAlchemy URL"),
        ("sqlite:////nowhere/${SECRET}.db", "unable to open database file"),
    ],
)
def test_a_store_that_cannot_be_opened_keeps_its_secrets(tmp_path, address, reason):
    text = shown(lambda: Ledger.create(address, tmp_path, "s", "minimize"))
    assert f"StoreError: track.optuna {address} cannot be opened: " in text
    assert reason in text
    assert "hunter2" not in text
    assert "p@ss" not in text


def test_a_tracking_server_that_is_down_keeps_its_secrets(tmp_path):
    address = "http://me:${SECRET}@127.0.0.1:9"
    tracker = Tracker(address, tmp_path, "s")
    text = shown(lambda: tracker.open_study({}))
    assert f"API request to {address}/" in text
    assert "hunter2" not in text
    text = shown(lambda: Tracker("nothing://me:${SECRET}@h", tmp_path, "s").open_study({}))
    assert "nothing://me:${SECRET}@h cannot be opened" in text
    assert "hunter2" not in text


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "optuna.db").write_bytes(b"this is no database, but it is long enough to be taken for one" * 100)
    text = shown(lambda: Ledger.find(None, tmp_path, "s"))
    assert f"StoreError: {tmp_path} cannot be opened: file is not a database" in text


def test_tables_that_another_process_makes_at_the_same_moment(tmp_path, monkeypatch):
    opened = optuna_stores.RDBStorage
    race = [IntegrityError("CREATE TABLE studies", {}, Exception("duplicate key")), None]

    def racing(*arguments, **keywords):
        if (error := race.pop(0)) is not None:
            raise error
        return opened(*arguments, **keywords)

    monkeypatch.setattr(optuna_stores, "RDBStorage", racing)
    monkeypatch.setattr(optuna_stores, "MOMENTS_S", (0.0,))
    optuna_stores.open_storage(f"sqlite:///{tmp_path / 'store.db'}", tmp_path, print).engine.dispose()
    assert race == []
