"""The driver's side of a trial: what workers send goes to the trial's history, to MLflow and to the ledger.

The order of writes is what makes a kill harmless: history first, then MLflow, then the ledger; at the end
the outcome is noted in the ledger, MLflow is told, and the ledger's state changes last.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ablate.plan.model import PlannedTrial
from ablate.record.history import HistoryFile, last_values, read_history, value_at
from ablate.record.mlflow_tracking import Tracker, TrackingError, thinned
from ablate.record.optuna_storage import Ledger, LedgerTrial, Outcome
from ablate.record.run_folder import RunFolder, write_atomically
from ablate.run.assignment import KEPT_REPORTS, LEAVE, Ending, Message
from ablate.spec.models import Metric
from ablate.workloads.contract import Row

#: A tracking server that did not answer is left alone this long.
TRACKER_REST_S = 15.0
#: At first a running trial's metrics go to MLflow this often, later ever more rarely.
LIVE_INTERVAL_S = 10.0


@dataclass
class _Running:
    """A trial between its claim and its end."""

    planned: PlannedTrial
    entry: LedgerTrial
    history: HistoryFile
    began: float = field(default_factory=time.monotonic)
    logged_at: float = field(default_factory=time.monotonic)
    log_bytes: int = 0
    pending: list[Row] = field(default_factory=list)


class Recorder:
    """Writes the records of one study. Used by one process, the one that holds the study."""

    def __init__(
        self,
        folder: RunFolder,
        ledger: Ledger,
        tracker: Tracker,
        primary: Metric,
        *,
        keep_checkpoints: bool = True,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._folder = folder
        self._ledger = ledger
        self._tracker = tracker
        self._primary = primary
        self._keep_checkpoints = keep_checkpoints
        self._warn = warn
        self._tracker_rests_until = 0.0
        self._running: dict[str, _Running] = {}
        self.tracker_lags = False

    @property
    def running(self) -> tuple[str, ...]:
        """The trials between claim and end, by trial_id."""
        return tuple(self._running)

    def elapsed_s(self, trial_id: str) -> float:
        """Seconds since this process claimed the trial."""
        return time.monotonic() - self._running[trial_id].began

    def attempt_of(self, trial_id: str) -> int:
        """The attempt that is running."""
        return self._running[trial_id].entry.attempt

    def last_row(self, trial_id: str) -> Row:
        """What is on record at the last step of a running trial; step 0 and no metrics for a new one."""
        rows = self._running[trial_id].history.rows
        step = max((row.step for row in rows), default=0)
        return Row(step, 0.0, last_values(row for row in rows if row.step == step))

    # --- begin ---

    def begin(self, planned: PlannedTrial, entry: LedgerTrial, notes: Mapping[str, Any]) -> bool:
        """Claim a waiting trial and open its records.

        Args:
            planned: the trial.
            entry: its waiting attempt in the ledger.
            notes: facts kept in the ledger beside it (code hash, reference table, device).
        Returns: False where the ledger no longer has it waiting.
        """
        if not self._ledger.claim(entry):
            return False
        begin_attempt(self._folder, entry)
        for name, value in notes.items():
            self._ledger.note(entry, name, value)
        self._running[planned.trial_id] = _Running(planned, entry, HistoryFile(self._folder.history(planned.trial_id)))
        config_file = self._folder.trial(planned.trial_id) / "config.json"
        write_atomically(config_file, json.dumps(planned.config, indent=1))
        self._with_tracker(lambda: self._open_run(self._ledger.get(entry)))
        return True

    def _open_run(self, entry: LedgerTrial) -> None:
        run_id = open_run(self._folder, self._tracker, self._ledger, entry)
        if entry.attributes.get("mlflow_run_id") is not None:
            self._tracker.resume(run_id)

    # --- while it runs ---

    def receive(self, message: Message) -> Outcome | None:
        """Record what a worker sent. Returns: how the trial ended, where it has."""
        running = self._running.get(message.trial_id)
        if running is None or running.entry.attempt != message.attempt:
            return None
        fresh = running.history.append(message.rows)
        running.log_bytes = message.log_bytes
        self._append_log(message.trial_id, message.log)
        running.pending += fresh
        for row in fresh:
            if self._primary.name in row.metrics:
                self._ledger.report(running.entry, row.step, row.metrics[self._primary.name])
        if message.ending is not None:
            return self._end(running, message.ending)
        if time.monotonic() - running.logged_at > max(LIVE_INTERVAL_S, self.elapsed_s(message.trial_id) / 25):
            self._log_live(running)
        return None

    def _log_live(self, running: _Running) -> None:
        """Show the newest value of each metric in MLflow; the rest follows at the end, thinned."""
        running.logged_at = time.monotonic()
        newest = thinned(running.pending, points=1)
        running.pending = []
        run_id = self._ledger.get(running.entry).attributes.get("mlflow_run_id")
        if run_id is not None:
            self._with_tracker(lambda: self._tracker.log(run_id, newest))

    def _append_log(self, trial_id: str, text: str) -> None:
        if text:
            with self._folder.log(trial_id).open("a", encoding="utf-8") as file:
                file.write(text)

    # --- end ---

    def _end(self, running: _Running, ending: Ending) -> Outcome:
        for name, value in ending.notes.items():
            self._ledger.note(running.entry, f"note.{name}", value)
        texts = self._folder.texts(running.planned.trial_id)
        for name, text in ending.texts.items():
            texts.mkdir(exist_ok=True)
            write_atomically(texts / name, text)
        return self._finish(running, outcome_of(ending, running.history.rows, self._primary))

    def fail(self, trial_id: str, reason: str, error: str) -> Outcome:
        """Record that a trial was given up. Returns: how it ended."""
        self._append_log(trial_id, f"{error}\n")
        running = self._running[trial_id]
        metrics = last_values(running.history.rows)
        return self._finish(running, Outcome("FAIL", reason, metrics=metrics, error=error))

    def _finish(self, running: _Running, outcome: Outcome, *, sweep: bool = True) -> Outcome:
        trial_id = running.planned.trial_id
        running.history.close()
        del self._running[trial_id]
        self._ledger.note_outcome(running.entry, outcome)
        entry = self._ledger.get(running.entry)
        self._with_tracker(lambda: close_run(self._folder, self._tracker, self._ledger, entry, outcome))
        self._ledger.finish(running.entry, outcome)
        if sweep:
            keep = outcome.state == "COMPLETE" and self._keep_checkpoints
            self.sweep(trial_id, keep_checkpoints=keep)
        return outcome

    def sweep(self, trial_id: str, *, keep_checkpoints: bool = False) -> None:
        """Remove what a trial needed until its end."""
        for name in ("output.txt", KEPT_REPORTS, LEAVE):
            (self._folder.trial(trial_id) / name).unlink(missing_ok=True)
        checkpoints = self._folder.checkpoints(trial_id)
        if not keep_checkpoints or not any(checkpoints.glob("*")):
            shutil.rmtree(checkpoints, ignore_errors=True)

    def prune(self, trial_id: str) -> Outcome:
        """Record that a trial is stopped because it is behind; its process may still write its files.

        Returns: how it ended, with its last values.
        """
        running = self._running[trial_id]
        metrics = last_values(running.history.rows)
        outcome = Outcome("PRUNED", value=metrics.get(self._primary.name), metrics=metrics)
        return self._finish(running, outcome, sweep=False)

    def release(self, trial_id: str) -> None:
        """Put a running trial back to WAITING; it goes on from its last checkpoint."""
        self.recover_output(trial_id)
        running = self._running.pop(trial_id)
        running.history.close()
        self._ledger.release(running.entry)
        run_id = self._ledger.get(running.entry).attributes.get("mlflow_run_id")
        if run_id is not None:
            self._with_tracker(lambda: self._tracker.pause(run_id))

    def died(self, trial_id: str, why: str) -> int:
        """Note that the process of a trial died. Returns: how often that has happened to it."""
        running = self._running[trial_id]
        deaths = int(self._ledger.get(running.entry).attributes.get("deaths", 0)) + 1
        self._ledger.note(running.entry, "deaths", deaths)
        self._append_log(trial_id, f"[the worker process died: {why}]\n")
        return deaths

    def recover_output(self, trial_id: str) -> str | None:
        """Log what a dead worker printed and never sent. Returns: that, or None where it cannot be read."""
        running = self._running[trial_id]
        path = self._folder.trial(trial_id) / "output.txt"
        if not path.exists():
            return None
        with path.open("rb") as file:
            file.seek(running.log_bytes)
            text = file.read().decode("utf-8", errors="replace")
        path.unlink()
        running.log_bytes = 0
        self._append_log(trial_id, text)
        return text

    # --- the tracking server may be down ---

    def _with_tracker(self, action: Callable[[], object]) -> None:
        if time.monotonic() < self._tracker_rests_until:
            self.tracker_lags = True
            return
        try:
            action()
        except TrackingError as error:
            self.tracker_lags = True
            self._tracker_rests_until = time.monotonic() + TRACKER_REST_S
            self._warn(f"MLflow does not answer ({error}); the study goes on, what is missing is filled in later")


def outcome_of(ending: Ending, rows: list[Row], primary: Metric) -> Outcome:
    """How a trial ended, from how its function came back and what it had reported."""
    metrics = last_values(rows) | dict(ending.metrics)
    if ending.reason:
        return Outcome("FAIL", ending.reason, metrics=metrics, error=ending.error)
    value = metrics.get(primary.name) if primary.at == "last" else value_at(rows, primary.name, primary.at)
    if value is None:
        at = "" if primary.at == "last" else f" at {primary.at}"
        seen = ", ".join(sorted(metrics)) or "none"
        error = f"metric {primary.name!r} was not reported{at}; reported: {seen}"
        return Outcome("FAIL", "missing_metric", metrics=metrics, error=error)
    if not math.isfinite(value):
        return Outcome("FAIL", "diverged", metrics=metrics, error=f"{primary.name} is {value}")
    return Outcome("COMPLETE", value=value, metrics=metrics)


def begin_attempt(folder: RunFolder, entry: LedgerTrial) -> None:
    """Set the files of an earlier attempt aside, once."""
    path = folder.trial(entry.trial_id)
    path.mkdir(parents=True, exist_ok=True)
    marker = path / "attempt"
    present = int(marker.read_text()) if marker.exists() else 1
    if present < entry.attempt:
        aside = path / f"attempt-{present}"
        aside.mkdir(exist_ok=True)
        for name in ("history.jsonl", "log.txt", "config.json", "texts"):
            if (path / name).exists():
                (path / name).replace(aside / name)
        (path / KEPT_REPORTS).unlink(missing_ok=True)
        shutil.rmtree(folder.checkpoints(entry.trial_id), ignore_errors=True)
    write_atomically(marker, str(entry.attempt))


def open_run(folder: RunFolder, tracker: Tracker, ledger: Ledger, entry: LedgerTrial) -> str:
    """The MLflow run of an attempt: the one noted, the one a killed driver left, or a new one. Returns: its id."""
    noted = entry.attributes.get("mlflow_run_id")
    if noted is not None:
        return str(noted)
    found = tracker.find(entry.trial_id, entry.attempt) if entry.attributes.get("run_asked_for") else None
    if found is None:
        if not entry.finished:
            ledger.note(entry, "run_asked_for", True)
        found = new_run(folder, tracker, entry)
    if not entry.finished:
        ledger.note(entry, "mlflow_run_id", found)
    return found


def new_run(folder: RunFolder, tracker: Tracker, entry: LedgerTrial) -> str:
    """Make the MLflow run of an attempt. Returns: its id."""
    arm, seed = str(entry.attributes["arm"]), entry.attributes["seed"]
    tags = {"ablate.trial_id": entry.trial_id, "ablate.attempt": str(entry.attempt)}
    tags |= {f"ablate.{name}": str(entry.attributes[name]) for name in ("arm", "seed", "replicate", "designs")}
    started = entry.started.timestamp() if entry.started else time.time()
    config_file = folder.trial(entry.trial_id) / "config.json"
    config = json.loads(config_file.read_text(encoding="utf-8")) if config_file.exists() else {}
    return tracker.start(f"{arm} · seed {seed}", tags, config | {"arm": arm, "seed": seed}, started)


def close_run(
    folder: RunFolder, tracker: Tracker, ledger: Ledger, entry: LedgerTrial, outcome: Outcome, run_id: str | None = None
) -> str:
    """Bring an attempt's MLflow run to its end: curves, artifacts, status. Can be repeated. Returns: its id."""
    run_id = run_id or open_run(folder, tracker, ledger, entry)
    tracker.log(run_id, thinned(read_history(folder.history(entry.trial_id))))
    tags = {
        name.replace("note.", "ablate."): value if isinstance(value, str) else json.dumps(value)
        for name, value in entry.attributes.items()
        if name.startswith("note.")
    }
    if outcome.reason:
        tags |= {"ablate.reason": outcome.reason, "ablate.error": outcome.error}
    trial = folder.trial(entry.trial_id)
    artifacts = [trial / name for name in ("history.jsonl", "log.txt", "config.json")]
    artifacts += sorted(folder.texts(entry.trial_id).glob("*"))
    ended = entry.ended.timestamp() if entry.ended else time.time()
    if entry.started:
        ended = max(ended, entry.started.timestamp())  # the clock may have been set back
    tracker.end(run_id, outcome.state, tags=tags, artifacts=artifacts, end_s=ended)
    return run_id
