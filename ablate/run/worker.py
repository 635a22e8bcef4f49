"""The worker's side of a trial: calls the workload, buffers what it reports, catches what it raises.

Knows no Ray: `send` is all that it has of the driver.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ablate.record.history import HistoryFile
from ablate.run.assignment import KEPT_REPORTS, Assignment, Ending, Message
from ablate.workloads import load_object
from ablate.workloads.contract import Row, Trial, TrialDiverged, TrialStopped

#: Reports wait at most this long, so that a trial without evaluations is seen to move.
LONGEST_WAIT_S = 5.0

#: How faulthandler begins its account of a process whose time was up.
TIMEOUT_MARK = "Timeout ("

Send = Callable[[Message], None]


class _Output:
    """What the process prints while a trial runs, in a file that outlives a crash."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._sent = 0

    @contextlib.contextmanager
    def captured(self) -> Iterator[None]:
        with self._path.open("wb") as file:
            saved = os.dup(1), os.dup(2)
            _flush()
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                yield
            finally:
                _flush()
                os.dup2(saved[0], 1)
                os.dup2(saved[1], 2)
                os.close(saved[0])
                os.close(saved[1])

    def unsent(self) -> tuple[str, int]:
        """New text, and how many bytes of the file have been handed out with it."""
        _flush()
        with self._path.open("rb") as file:
            file.seek(self._sent)
            new = file.read()
        self._sent += len(new)
        return new.decode("utf-8", errors="replace"), self._sent


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


class _Outbox:
    """Buffers reports and sends them in few messages.

    Each report is also kept in a file at once: a checkpoint may be past reports that were never sent, or were sent to
    a driver that died, and a trial that goes on from it does not make them again.
    """

    def __init__(self, assignment: Assignment, output: _Output, send: Send) -> None:
        self._assignment = assignment
        self._output = output
        self._send = send
        self._rows: list[Row] = []
        self._sent_at = time.monotonic()
        self.stopped = False
        self.last_step = assignment.last_step
        self.last_row = dict(assignment.last_row)
        self._kept = HistoryFile(Path(assignment.output_file).with_name(KEPT_REPORTS))
        for row in self._kept.rows:
            if row.step >= assignment.last_step:
                self._take(row)

    def _take(self, row: Row) -> None:
        self._rows.append(row)
        if row.step != self.last_step:
            self.last_row = {}
        self.last_step = row.step
        self.last_row.update(row.metrics)

    def report(self, row: Row) -> None:
        self._kept.append([row])
        self._take(row)
        if self._assignment.flush_on in row.metrics or time.monotonic() - self._sent_at > LONGEST_WAIT_S:
            self.flush()

    def close(self) -> None:
        self._kept.close()

    def flush(self, checkpoint_step: int | None = None, ending: Ending | None = None) -> None:
        log, log_bytes = self._output.unsent()
        message = Message(
            self._assignment.trial_id,
            self._assignment.attempt,
            tuple(self._rows),
            log,
            log_bytes,
            checkpoint_step,
            ending,
        )
        self._rows = []
        self._sent_at = time.monotonic()
        try:
            self._send(message)
        except TrialStopped:
            self.stopped = True
            raise


def run_trial(assignment: Assignment, device: str, send: Send) -> None:
    """Run one trial to its end, whatever that is; only the death of the process escapes.

    Args:
        assignment: the trial.
        device: `cpu` or `cuda`.
        send: hands a message to the driver; raises TrialStopped when the trial is to end.
    """
    output = _Output(Path(assignment.output_file))
    with output.captured(), _time_limit(assignment.timeout_s):
        outbox = _Outbox(assignment, output, send)
        with contextlib.closing(outbox), contextlib.suppress(TrialStopped):
            ending = _train(assignment, device, outbox)
            outbox.flush(ending=ending)


def _train(assignment: Assignment, device: str, outbox: _Outbox) -> Ending:
    checkpoint_dir = Path(assignment.checkpoint_dir)  # made here, since a worker may be on another machine
    checkpoint_dir.mkdir(parents=True, exist_ok=True)
    trial = Trial(
        seed=assignment.seed,
        replicate=assignment.replicate,
        device=device,
        checkpoint_dir=checkpoint_dir,
        shared_dir=Path(assignment.shared_dir),
        evaluation=assignment.evaluation,
        baseline=assignment.baseline,
        on_report=outbox.report,
        on_checkpoint=lambda step: outbox.flush(checkpoint_step=step),
    )
    try:
        for folder in reversed(assignment.import_path):
            if folder not in sys.path:
                sys.path.insert(0, folder)
        _seed_global_streams(trial)
        metrics = load_object(assignment.train)(assignment.config, trial)
        _report_final(metrics, trial, outbox)
    except TrialStopped as error:
        if outbox.stopped:
            raise
        return Ending("exception", f"TrialStopped was raised, but no one had asked for it: {error}", notes=trial.notes)
    except TrialDiverged as error:
        return Ending("diverged", str(error) or "the objective is not finite", notes=trial.notes)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises ends this trial alone
        traceback.print_exc()
        return Ending("exception", f"{type(error).__name__}: {error}", notes=trial.notes)
    return Ending(metrics=dict(outbox.last_row), notes=trial.notes, texts=trial.texts)


def _seed_global_streams(trial: Trial) -> None:
    """A reused process carries no random state from one trial to the next, even into code that uses global streams."""
    random.seed(trial.stream_seed("python"))
    np.random.seed(trial.stream_seed("numpy") % 2**32)  # noqa: NPY002 - the global stream is the point
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(trial.stream_seed("torch"))


def _report_final(metrics: object, trial: Trial, outbox: _Outbox) -> None:
    """Report what the function returned, at its last step, or one further where it says otherwise than a report."""
    if metrics is None:
        metrics = {}
    if not isinstance(metrics, dict):
        raise TypeError(f"a trial function returns a dict of its final metrics, not {type(metrics).__name__}")
    if metrics:
        differs = any(
            name in outbox.last_row and outbox.last_row[name] != value and value == value
            for name, value in metrics.items()
        )
        trial.report(outbox.last_step + int(differs), metrics)


@contextlib.contextmanager
def _time_limit(seconds: float | None) -> Iterator[None]:
    """End the process, with every thread's stack in its output, once the time is up: the only way out of a hang."""
    if seconds is None:
        yield
        return
    with os.fdopen(os.dup(2), "w") as stderr:
        faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
