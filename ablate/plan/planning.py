"""From a study to its plan: arms by seeds, trials named and in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from pydantic import BaseModel

from ablate.errors import Problem, SpecError
from ablate.plan.arms import BASELINE, ArmBuilder
from ablate.plan.controls import replicates, with_twins
from ablate.plan.files import Files
from ablate.plan.model import Arm, Pending, Plan, PlannedTrial, SearchResult
from ablate.plan.power import test_power
from ablate.plan.searches import CONFIRM_SEEDS, SearchPlanner, SearchTask, ranked, retuned, tuned_values
from ablate.plan.space import Answer
from ablate.plan.trials import TrialMaker
from ablate.plan.warnings import plan_warnings
from ablate.spec.models import StudySpec

MAX_TRIALS = 10_000_000

Results = Mapping[str, SearchResult]
"""What each search has proposed so far, by name."""


class Workload(Protocol):
    """What a plan needs to know of a workload."""

    @property
    def name(self) -> str:
        """As written in the study file."""

    @property
    def config_type(self) -> type[BaseModel] | None:
        """Model of the configuration, or None where it is free."""

    @property
    def fingerprint(self) -> Callable[[Mapping[str, Any]], str]:
        """Configuration to hash of the data's content. Reads the section `data` alone."""

    @property
    def files(self) -> Mapping[str, str]:
        """Paths that name a file, each with the path that takes the hash of its content."""

    @property
    def check(self) -> Callable[[Mapping[str, Any]], None]:
        """Raises StudyError where the beginning of a file cannot be what the configuration says."""

    @property
    def later(self) -> Mapping[str, Any]:
        """Paths that no identity covers where they have this value."""


def make_plan(spec: StudySpec, workload: Workload, results: Results | None = None) -> Plan:
    """The arms and trials of a study, in the order in which they run.

    Args:
        results: what its searches have proposed so far; what they have yet to propose is `pending`.
    Raises: SpecError for a design that yields no arm, a `when` that is never true.
    """
    return Planner(spec, workload).plan(results or {})


