"""Opening Optuna's storage: a sqlite file of the run folder, or a server's database.

What a store raises leaves here as a StudyError that names the store and none of its secrets. A server that was there
and goes away is waited for.
"""

from __future__ import annotations

import functools
import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import optuna
from optuna.storages import RDBStorage, get_storage
from optuna.trial import TrialState
from sqlalchemy import event
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from ablate.errors import StudyError
from ablate.record.sqlite_files import create_sqlite_file, sqlite_url
from ablate.spec.addresses import concealed, filled_in

optuna.logging.set_verbosity(optuna.logging.WARNING)
logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)  # it logs what it raises as well

#: What the storage raises where it cannot be read or written: a full disk, a lock that is never free, a lost server.
STORAGE_ERRORS = (optuna.exceptions.StorageInternalError, SQLAlchemyError)
#: What Optuna raises where a record in the store is none: no JSON, no distribution.
READING_ERRORS = (ValueError, TypeError, AttributeError)
#: A server that was there before is waited for this long.
PATIENCE_S = 180.0
#: An empty store of which another process makes the tables at this moment is tried again after these.
MOMENTS_S = (1.0, 3.0)
RETRY_S = 1.0
#: Ask for what may well not be there.
LOOKUPS = frozenset({"get_study_id_from_name"})

WRITES = ("set_", "create_", "delete_")
"""How the methods that change something begin."""


class StoreError(StudyError):
    """A store that cannot be read or written."""


def open_storage(address: str | None, folder: Path, warn: Callable[[str], None] = lambda _text: None) -> Any:
    """The storage of a study.

    Args:
        address: an SQLAlchemy URL, with `${NAME}` for what the environment holds; None: `optuna.db` in the run folder.
        warn: is told when the store does not answer.
    Raises: StudyError where it cannot be opened.
    """
    url = sqlite_url(folder / "optuna.db") if address is None else filled_in(address)
    local = url.startswith("sqlite")
    arguments: dict[str, Any] = {"connect_args": {"timeout": 60}} if local else {"pool_pre_ping": True}
    where = str(folder) if address is None else f"track.optuna {address}"
    try:
        if address is None:
            create_sqlite_file(folder / "optuna.db", _create_tables)
        storage = _opened(url, arguments)
    except (ImportError, ValueError, RuntimeError, sqlite3.Error, *STORAGE_ERRORS) as error:
        _refuse(error, where, address)
    if local:
        _commit_without_waiting_for_the_disk(storage)
    return PatientStorage(get_storage(storage), storage.engine, where, address, 0.0 if local else PATIENCE_S, warn)


def _opened(url: str, arguments: dict[str, Any]) -> RDBStorage:
    """Optuna's storage; it makes the tables of an empty store, which another process may do at the same moment."""
    for wait_s in MOMENTS_S:
        try:
            return RDBStorage(url, engine_kwargs=arguments)
        except SQLAlchemyError as error:
            if not (isinstance(error, IntegrityError) or "already exists" in str(error)):
                raise
            time.sleep(wait_s)
    return RDBStorage(url, engine_kwargs=arguments)


def _create_tables(url: str) -> None:
    storage = RDBStorage(url)
    storage.remove_session()
    storage.engine.dispose()


