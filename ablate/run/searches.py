"""The searches of a study while it runs: asks for arms, and tells the samplers what came of them."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ablate.errors import StudyError
from ablate.plan.arms import BASELINE
from ablate.plan.model import Arm, Plan, PlannedTrial, Proposal, SearchResult
from ablate.plan.planning import Planner
from ablate.plan.searches import REFUSED_IN_A_ROW, SearchTask, empty_space
from ablate.plan.space import Answer
from ablate.record.optuna_search import SearchRecord, make_pruner
from ablate.record.optuna_storage import Ledger, LedgerTrial, Outcome
from ablate.record.run_folder import RunFolder
from ablate.spec.models import EarlyStop, StudySpec
from ablate.spec.paths import same
from ablate.workloads.contract import Row

Open = Callable[[SearchTask], SearchRecord]


class Searches:
    """What the searches of a study still ask for. Used by one process, the one that holds the study.

    First the nuisance factors of each arm are tuned, then all arms that are compared are trained, then searches
    propose arms, one search after the other; in the end their winners are confirmed.

    Args:
        planner: of the study.
        plan: as it stands.
        open_record: the record of a search, made where it is not there yet.
        slots: how many trials run at once: so many proposals are open at a time.
        early_stop: whether a proposal that is behind is stopped.
    """

    def __init__(
        self, planner: Planner, plan: Plan, ledger: Ledger, open_record: Open, *, slots: int, early_stop: bool
    ) -> None:
        self._planner = planner
        self.plan = plan
        self._ledger = ledger
        self._slots = slots
        self._early_stop = early_stop
        self._tasks: dict[str, SearchTask] = {task.name: task for task in (*planner.tunings, *planner.searches)}
        self._records = {name: open_record(task) for name, task in self._tasks.items()}
        self._planned_after = self._finished()
        self._warmed: set[str] = set()
        self._ready: deque[PlannedTrial] = deque()
        self._outcomes: dict[str, Outcome] = {}
        for trial_id, entry in ledger.latest().items():
            self._note_entry(trial_id, entry)
        for name, record in self._records.items():
            for proposal in record.proposals():
                if proposal.own and not proposal.ended:
                    self._settle(name, proposal)
                elif proposal.state == "FAIL":
                    self._take_up(name, proposal)

    @property
    def pending(self) -> int:
        """How many trials are still to come beside those of the plan."""
        return sum(part.trials for part in self.plan.pending)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to propose or to confirm."""
        return not self._ready and not self.plan.pending

    def more(self, *, running: bool) -> list[PlannedTrial]:
        """Trials that can be named now; none where something that runs has to end first.

        Raises: StudyError where a space turns out to hold no arm.
        """
        if self._ready:
            found = list(self._ready)
            self._ready.clear()
            return found
        for task in self._planner.tunings:
            if not self._complete(task) and self._open(task) == 0 and (found := self._ask(task)):
                return found
        if not all(map(self._complete, self._planner.tunings)):
            return []
        if found := self._made_known():
            return found
        if running and not any(map(self._open, self._planner.searches)):
            return []  # searches begin once all arms that are compared have ended
        unfinished = [task for task in self._planner.searches if not self._complete(task)]
        if not unfinished:
            return []
        self._warm_start(unfinished[0])
        return self._ask(unfinished[0]) if self._open(unfinished[0]) < self._slots else []

    def ended(self, trial_id: str, outcome: Outcome) -> None:
        """Take how a trial ended: its proposal may have ended with it."""
        self._outcomes[trial_id] = outcome
        for name, record in self._records.items():
            for proposal in record.proposals():
                if not proposal.own or trial_id not in proposal.trial_ids:
                    continue
                if not proposal.ended:
                    self._settle(name, proposal)
                elif proposal.state == "FAIL":
                    self._take_up(name, proposal)

    def behind(self, trial_id: str, rows: Sequence[Row]) -> bool:
        """Note what a running trial reported of the objective; whether it is behind and should stop."""
        if not self._early_stop:
            return False
        for task in self._planner.searches:
            record = self._records[task.name]
            objective = task.settings.objectives[0].name
            for proposal in record.proposals():
                if proposal.ended or not proposal.own or trial_id != proposal.trial_ids[0]:
                    continue
                if proposal.arm not in self._proposed_arms:
                    return False  # an arm that is compared runs to its end
                values = [(row.step, row.metrics[objective]) for row in rows if objective in row.metrics]
                return any(record.report(proposal.number, step, value) for step, value in values if value == value)
        return False

    # --- inside ---

    @property
    def _proposed_arms(self) -> set[str]:
        return {arm.label for arm in self.plan.arms if arm.role == "proposal"}

    def _result(self, task: SearchTask) -> SearchResult:
        record = self._records[task.name]
        return SearchResult(tuple(record.proposals()), record.exhausted)

    def _complete(self, task: SearchTask) -> bool:
        return task.complete(self._result(task))

    def _open(self, task: SearchTask) -> int:
        return sum(proposal.own and not proposal.ended for proposal in self._result(task).proposals)

    def _finished(self) -> frozenset[str]:
        return frozenset(name for name, task in self._tasks.items() if self._complete(task))

    def _made_known(self) -> list[PlannedTrial]:
        """Trials that searches which have finished since the last plan make known: tuned arms, winners to confirm."""
        finished = self._finished()
        if finished == self._planned_after:
            return []
        self._planned_after = finished
        results = {name: self._result(task) for name, task in self._tasks.items()}
        known = {trial.trial_id for trial in self.plan.trials}
        self.plan = self._planner.plan(results)
        new = [trial for trial in self.plan.trials if trial.trial_id not in known]
        self._enter(new)
        return new

    def _enter(self, trials: Sequence[PlannedTrial]) -> None:
        latest = self._ledger.latest()
        self._ledger.add([trial for trial in trials if trial.trial_id not in latest], self.plan)
        for trial in trials:
            if trial.trial_id in latest:
                self._note_entry(trial.trial_id, latest[trial.trial_id])

    def _note_entry(self, trial_id: str, entry: LedgerTrial) -> None:
        if entry.finished and entry.outcome is not None:
            self._outcomes[trial_id] = entry.outcome

    def _ask(self, task: SearchTask) -> list[PlannedTrial]:
        """Ask for proposals until one brings a trial that is not on record, or nothing is left to ask for."""
        record = self._records[task.name]
        while task.left(self._result(task)):
            number, answer, arm = self._feasible(task, record)
            if arm is None:
                break
            seeds = task.seeds[:1] if self._early_stop and task.arm is None else task.seeds
            trials = self._planner.trials_of(arm, seeds)
            proposal = record.enter(number, answer, arm.label, seeds, [trial.trial_id for trial in trials])
            known = {trial.trial_id for trial in self.plan.trials}
            new = [trial for trial in trials if trial.trial_id not in known]
            self._extend(task, arm, new)
            if new:
                self._settle(task.name, proposal)
                return new
            self._settle(task.name, proposal)
        return self._made_known()

    def _feasible(self, task: SearchTask, record: SearchRecord) -> tuple[int, Answer, Arm | None]:
        """The next answer that an arm can be made of; no arm where the space ended before."""
        reasons: dict[str, int] = {}
        number, answer = 0, Answer({}, {})
        while sum(reasons.values()) < REFUSED_IN_A_ROW and not record.exhausted:
            number, answer = record.ask()
            made = self._planner.propose(task, number, answer, self.plan.arms)
            if isinstance(made, Arm):
                return number, answer, made
            record.reject(number, answer, made)
            reasons[made] = reasons.get(made, 0) + 1
        if record.exhausted:
            return number, answer, None
        raise StudyError(f"{task.name}: {empty_space(reasons)}")

    def _extend(self, task: SearchTask, arm: Arm, new: Sequence[PlannedTrial]) -> None:
        """Take a proposed arm and its trials into the plan and the ledger."""
        if arm.label not in {known.label for known in self.plan.arms}:
            self.plan = replace(self.plan, arms=(*self.plan.arms, arm))
        left = task.left(self._result(task)) * len(task.seeds)
        pending = tuple(replace(part, trials=left) if part.search == task.name else part for part in self.plan.pending)
        pending = tuple(part for part in pending if part.trials)
        self.plan = replace(self.plan, trials=(*self.plan.trials, *new), pending=pending)
        self._enter(new)

    def _settle(self, name: str, proposal: Proposal) -> None:
        """Tell the sampler of a proposal whose trials have all ended; let the other seeds of a survivor run."""
        outcomes = [self._outcomes.get(trial_id) for trial_id in proposal.trial_ids]
        if any(outcome is None for outcome in outcomes):
            return
        task, record = self._tasks[name], self._records[name]
        ended = [outcome for outcome in outcomes if outcome is not None]
        state, values, reason = _told(ended, [objective.name for objective in task.settings.objectives])
        if state == "COMPLETE" and len(proposal.seeds) < len(task.seeds) and self._early_stop and task.arm is None:
            self._run_other_seeds(task, record, proposal)
            return
        record.tell(proposal.number, state, values, reason)

    def _take_up(self, name: str, proposal: Proposal) -> None:
        """Tell the sampler of a failed proposal whose trainings, run again, have ended well: as a new one, ended."""
        record = self._records[name]
        outcomes = [self._outcomes.get(trial_id) for trial_id in proposal.trial_ids]
        ended = [outcome for outcome in outcomes if outcome is not None and outcome.state == "COMPLETE"]
        known = {other.again for other in record.proposals()}
        if proposal.number in known or not ended or len(ended) < len(outcomes):
            return
        names = [objective.name for objective in self._tasks[name].settings.objectives]
        state, values, _ = _told(ended, names)
        if state == "COMPLETE" and values is not None:
            record.again(proposal, values)

    def _run_other_seeds(self, task: SearchTask, record: SearchRecord, proposal: Proposal) -> None:
        arm = next(arm for arm in self.plan.arms if arm.label == proposal.arm)
        trials = self._planner.trials_of(arm, task.seeds)
        record.extend(proposal.number, task.seeds, [trial.trial_id for trial in trials])
        known = {trial.trial_id for trial in self.plan.trials}
        new = [trial for trial in trials if trial.trial_id not in known]
        self._extend(task, arm, new)
        self._ready.extend(new)
        if not new:
            self._settle(task.name, replace(proposal, seeds=task.seeds, trial_ids=tuple(t.trial_id for t in trials)))

    def _warm_start(self, task: SearchTask) -> None:
        """Tell the sampler of the comparison arms in its space, once they have run."""
        if task.name in self._warmed or not task.settings.warm_start:
            return
        self._warmed.add(task.name)
        record = self._records[task.name]
        told = {proposal.trial_ids for proposal in record.proposals()}
        for arm, answers in self._arms_in(task):
            trial_ids = [trial.trial_id for trial in self._planner.trials_of(arm, task.seeds)]
            outcomes = [self._outcomes.get(trial_id) for trial_id in trial_ids]
            ended = [outcome for outcome in outcomes if outcome is not None and outcome.state == "COMPLETE"]
            if tuple(trial_ids) in told or len(ended) < len(trial_ids):
                continue
            state, values, _ = _told(ended, [objective.name for objective in task.settings.objectives])
            if state == "COMPLETE" and values is not None:
                record.warm_start(answers, arm.label, task.seeds, trial_ids, values)

    def _arms_in(self, task: SearchTask) -> Iterator[tuple[Arm, Mapping[str, object]]]:
        """The compared arms that differ from the baseline in what is searched alone, and where they lie."""
        baseline = next(arm for arm in self.plan.arms if arm.label == BASELINE)
        for arm in self.plan.arms:
            if arm.role not in ("baseline", "arm") or arm.relative:
                continue
            others = [path for path in arm.factors if path not in task.design.over]
            if all(same(arm.factors[path], baseline.factors[path]) for path in others):
                answers = task.space.locate(arm.factors)
                if answers is not None:
                    yield arm, answers


