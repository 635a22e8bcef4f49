"""What a run came to, in numbers and one exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.plan.model import PlannedTrial
from ablate.record.optuna_storage import LedgerTrial
from ablate.record.run_folder import RunFolder
from ablate.run.stopping import INTERRUPTED


@dataclass(frozen=True)
class Failure:
    """A trial that failed."""

    trial_id: str
    arm: str
    seed: int
    reason: str
    error: str


@dataclass(frozen=True)
class RunSummary:
    """What a run came to.

    Attributes:
        states: how many of the chosen trials are in each state.
        ran: how many were to run.
        pending: how many more the plan asks for, which no one can name yet.
        stopped: why the study stopped before its end, or "".
    """

    study: str
    folder: RunFolder
    states: Mapping[str, int]
    failures: tuple[Failure, ...]
    ran: int
    stopped: str
    pending: int = 0

    @property
    def exit_code(self) -> int:
        """0 where every trial has a result, 130 after an interrupt, else 1."""
        if self.stopped == INTERRUPTED:
            return 130
        failed = [failure for failure in self.failures if failure.reason != "diverged"]
        unfinished = self.states.get("WAITING", 0) + self.states.get("RUNNING", 0) + self.pending
        return 1 if failed or unfinished or self.stopped else 0


def summarise(
    study: str,
    folder: RunFolder,
    chosen: Sequence[PlannedTrial],
    latest: Mapping[str, LedgerTrial],
    *,
    ran: int,
    stopped: str,
    pending: int = 0,
) -> RunSummary:
    """Count what became of the chosen trials."""
    entries = [latest[trial.trial_id] for trial in chosen]
    return RunSummary(
        study,
        folder,
        Counter(entry.state for entry in entries),
        failures_of(entries),
        ran=ran,
        stopped=stopped,
        pending=pending,
    )


def failures_of(entries: Sequence[LedgerTrial]) -> tuple[Failure, ...]:
    """The failed ones, with their reasons."""
    failures = []
    for entry in entries:
        if entry.state == "FAIL":
            outcome = entry.outcome
            reason, error = (outcome.reason, outcome.error) if outcome else ("unknown", "")
            arm, seed = str(entry.attributes["arm"]), int(entry.attributes["seed"])
            failures.append(Failure(entry.trial_id, arm, seed, reason, error))
    return tuple(failures)
