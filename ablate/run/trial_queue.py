"""Which trial runs next, and what becomes of one that fails, dies or is stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ablate.plan.model import PlannedTrial
from ablate.record.optuna_storage import LedgerTrial, Outcome
from ablate.run.assignment import Assignment, Message
from ablate.run.packs import Packs
from ablate.run.progress import StudyProgress
from ablate.run.recorder import Recorder
from ablate.run.searches import Searches
from ablate.run.stopping import StopRequest
from ablate.run.suspects import Suspects
from ablate.run.worker import TIMEOUT_MARK
from ablate.spec.models import Run
from ablate.workloads.contract import Row

#: A failure rate is not judged before this many failures.
FEWEST_FAILURES = 3


class TrialQueue:
    """The trials that this invocation is to run, in the plan's order."""

    def __init__(
        self,
        trials: Sequence[PlannedTrial],
        *,
        entries: Callable[[], Mapping[str, LedgerTrial]],
        recorder: Recorder,
        assignment: Callable[[PlannedTrial, int, Row], Assignment],
        notes: Callable[[PlannedTrial], Mapping[str, Any]],
        run: Run,
        progress: StudyProgress,
        stop: StopRequest,
        searches: Searches | None = None,
        packs: Packs | None = None,
    ) -> None:
        self._trials = {trial.trial_id: trial for trial in trials}
        self._waiting = deque(trials)
        self._entries = entries
        self._known = dict(entries())
        self._recorder = recorder
        self._assignment = assignment
        self._notes = notes
        self._run = run
        self._progress = progress
        self._stop = stop
        self._searches = searches
        self._packs = packs or Packs()
        self._nothing_new: tuple[int, int] | None = None
        self._endings = 0
        self._failures = 0
        self._errors: set[str] = set()
        self._suspects = Suspects()  # those that wait are the first of _waiting
        for trial_id, entry in self._known.items():
            if entry.attributes.get("deaths"):
                self._suspects.set_apart(trial_id)
        self._together: dict[str, tuple[str, ...]] = {}  # trial -> all that its process was given
        self._unswept: set[str] = set()  # ended early: a last checkpoint may still be on its way
        self.settled = 0

    # --- what the executor asks ---

    def next_assignments(self) -> tuple[Assignment, ...]:
        """Claim the next waiting trials for one process; where none waits, some that a search proposes."""
        while not self.should_stop():
            if self._suspects and self._recorder.running:
                return ()
            if not self._waiting:
                self._propose()
            if not self._waiting:
                return ()
            taken = self._packs.take(self._waiting, self._suspects.may_share)
            begun = {trial.trial_id: made for trial in taken if (made := self._begin(trial)) is not None}
            if begun:
                self._together |= dict.fromkeys(begun, tuple(begun))
                return tuple(begun.values())
        return ()

    def _begin(self, trial: PlannedTrial) -> Assignment | None:
        """Claim a trial; None where it no longer waits."""
        entry = self._known[trial.trial_id]
        if self._recorder.begin(trial, entry, self._notes(trial)):
            self._progress.started(trial)
            return self._assignment(trial, entry.attempt, self._recorder.last_row(trial.trial_id))
        self._suspects.drop(trial.trial_id)
        return None

    def _propose(self) -> None:
        """Take in what searches can name now; they are asked again only once something has changed."""
        state = (self._endings, len(self._recorder.running))
        if self._searches is None or state == self._nothing_new:
            return
        new = self._searches.more(running=bool(self._recorder.running))
        self._nothing_new = None if new else state
        if new:
            self._known = dict(self._entries())
        self._trials |= {trial.trial_id: trial for trial in new}
        self._waiting.extend(trial for trial in new if not self._known[trial.trial_id].finished)
        self._progress.expect(len(self._trials) + self._searches.pending)

    def exhausted(self) -> bool:
        """Whether no trial is left to start and none is running."""
        if self._waiting or self._recorder.running:
            return False
        return self._searches is None or self._searches.complete

    def should_stop(self) -> bool:
        """Whether running trials are to be stopped now."""
        return bool(self._stop.reason)

    # --- what the executor tells ---

    def receive(self, message: Message) -> bool:
        """Record what a worker sent. Returns: whether its trial is to end now."""
        trial_id = message.trial_id
        if trial_id not in self._recorder.running or self._recorder.attempt_of(trial_id) != message.attempt:
            return True
        outcome = self._recorder.receive(message)
        if message.apart and len(self._together[trial_id]) > 1:
            self._set_apart([trial_id], message.apart)
            return True
        if outcome is None and self._searches is not None and self._searches.behind(trial_id, message.rows):
            outcome = self._recorder.prune(trial_id)
        if outcome is not None:
            self._ended(trial_id, outcome)
        elif self._suspects.clear(trial_id, message.checkpoint_step) and self._suspects:
            self._put_back(trial_id, "runs alone; waits for other trials that were running when Ray gave up")
            self._waiting.insert(len(self._suspects), self._trials[trial_id])
            return True
        return outcome is not None and message.ending is None

    def left(self, trial_ids: Sequence[str]) -> None:
        """Put back what a process was given and left before its end: it was stopped."""
        for trial_id in self._left_running(trial_ids):
            self._put_back(trial_id, "stopped")

    def _left_running(self, trial_ids: Sequence[str]) -> list[str]:
        """Those of a process that is back which have not ended, nor been given to another; sweeps up after others."""
        for trial_id in self._unswept & set(trial_ids):  # again after the round: one alone may not have left its step
            self._recorder.sweep(trial_id)
        running = self._recorder.running
        return [name for name in trial_ids if name in running and self._together[name] == tuple(trial_ids)]

    def died(self, trial_ids: Sequence[str], why: str, *, crowded: bool = False) -> None:
        """Try trials of a dead process again: those of a pack alone, any other unless it has died too often.

        Args:
            trial_ids: all that the process was given.
            crowded: whether its node ran out of memory, for which a trial of another process may be to blame.
        """
        left = [trial_id for trial_id in self._left_running(trial_ids) if not self._explained(trial_id)]
        if not left:
            return
        if crowded and not self._was_alone(self._recorder.running):
            for trial_id in reversed(left):
                self._suspect(trial_id, why)
        elif len(trial_ids) > 1:
            self._set_apart(left, f"its process died ({why})")
        else:
            self._died_alone(left[0], why)

    def _died_alone(self, trial_id: str, why: str) -> None:
        self.settled += 1
        self._suspects.set_apart(trial_id)
        deaths = self._recorder.died(trial_id, why)
        if deaths > self._run.retries:
            error = f"its process died {deaths} times; last: {why}"
            self._ended(trial_id, self._recorder.fail(trial_id, "died", error))
        else:
            self._put_back(trial_id, f"its process died ({why}); tried again from its last checkpoint")
            self._waiting.appendleft(self._trials[trial_id])

    def _set_apart(self, trial_ids: Sequence[str], why: str) -> None:
        """Have trials of a pack go on alone, before all others: whichever is to blame shows then."""
        self.settled += 1
        for trial_id in reversed(trial_ids):
            self._suspects.set_apart(trial_id)
            self._put_back(trial_id, f"was trained with others: {why}; goes on alone, from its last checkpoint")
            self._waiting.appendleft(self._trials[trial_id])

    def _was_alone(self, running: Sequence[str]) -> bool:
        """Whether what runs is in one process that had no neighbour, not even one that died a moment ago."""
        processes = {self._together[trial_id] for trial_id in running}
        return len(processes) == 1 and (running[0] in self._suspects or not self._suspects)

    def _suspect(self, trial_id: str, why: str) -> None:
        self._suspects.add(trial_id, self._recorder.last_row(trial_id).step)
        self._put_back(
            trial_id, f"died, or ran beside one that did ({why}); tried again alone, from its last checkpoint"
        )
        self._waiting.appendleft(self._trials[trial_id])

    def _explained(self, trial_id: str) -> bool:
        """Whether a dead trial needs no second try: the study stops, or its time was up. Records that."""
        printed = self._recorder.recover_output(trial_id)
        if self.should_stop():
            self._put_back(trial_id, "stopped")
            return True
        alone = len(self._together[trial_id]) == 1
        if alone and self._timed_out(trial_id, printed):
            limit = self._run.timeout_s
            self._ended(trial_id, self._recorder.fail(trial_id, "timeout", f"not finished after {limit:g} s"))
            return True
        return False

    def _timed_out(self, trial_id: str, printed: str | None) -> bool:
        """Whether a process ended because its time was up: it says so last of all; one on another machine is timed."""
        if self._run.timeout_s is None:
            return False
        if printed is None:
            return self._recorder.elapsed_s(trial_id) >= self._run.timeout_s
        return TIMEOUT_MARK in printed

    def abort(self) -> None:
        """Start nothing more."""
        self._stop.ask("a record could not be written")

    # --- what the study asks ---

    def round_ended(self, given_up: Exception | None) -> None:
        """Account for trials that a round left running: Ray gave up on all of them at once, or they were stopped."""
        for trial_id in self._unswept:
            self._recorder.sweep(trial_id)
        self._unswept.clear()
        running = self._recorder.running
        if given_up is None:
            for trial_id in running:
                self._put_back(trial_id, "stopped")
            return
        why = str(given_up).splitlines()[0].removeprefix("Caught unexpected exception: ") if str(given_up) else ""
        why = why or type(given_up).__name__
        if self._was_alone(running):
            self.died(self._together[running[0]], why)
            return
        for trial_id in reversed(running):
            if not self._explained(trial_id):
                self._suspect(trial_id, why)

    def _put_back(self, trial_id: str, why: str) -> None:
        self._recorder.release(trial_id)
        self._known[trial_id] = self._entries()[trial_id]
        self._progress.put_back(self._trials[trial_id], why)

    def _ended(self, trial_id: str, outcome: Outcome) -> None:
        self.settled += 1
        self._suspects.drop(trial_id)
        self._endings += 1
        self._progress.ended(self._trials[trial_id], outcome)
        if outcome.state != "COMPLETE":
            self._unswept.add(trial_id)
        if self._searches is not None:
            self._searches.ended(trial_id, outcome)
        if outcome.state == "FAIL" and outcome.reason != "diverged":
            self._failures += 1
            self._errors.add(f"{outcome.reason}: {outcome.error.splitlines()[0] if outcome.error else ''}")
            allowed = self._run.max_failure_rate * len(self._trials)
            if self._failures >= FEWEST_FAILURES and self._failures > allowed:
                same = f"; each with {next(iter(self._errors))}" if len(self._errors) == 1 else ""
                self._stop.ask(
                    f"{self._failures} of {len(self._trials)} trials failed, more than run.max_failure_rate "
                    f"{self._run.max_failure_rate:g} allows{same}"
                )