def _commit_without_waiting_for_the_disk(storage: RDBStorage) -> None:
    """In WAL mode a commit survives the death of the process without fsync; only a power cut can undo the last."""

    def on_connect(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(storage.engine, "connect", on_connect)
    storage.engine.dispose()


def _refuse(error: BaseException, where: str, address: str | None) -> NoReturn:
    hint, reason = "", _reason(error, address)
    if isinstance(error, ValueError | ArgumentError) and not isinstance(error, NoSuchModuleError):
        # what a parser says shows pieces of an address, among them perhaps of a secret
        reason = "it is no SQLAlchemy URL; allowed: dialect+driver://user:password@host:port/database"
    elif isinstance(error, ImportError | NoSuchModuleError):
        hint = "; drivers of PostgreSQL (postgresql+psycopg://) and MariaDB (mysql+pymysql://) come with: "
        hint += "pip install 'ablate-toolkit[stores]'"
    # a chain of causes would show the address with its secrets where Python prints it
    raise StoreError(f"{where} cannot be opened: {reason}{hint}") from None


def _reason(error: BaseException, address: str | None) -> str:
    """What went wrong, in one line, without the statement that a database adds to it and without secrets."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = str(cause).splitlines()
    return concealed(lines[0] if lines else type(cause).__name__, address)


def is_passing(error: BaseException) -> bool:
    """Whether a server may have gone away or be busy, rather than refuse what it was told."""
    cause = error if isinstance(error, SQLAlchemyError) else error.__cause__
    lost = isinstance(cause, DBAPIError) and cause.connection_invalidated
    return lost or isinstance(cause, OperationalError | InterfaceError)


class PatientStorage:
    """Stands where Optuna's storage stands: the same methods, each tried again while a server does not answer.

    Args:
        storage: Optuna's.
        engine: of the database below it.
        where: names the store in messages.
        address: as the study file has it.
        patience_s: how long a call is tried again; 0 for a file, whose lock is waited for by sqlite itself.
    """

    def __init__(
        self,
        storage: Any,
        engine: Any,
        where: str,
        address: str | None,
        patience_s: float,
        warn: Callable[[str], None],
    ) -> None:
        self._storage = storage
        self.engine = engine
        self.where = where
        self._address = address
        self._patience_s = patience_s
        self._warn = warn
        self.guard: Callable[[], None] = lambda: None
        """Called before each write: raises where this process must not write any more."""

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._storage, name)
        if not callable(attribute):
            return attribute
        return functools.partial(self._call, name, self._guarded(attribute) if name.startswith(WRITES) else attribute)

    def _guarded(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any, **keywords: Any) -> Any:
            self.guard()
            return method(*arguments, **keywords)

        return guarded

    def call(self, action: Callable[[], Any]) -> Any:
        """Do something else in the same database, with the same patience. It can be done twice."""
        return self._call("", action)

    def write(self, action: Callable[[], Any]) -> Any:
        """As `call`, for what this process may do only while it holds the study."""
        return self._call("", self._guarded(action))

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        try:
            return method(*arguments, **keywords)
        except KeyError as error:
            if name in LOOKUPS:
                raise
            self._fail(f"it no longer holds what this study had stored there ({error.args[0]})")
        except READING_ERRORS as error:
            if not name.startswith("get_"):
                raise
            self._fail(f"it holds what Optuna cannot read ({type(error).__name__}: {_reason(error, self._address)})")
        except STORAGE_ERRORS as error:
            if not (self._patience_s and is_passing(error)):
                self._fail(_reason(error, self._address))
            reason = _reason(error, self._address)
            self._warn(f"{self.where} does not answer ({reason}); waiting for it, {self._patience_s:g} s at most")
        return self._again(name, method, arguments, keywords)

    def _again(
        self, name: str, method: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Try a call again that may have been carried out before its connection was lost."""
        deadline = time.monotonic() + self._patience_s
        while True:
            time.sleep(RETRY_S)
            try:
                done = self._done(name, arguments, keywords)
                return method(*arguments, **keywords) if done is None else done
            except KeyError as error:
                if name in LOOKUPS:
                    raise
                self._fail(f"it no longer holds what this study had stored there ({error.args[0]})")
            except STORAGE_ERRORS as error:
                if not is_passing(error) or time.monotonic() > deadline:
                    self._fail(_reason(error, self._address))

    def _done(self, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What the call would have returned, where the store shows that it was carried out; only one process writes."""
        if name == "set_trial_state_values":
            state = keywords.get("state", arguments[1] if len(arguments) > 1 else None)
            stored = self._storage.get_trial(keywords.get("trial_id", arguments[0] if arguments else None)).state
            return True if stored == state and state != TrialState.WAITING else None
        template = keywords.get("template_trial", arguments[1] if len(arguments) > 1 else None)
        if name == "create_new_trial" and template is not None:
            for trial in self._storage.get_all_trials(arguments[0], deepcopy=False):
                if (trial.user_attrs, trial.state) == (template.user_attrs, template.state):
                    return trial._trial_id  # noqa: SLF001 - the storage's own interface takes this id
        return None

    def _fail(self, reason: str) -> NoReturn:
        raise StoreError(f"{self.where}: {reason}; nothing recorded so far is lost, the same command goes on") from None
