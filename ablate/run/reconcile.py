"""Verifies that the ledger, MLflow and the trials' files tell the same story, and mends what can be mended."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.record.history import last_values, read_history
from ablate.record.mlflow_tracking import STATUS, TrackedRun, Tracker, thinned
from ablate.record.optuna_storage import Ledger, LedgerTrial
from ablate.record.run_folder import RunFolder
from ablate.run.recorder import close_run, new_run


@dataclass(frozen=True)
class Finding:
    """One place where the records were at odds."""

    text: str
    mended: bool

    def __str__(self) -> str:
        return f"{'mended' if self.mended else 'NOT MENDED'}: {self.text}"


def reconcile(folder: RunFolder, ledger: Ledger, tracker: Tracker) -> list[Finding]:
    """Bring the records of a study that no process runs into agreement.

    Raises: TrackingError where MLflow does not answer.
    """
    findings = _end_orphans(folder, ledger, tracker)
    return findings + _agree_with_mlflow(folder, ledger, tracker)


def _name(entry: LedgerTrial) -> str:
    return f"{entry.attributes['arm']} · seed {entry.attributes['seed']} ({entry.trial_id})"


def _end_orphans(folder: RunFolder, ledger: Ledger, tracker: Tracker) -> list[Finding]:
    """Trials that a killed driver left RUNNING: end those whose outcome was noted, put the others back."""
    findings = []
    for entry in ledger.attempts():
        if entry.state != "RUNNING":
            continue
        if entry.outcome is not None:
            if _is_there(tracker, entry.attributes.get("mlflow_run_id")):
                close_run(folder, tracker, ledger, entry, entry.outcome)
            ledger.finish(entry, entry.outcome)
            findings.append(Finding(f"{_name(entry)} had ended as {entry.outcome.state}; its records now say so", True))
        else:
            ledger.release(entry)
            findings.append(Finding(f"{_name(entry)} was running when its driver died; it waits again", True))
    return findings


def _is_there(tracker: Tracker, run_id: str | None) -> bool:
    """Whether MLflow still has a noted run; a server that came back empty has not, and gets a new one later."""
    return run_id is None or any(run.run_id == run_id for run in tracker.runs())


def _agree_with_mlflow(folder: RunFolder, ledger: Ledger, tracker: Tracker) -> list[Finding]:
    runs: dict[tuple[str, int], list[TrackedRun]] = defaultdict(list)
    for tracked in tracker.runs():
        runs[tracked.trial_id, tracked.attempt].append(tracked)
    moved = dict(ledger.study_note("mlflow_runs", {}))
    findings = [Finding(text, False) for text in ledger.foreign()]
    seen: set[tuple[str, int]] = set()
    for entry in ledger.attempts():
        key = (entry.trial_id, entry.attempt)
        if key in seen:
            findings.append(Finding(f"{_name(entry)} stands twice in the ledger as attempt {entry.attempt}", False))
            continue
        seen.add(key)
        noted = moved.get(f"{entry.trial_id}/{entry.attempt}") or entry.attributes.get("mlflow_run_id")
        run, found = _the_run(tracker, entry, runs.get(key, []), noted)
        findings += found
        if entry.finished and entry.outcome is None:
            findings.append(
                Finding(f"{_name(entry)} is {entry.state} in the ledger, but how it ended is not noted", False)
            )
        elif entry.finished:
            run_id, found = _mend_finished(folder, ledger, tracker, entry, run)
            findings += found
            if run_id != noted:
                moved[f"{entry.trial_id}/{entry.attempt}"] = run_id
        elif run is not None and run.status == "RUNNING":
            tracker.pause(run.run_id)
            findings.append(Finding(f"{_name(entry)} was shown as running in MLflow; it waits", True))
    if moved != ledger.study_note("mlflow_runs", {}):
        ledger.set_study_note("mlflow_runs", moved)
    return findings


def _the_run(
    tracker: Tracker, entry: LedgerTrial, runs: Sequence[TrackedRun], noted: str | None
) -> tuple[TrackedRun | None, list[Finding]]:
    """The one run of an attempt; others, which a kill between two writes leaves, go to MLflow's bin."""
    if not runs:
        return None, []
    chosen = min(runs, key=lambda run: (run.deleted, run.run_id != noted))
    findings = []
    if chosen.deleted and entry.finished:
        tracker.restore(chosen.run_id)
        findings.append(Finding(f"{_name(entry)} had been deleted from MLflow; its run is restored", True))
    for run in runs:
        if run is not chosen and not run.deleted:
            tracker.discard(run.run_id)
            findings.append(
                Finding(f"{_name(entry)} had a second MLflow run {run.run_id}; it is in MLflow's bin", True)
            )
    return chosen, findings


def _mend_finished(
    folder: RunFolder, ledger: Ledger, tracker: Tracker, entry: LedgerTrial, run: TrackedRun | None
) -> tuple[str, list[Finding]]:
    outcome = entry.outcome
    assert outcome is not None
    rows = read_history(folder.history(entry.trial_id))
    findings = []
    if not rows and outcome.metrics:
        findings.append(Finding(f"{_name(entry)} has metrics, but its history.jsonl is missing or empty", False))
    if run is None:
        run_id = new_run(folder, tracker, entry)
        close_run(folder, tracker, ledger, entry, outcome, run_id)
        return run_id, [*findings, Finding(f"{_name(entry)} was missing from MLflow; it is written again", True)]
    logged = {name for row in thinned(rows) for name in row.metrics}
    differs = [name for name in logged if name in run.metrics and run.metrics[name] != last_values(rows)[name]]
    if run.status != STATUS[outcome.state] or not _finite(outcome.metrics) <= set(run.metrics):
        close_run(folder, tracker, ledger, entry, outcome, run.run_id)
        findings.append(Finding(f"{_name(entry)} had ended, but MLflow lacked a part of it; it is filled in", True))
    elif differs:
        text = f"{_name(entry)}: final {', '.join(sorted(differs))} in MLflow is not what its history says"
        findings.append(Finding(text, False))
    return run.run_id, findings


def _finite(metrics: Mapping[str, float]) -> set[str]:
    return {name for name, value in metrics.items() if math.isfinite(value)}