def _told(outcomes: Sequence[Outcome], objectives: Sequence[str]) -> tuple[str, list[float] | None, str]:
    """State, mean of each objective and reason of a proposal whose trainings ended like this."""
    for outcome in outcomes:
        if outcome.state == "FAIL":
            return "FAIL", None, outcome.reason
    if any(outcome.state == "PRUNED" for outcome in outcomes):
        return "PRUNED", None, ""
    values = []
    for name in objectives:
        found = [outcome.metrics[name] for outcome in outcomes if name in outcome.metrics]
        if len(found) < len(outcomes):
            return "FAIL", None, "missing_metric"
        mean = math.fsum(found) / len(found)
        if not math.isfinite(mean):
            return "FAIL", None, "diverged"
        values.append(mean)
    return "COMPLETE", values, ""


def open_searches(
    spec: StudySpec, planner: Planner, plan: Plan, ledger: Ledger, folder: RunFolder, slots: int
) -> Searches:
    """The searches of a study with their records, made where they are not there yet."""
    private = folder.path / "searches"
    private.mkdir(exist_ok=True)
    training = spec.baseline.get("training")
    steps = training.get("steps") if isinstance(training, Mapping) else None
    steps = steps if isinstance(steps, int) else None
    interval = None if steps is None else max(1, round(steps * spec.evaluation.every))

    def open_record(task: SearchTask) -> SearchRecord:
        pruner = make_pruner(spec.early_stop if task.arm is None else EarlyStop(), interval, steps)
        stem = hashlib.sha256(task.name.encode()).hexdigest()[:12]  # the name of an arm is no file name
        name = f"{spec.study}/{task.name}"
        return SearchRecord(ledger.storage, name, task.settings, task.space, pruner, private / f"{stem}.jsonl")

    stops = spec.early_stop.kind != "none"
    return Searches(planner, plan, ledger, open_record, slots=slots, early_stop=stops)
