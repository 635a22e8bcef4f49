"""Which trials an invocation is about, their places in the ledger, and which of them are to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ablate.errors import StudyError
from ablate.plan.model import Plan, PlannedTrial
from ablate.record.optuna_storage import Ledger, LedgerTrial
from ablate.run.invocation import Invocation, RunOptions


def chosen_trials(plan: Plan, labels: Sequence[str]) -> list[PlannedTrial]:
    """The trials of arms with these labels; all where there are none."""
    return [trial for trial in plan.trials if not labels or trial.arm.label in labels]


def enter_trials(invocation: Invocation, plan: Plan, chosen: Iterable[PlannedTrial]) -> None:
    """Have each trial of the plan in the ledger, and a new attempt of each chosen one that is to run again.

    Raises: StudyError where finished ones ran with other code and nobody said what to do.
    """
    ledger, options, code = invocation.ledger, invocation.options, invocation.code_hash
    known = ledger.latest()
    ledger.add([trial for trial in plan.trials if trial.trial_id not in known], plan)
    latest = ledger.latest()
    entries = {trial.trial_id: latest[trial.trial_id] for trial in chosen if trial.trial_id in latest}
    if options.on_new_code == "ask":
        _check_code(plan.spec.study, entries, code)
    for trial in chosen:
        entry = entries.get(trial.trial_id)
        if entry is not None and entry.finished and _runs_again(entry, options, code):
            ledger.add([trial], plan, attempt=entry.attempt + 1)


def unfinished(ledger: Ledger, chosen: Iterable[PlannedTrial]) -> list[PlannedTrial]:
    """Those that have not ended."""
    latest = ledger.latest()
    return [trial for trial in chosen if not latest[trial.trial_id].finished]


def _check_code(study: str, entries: Mapping[str, LedgerTrial], code: str) -> None:
    other = [entry for entry in entries.values() if entry.state == "COMPLETE" and _noted_code(entry) != code]
    if other:
        raise StudyError(
            f"{len(other)} finished trials of {study} ran with other code than the present one "
            f"(code hash {_noted_code(other[0])}, now {code}); "
            "--keep-old keeps them beside new ones, --rerun runs them again"
        )


def _runs_again(entry: LedgerTrial, options: RunOptions, code: str) -> bool:
    if entry.state == "FAIL" and options.retry_failed:
        outcome = entry.outcome
        return outcome is None or outcome.reason != "diverged"
    return options.on_new_code == "rerun" and _noted_code(entry) != code


def _noted_code(entry: LedgerTrial) -> str:
    return str((entry.attributes.get("provenance") or {}).get("code_hash", "unknown"))