class Planner:
    """Makes the plan of a study, as far as it can be known, and the arms that searches propose.

    Raises: SpecError for a design that yields no arm, a `when` that is never true.
    """

    def __init__(self, spec: StudySpec, workload: Workload) -> None:
        self._spec = spec
        self._builder = ArmBuilder(spec, workload.config_type)
        self._files = Files(spec, workload.files, workload.later, workload.check)
        compared = [*with_twins(spec, self._builder.arms()), *replicates(spec)]
        self._check_size(len(compared))
        self._planner = SearchPlanner(spec, self._builder)
        self.searches = self._planner.searches()
        self.tunings = self._planner.tunings(compared)
        self._check_seeds()
        self._compared = self._files.arms(compared)
        self._trials = TrialMaker(spec, workload.name, workload.fingerprint, self._builder.configurations, self._files)
        self._block = range(spec.seeds.start, spec.seeds.start + spec.seeds.count)

    def plan(self, results: Results) -> Plan:
        """The plan after what searches have proposed so far."""
        pending = [*self._pending(self.tunings, results), *self._pending(self.searches, results)]
        arms, untuned = self._tuned(results)
        pending += [Pending(f"{arm.label}, once its nuisance factors are tuned", len(self._block)) for arm in untuned]
        proposed, also = self._proposed(arms, results)
        confirmed, awaited = self._confirmed(arms, results)
        left = {arm.label for arm in untuned}
        by_arm = [self._trials.trials(arm, self._block) for arm in arms if arm.label not in left]
        trials = [of_arm[index] for index in range(len(self._block)) for of_arm in by_arm]
        trials += [trial for arm, seeds in proposed + confirmed for trial in self._trials.trials(arm, seeds)]
        family = sum(arm.role == "arm" for arm in arms)
        power = test_power(len(self._block), family, self._spec.analysis.alpha / self._spec.analysis.looks)
        return Plan(
            spec=self._spec,
            arms=(*_with_designs(arms, also), *(arm for arm, _ in proposed + confirmed)),
            trials=tuple({trial.trial_id: trial for trial in trials}.values()),
            power=power,
            notes=(*self._builder.notes, *self._notes()),
            warnings=(*self._spec.warnings, *plan_warnings(self._spec, power, family)),
            files=self._files.content,
            pending=tuple(part for part in (*pending, *awaited) if part.trials),
            searches=dict(results),
        )

    def propose(self, task: SearchTask, number: int, answer: Answer, known: Iterable[Arm]) -> Arm | str:
        """The arm of an answer: one of the known where it has that content already; or why there is none."""
        made = self._planner.arm(task, number, answer)
        if isinstance(made, str):
            return made
        (arm,) = self._files.arms([made])
        return self._by_content(known).get(self._builder.content(arm.config), arm) if task.arm is None else arm

    def _by_content(self, arms: Iterable[Arm]) -> dict[bytes, Arm]:
        """The arms that a proposal may turn out to be, by their content; of equal ones the first."""
        found: dict[bytes, Arm] = {}
        for arm in arms:
            if arm.role in ("baseline", "arm", "proposal") and arm.replicate == 0:
                found.setdefault(self._builder.content(arm.config), arm)
        return found

    def search_names(self) -> list[str]:
        """Names of all searches, those of nuisance factors among them."""
        return [task.name for task in (*self.tunings, *self.searches)]

    def every_seed(self) -> list[int]:
        """Each seed that some trial of the study may have."""
        tuning = [seed for task in self.tunings[:1] for seed in task.seeds]
        fresh = [task.settings.confirm.seeds for task in self.searches if task.settings.confirm]
        return [*self._block, *tuning, *range(CONFIRM_SEEDS, CONFIRM_SEEDS + max(fresh, default=0))]

    def trials_of(self, arm: Arm, seeds: Iterable[int]) -> list[PlannedTrial]:
        """The trials of an arm, seed by seed."""
        return self._trials.trials(arm, seeds)

    # --- what hangs on results ---

    def _tuned(self, results: Results) -> tuple[list[Arm], list[Arm]]:
        """The compared arms with their nuisance factors tuned, and those that are not yet."""
        if not self.tunings:
            return list(self._compared), []
        tasks = {task.arm.label: task for task in self.tunings if task.arm is not None}
        found, untuned = [], []
        for arm in self._compared:
            task = tasks[arm.label if arm.role != "aa" else BASELINE]
            result = results.get(task.name, SearchResult())
            if task.complete(result):
                found.append(retuned(arm, tuned_values(task, result)))
            else:
                found.append(arm)
                untuned.append(arm)
        return found, untuned

    def _proposed(
        self, arms: Iterable[Arm], results: Results
    ) -> tuple[list[tuple[Arm, tuple[int, ...]]], dict[str, list[str]]]:
        """The arms that only searches have, each with its seeds; and what searches proposed of the others, by arm."""
        compared = self._by_content(arms)
        found: dict[str, tuple[Arm, tuple[int, ...]]] = {}
        also: dict[str, list[str]] = {}
        for task in (*self.tunings, *self.searches):
            for proposal in task.own(results.get(task.name, SearchResult())):
                if proposal.arm in found:
                    continue
                made = self._planner.arm(task, proposal.number, Answer(dict(proposal.values), dict(proposal.shares)))
                if isinstance(made, str):  # an edited constraint refuses what was trained before
                    continue
                (arm,) = self._files.arms([made])
                same = compared.get(self._builder.content(arm.config)) if task.arm is None else None
                if same is None:
                    found[proposal.arm] = arm, proposal.seeds
                elif task.name not in also.setdefault(same.label, []):
                    also[same.label].append(task.name)
        return list(found.values()), also

    def _confirmed(
        self, arms: Iterable[Arm], results: Results
    ) -> tuple[list[tuple[Arm, tuple[int, ...]]], list[Pending]]:
        """The winners of each search and the baseline, on fresh seeds; and those that are not known yet."""
        baseline = next(arm for arm in arms if arm.role == "baseline")
        found: list[tuple[Arm, tuple[int, ...]]] = []
        awaited = []
        for number, task in enumerate(self.searches, 1):
            confirm = task.settings.confirm
            if confirm is None:
                continue
            name = f"confirm-{number}"
            result = results.get(task.name, SearchResult())
            if not task.complete(result):
                awaited.append(Pending(f"{name}, the winners of {task.name} again", (confirm.top + 1) * confirm.seeds))
                continue
            seeds = tuple(range(CONFIRM_SEEDS, CONFIRM_SEEDS + confirm.seeds))
            again = {f"{name}/{BASELINE}": baseline}
            for proposal in ranked(task, result)[: confirm.top]:
                again[f"{name}/{proposal.number}"] = self._arm_of(
                    task, proposal.number, proposal.values, proposal.shares
                )
            found += [
                (replace(arm, label=label, designs=(name,), role="confirm"), seeds) for label, arm in again.items()
            ]
        return found, awaited

    def _arm_of(self, task: SearchTask, number: int, values: Mapping[str, Any], shares: Mapping[str, float]) -> Arm:
        made = self._planner.arm(task, number, Answer(dict(values), dict(shares)))
        assert isinstance(made, Arm)
        return self._files.arms([made])[0]

    def _pending(self, tasks: Iterable[SearchTask], results: Results) -> Iterable[Pending]:
        for task in tasks:
            left = task.left(results.get(task.name, SearchResult()))
            what = f"{left} proposals of {task.name} x {len(task.seeds)} seeds"
            yield Pending(what, left * len(task.seeds), task.name)

    def _notes(self) -> Iterable[str]:
        for task in self.searches:
            if task.most < task.settings.trials:
                yield f"{task.name}: its space holds {task.most} combinations, fewer than {task.settings.trials} trials"
            confirm = task.settings.confirm
            if confirm is not None:
                power = test_power(confirm.seeds, confirm.top, self._spec.analysis.alpha / self._spec.analysis.looks)
                found = (
                    f"a difference of {power.detectable_effect_sd:.2g} SD is found with probability 0.8"
                    if power.can_reject
                    else "no difference can be found"
                )
                yield (
                    f"{task.name}: {confirm.top} winners and the baseline on {confirm.seeds} fresh seeds, a family of "
                    f"their own; smallest p {power.smallest_p:.2g}; {found}"
                )

    # --- checks ---

    def _check_size(self, arms: int) -> None:
        if arms * self._spec.seeds.count > MAX_TRIALS:
            most = MAX_TRIALS // arms
            self._refuse_seeds(
                f"got {self._spec.seeds.count}; allowed: at most {most} with {arms} arms, {MAX_TRIALS} trials"
            )

    def _check_seeds(self) -> None:
        """Seeds that choose are never those that report."""
        last = self._spec.seeds.start + self._spec.seeds.count
        fresh = self.tunings or any(task.settings.confirm for task in self.searches)
        if fresh and last > CONFIRM_SEEDS:
            self._refuse_seeds(f"the block ends at {last - 1}; with confirm or nuisance it stays below {CONFIRM_SEEDS}")

    def _refuse_seeds(self, message: str) -> None:
        place = self._spec.places.get("seeds.count", (self._spec.source, 0, 0))
        raise SpecError([Problem(*place, "seeds.count", message)])


def _with_designs(arms: Iterable[Arm], also: Mapping[str, list[str]]) -> list[Arm]:
    """The compared arms, with the searches among their designs that proposed them too."""
    return [replace(arm, designs=(*arm.designs, *also[arm.label])) if arm.label in also else arm for arm in arms]
