"""One run of one study: its records are opened and mended, what is left is run, what came of it is summed up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from ablate.plan.model import Plan, PlannedTrial
from ablate.record.mlflow_tracking import TrackingError
from ablate.record.optuna_search import search_results
from ablate.record.optuna_storage import LedgerTrial
from ablate.record.run_folder import write_atomically
from ablate.run.changes import note_changes
from ablate.run.entering import chosen_trials, enter_trials, unfinished
from ablate.run.invocation import Invocation
from ablate.run.provenance import git_state, hardware, versions
from ablate.run.ray_tune.session import Session
from ablate.run.reconcile import reconcile
from ablate.run.summary import RunSummary, summarise
from ablate.run.trials import run_trials
from ablate.spec.dumping import dump_study


def run_invocation(invocation: Invocation, cluster: Callable[[], Session]) -> RunSummary:
    """Run what is left of a study.

    Args:
        cluster: the Ray cluster, asked for where a trial is left.
    Raises: StudyError where the study cannot go on.
    """
    spec, planner, stop = invocation.spec, invocation.planner, invocation.stop
    plan = planner.plan(search_results(invocation.ledger, spec.study, planner.search_names()))
    _note_study(invocation, plan)
    _mend(invocation)
    chosen = chosen_trials(plan, invocation.options.arms)
    enter_trials(invocation, plan, chosen)
    todo = unfinished(invocation.ledger, chosen)
    searching = bool(plan.pending) and not invocation.options.arms
    if (todo or searching) and not stop.reason:
        plan, tracker_lags = run_trials(invocation, plan, todo, len(chosen) - len(todo), cluster())
        if tracker_lags:
            _mend(invocation)
    elif not (todo or searching):
        invocation.progress.say("every trial is recorded; nothing to run")
    return _summed_up(invocation, plan, ran=len(todo) + int(searching))


def _note_study(invocation: Invocation, plan: Plan) -> None:
    """Keep the file, and what is known of code and machine, before anything runs."""
    spec, folder, ledger = invocation.spec, invocation.folder, invocation.ledger
    note_changes(folder, spec, ledger)
    write_atomically(folder.study_file, dump_study(spec))
    folder.write_settings(str(Path(spec.folder or ".").resolve()), plan.files)
    facts = dict(ledger.study_note("facts", {}))
    facts |= {"versions": versions(), "hardware": hardware()} | git_state(Path(spec.folder or "."))
    ledger.set_study_note("facts", {name: value for name, value in facts.items() if name != "git_diff"})
    tags = {f"ablate.{name}": str(value) for name, value in facts.items()}
    _with_tracker(invocation, lambda: invocation.tracker.open_study({"mlflow.note.content": spec.question} | tags))


def _mend(invocation: Invocation) -> None:
    """Bring the records into agreement, and say what was mended."""

    def mend() -> None:
        for finding in reconcile(invocation.folder, invocation.ledger, invocation.tracker):
            invocation.progress.warn(str(finding))

    _with_tracker(invocation, mend)


def _with_tracker(invocation: Invocation, action: Callable[[], object]) -> None:
    try:
        action()
    except TrackingError as error:
        invocation.progress.warn(
            f"MLflow does not answer ({error}); the study goes on, what is missing is filled in later"
        )


def _summed_up(invocation: Invocation, plan: Plan, *, ran: int) -> RunSummary:
    spec, labels, latest = invocation.spec, invocation.options.arms, invocation.ledger.latest()
    with contextlib.suppress(TrackingError):
        invocation.tracker.end_study(not plan.pending and all(_has_ended(trial, latest) for trial in plan.trials))
    return summarise(
        spec.study,
        invocation.folder,
        chosen_trials(plan, labels),
        latest,
        ran=ran,
        stopped=invocation.stop.reason,
        pending=0 if labels else sum(part.trials for part in plan.pending),
    )


def _has_ended(trial: PlannedTrial, latest: Mapping[str, LedgerTrial]) -> bool:
    return trial.trial_id in latest and latest[trial.trial_id].finished
