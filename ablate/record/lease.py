"""A claim on a study in its store: one process at a time runs it, whatever machine and run folder it has.

The claim is one attribute of the study in Optuna's storage, changed by compare-and-set: an UPDATE that names the old
value. Its holder counts a heartbeat up in it; a claim whose heartbeat stood still for EXPIRY_S, as watched by the one
who wants the study, on its own clock, is taken over. No two clocks are ever compared, and none is asked what time it
is, so no jump of a clock hands a study to two. A holder that could not renew for FENCE_S writes nothing before it has.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Engine,
    Executable,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    and_,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from ablate.errors import StudyError
from ablate.spec.wording import printable

#: The holder's heartbeat, in seconds.
BEAT_S = 10.0
#: After so long without a heartbeat a claim is a dead one's.
EXPIRY_S = 60.0
#: A holder that has not renewed for so long renews before it writes anything; well below EXPIRY_S.
FENCE_S = 25.0
#: Where the store does not answer it is asked again this often; a claim is watched at this pace.
RETRY_S = 2.0

KEY = "lease"
#: Optuna's table of what is noted with a study, as far as it is used here.
NOTES = Table(
    "study_user_attributes", MetaData(), Column("study_id", Integer), Column("key", String), Column("value_json", Text)
)


class LeaseLostError(StudyError):
    """Another process has taken the study over."""


def boot_clock() -> float:
    """Seconds of a clock that no one sets and that goes on while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def this_machine() -> str:
    """What tells this boot of this machine, and this namespace of process ids, from all others; "" where unknown."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - it is no path that is read
    return ""


def process_start(pid: int) -> str | None:
    """When a process of this machine was started, in its kernel's ticks; None where there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Lease:
    """One study's claim, as this process makes, renews and gives up.

    Args:
        engine: of the database that holds Optuna's tables.
        study_id: of the study in it.
        folder: the run folder, for messages.
        say: is told that the claim of another is watched.
    """

    def __init__(
        self,
        engine: Engine,
        study_id: int,
        folder: Path,
        *,
        say: Callable[[str], None] = lambda _text: None,
        clock: Callable[[], float] = boot_clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._engine = engine
        self._study_id = study_id
        self._say = say
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._beat = 0
        self._renewed = 0.0
        self._held: str | None = None
        self._loss = "the study is not claimed by this process"
        self._owner = {
            "token": secrets.token_hex(16),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "folder": str(folder.resolve()),
            "machine": this_machine(),
            "process_start": process_start(os.getpid()),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "expires_after_s": EXPIRY_S,
        }

    # --- the claim ---

    def acquire(self) -> None:
        """Claim the study, after EXPIRY_S where a dead process of another machine has it.

        Raises: StudyError naming the process that holds it.
        """
        while True:
            stored = self._read()
            if self._stands(stored):
                return
            if stored is not None and not self._is_over(stored):
                self._watch(stored)
            if self._swap(stored):
                return

    def _is_over(self, stored: str) -> bool:
        """Whether the process of a claim is known to have ended: one of this machine that is not there any more.

        Raises: StudyError where it is known to live.
        """
        claim = _decoded(stored)
        machine = this_machine()
        if not machine or claim.get("machine") != machine or not isinstance(claim.get("pid"), int):
            return False
        if process_start(claim["pid"]) == claim.get("process_start"):
            raise StudyError(f"the study is being run by {_words(claim)}")
        return True

    def _watch(self, stored: str) -> None:
        """Wait until a claim has stood still for EXPIRY_S, as far as it could be read all the time.

        Raises: StudyError where it moves: its holder lives; SQLAlchemyError where the store does not answer: what its
            holder does then is not known, and the wait begins again.
        """
        holder = _words(_decoded(stored))
        self._say(f"{holder} holds a claim on the study; waiting up to {EXPIRY_S:g} s for its heartbeat")
        since = last = self._clock()
        while self._clock() - since < EXPIRY_S:
            self._sleep(RETRY_S)
            now = self._read()
            if now is None:
                return
            if now != stored:
                raise StudyError(f"the study is being run by {_words(_decoded(now))}")
            if self._clock() - last > 3 * RETRY_S:
                since = self._clock()  # the store, or this process, stood still itself
            last = self._clock()

    # --- holding it ---

    def hold(self) -> None:
        """Make sure that the claim still stands, before something is written.

        Raises: LeaseLostError where another process has the study; SQLAlchemyError where the store does not answer.
        """
        if self._clock() - self._renewed > FENCE_S:
            self.renew()

    def renew(self) -> None:
        """Count the heartbeat up.

        Raises: as `hold`.
        """
        with self._lock:
            if self._held is None:
                raise LeaseLostError(self._loss)
            if not self._swap(self._held) and not self._stands(stored := self._read()):
                self._held, self._loss = None, _lost(stored)
                raise LeaseLostError(self._loss)

    def _stands(self, stored: str | None) -> bool:
        """Whether a claim is this process's own: one whose writing was not confirmed. It is held from now on."""
        if stored is None or _decoded(stored).get("token") != self._owner["token"]:
            return False
        self._held, self._renewed = stored, self._clock()
        return True

    @contextlib.contextmanager
    def held(self, lost: Callable[[str], None]) -> Iterator[None]:
        """Keep the claim with a heartbeat, and give it up in the end. `lost` is told when another has taken it."""
        over = threading.Event()
        heart = threading.Thread(target=self._beat_on, args=(over, lost), daemon=True, name="lease")
        heart.start()
        try:
            yield
        finally:
            over.set()
            heart.join(RETRY_S)
            self.release()

    def _beat_on(self, over: threading.Event, lost: Callable[[str], None]) -> None:
        pause = BEAT_S
        while not over.wait(pause):
            try:
                self.renew()
                pause = BEAT_S
            except LeaseLostError as error:
                if not over.is_set():
                    lost(str(error))
                return
            except SQLAlchemyError:
                pause = RETRY_S  # it is down; what is to be written waits for it as well

    def release(self) -> None:
        """Give the study up, where the store takes that; else the claim expires."""
        with self._lock, contextlib.suppress(SQLAlchemyError):
            if self._held is not None:
                self._execute(delete(NOTES).where(self._mine(self._held)))
                self._held = None

    # --- the attribute ---

    def _mine(self, old: str | None = None) -> ColumnElement[bool]:
        """The row of the claim; with `old`, only as long as that stands there."""
        row = and_(NOTES.c.study_id == self._study_id, NOTES.c.key == KEY)
        return row if old is None else and_(row, NOTES.c.value_json == old)

    def _read(self) -> str | None:
        with self._engine.connect() as connection:
            found = connection.execute(select(NOTES.c.value_json).where(self._mine())).scalar()
            return None if found is None else str(found)

    def _swap(self, old: str | None) -> bool:
        """Put this process's claim in the place of `old`. Returns: whether `old` stood there."""
        self._beat += 1
        new = json.dumps({**self._owner, "beat": self._beat})
        started = self._clock()
        if old is None:
            statement: Executable = insert(NOTES).values(study_id=self._study_id, key=KEY, value_json=new)
        else:
            statement = update(NOTES).where(self._mine(old)).values(value_json=new)
        try:
            changed = self._execute(statement)
        except IntegrityError:  # two that found no claim; the other was first
            return False
        if changed:
            self._held, self._renewed = new, started
        return changed

    def _execute(self, statement: Executable) -> bool:
        with self._engine.begin() as connection:
            return int(connection.execute(statement).rowcount) == 1


def _decoded(stored: str) -> Mapping[str, Any]:
    """A claim as stored; {} for what is none: someone else wrote it."""
    try:
        claim = json.loads(stored)
    except ValueError:
        return {}
    return claim if isinstance(claim, dict) else {}


def _words(claim: Mapping[str, Any]) -> str:
    known = [str(claim.get(name, "unknown"))[:200] for name in ("pid", "host", "folder", "since")]
    return printable("process {} on {} ({}) since {}".format(*known))


def _lost(stored: str | None) -> str:
    if stored is None:
        return "its claim on the study is gone from the store: the store came back without it, or someone removed it"
    return f"the study was taken over by {_words(_decoded(stored))}"
