"""The searches of a study: their spaces, the arm that an answer makes, and which proposals won."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ablate.plan.arms import BASELINE, ArmBuilder
from ablate.plan.designs import UNKNOWN_GROUPS
from ablate.plan.model import Arm, Proposal, SearchResult
from ablate.plan.space import Answer, Choice, Dimension, Space
from ablate.spec.checks import SHARES
from ablate.spec.designs import AUTO, moved_units
from ablate.spec.models import Config, Design, SearchSettings, StudySpec
from ablate.spec.paths import with_value

CONFIRM_SEEDS = 1_000_000_000
"""The first seed that winners of a search are confirmed on."""
TUNING_SEEDS = 2_000_000_000
"""The first seed that nuisance factors are tuned on."""
REFUSED_IN_A_ROW = 1000
"""So many proposals in a row that no arm can be made of: the space is taken to be empty."""


@dataclass(frozen=True)
class SearchTask:
    """One search: from the baseline, or of the nuisance factors of one arm.

    Attributes:
        name: `search-1`, or `nuisance/<arm>`; of its records too.
        seeds: what each proposal is trained on.
        arm: whose nuisance factors are tuned; None for a search of its own.
    """

    name: str
    design: Design
    space: Space
    seeds: tuple[int, ...]
    arm: Arm | None = None

    @property
    def settings(self) -> SearchSettings:
        """How it proposes."""
        assert self.design.search is not None
        return self.design.search

    def own(self, result: SearchResult) -> list[Proposal]:
        """What it made itself and can be trained, in order; one whose failed trainings were run again counts once."""
        replaced = {proposal.again for proposal in result.proposals}
        return [proposal for proposal in result.proposals if proposal.own and proposal.number not in replaced]

    @property
    def most(self) -> int:
        """How many arms it proposes at most: a space of levels may hold fewer than it asks for."""
        return min(self.settings.trials, self.space.size or self.settings.trials)

    def left(self, result: SearchResult) -> int:
        """How many arms it has yet to propose."""
        return 0 if result.exhausted else max(self.most - len(self.own(result)), 0)

    def complete(self, result: SearchResult) -> bool:
        """Whether everything was proposed and has ended."""
        return not self.left(result) and all(proposal.ended for proposal in self.own(result))


class SearchPlanner:
    """Makes the searches of a study and the arms that they propose."""

    def __init__(self, spec: StudySpec, builder: ArmBuilder) -> None:
        self._spec = spec
        self._builder = builder
        self._conditions = builder.conditions

    def searches(self) -> list[SearchTask]:
        """One for each search among the designs, in order.

        Raises: SpecError for a space that holds no arm.
        """
        found = []
        for index, design in enumerate(self._spec.designs):
            if design.search is not None and design.settings.get("groups") == AUTO:
                self._builder.notes.append(f"{design.name}: {UNKNOWN_GROUPS.text}")
            elif design.search is not None:
                task = SearchTask(design.name, design, self._space(design, {}), self._seeds(design))
                self._check_space(task, f"designs[{index}].search.over")
                found.append(task)
        return found

    def tunings(self, arms: Iterable[Arm]) -> list[SearchTask]:
        """One for each arm whose nuisance factors are tuned; an A/A arm has what the baseline has."""
        design = self._spec.nuisance
        if design is None or design.search is None:
            return []
        seeds = tuple(range(TUNING_SEEDS, TUNING_SEEDS + (design.search.seeds or 1)))
        return [
            SearchTask(f"nuisance/{arm.label}", design, self._space(design, arm.factors), seeds, arm)
            for arm in arms
            if arm.role != "aa"
        ]

    def _seeds(self, design: Design) -> tuple[int, ...]:
        """The first seeds of the study's block; what asks for more of them than there are gets a note."""
        assert design.search is not None
        block, asked = self._spec.seeds, design.search.seeds or self._spec.seeds.count
        if asked > block.count:
            self._builder.notes.append(f"{design.name}: {asked} seeds asked for; trained on the study's {block.count}")
        return tuple(range(block.start, block.start + min(asked, block.count)))

    def _space(self, design: Design, around: Mapping[str, Any]) -> Space:
        """The space of a design; `around`: values of studied paths that are not searched, where not the baseline's."""
        assert design.search is not None
        moved = moved_units(design.kind, design.over, self._builder.factors, self._spec.together, design.settings)
        if design.search.simplex and len(moved) < 2:
            message = "got canonical, but the data tell one direction apart; there is nothing to search"
            raise self._builder.problem(design.name, f"{design.name}.over", message)
        simplex = design.search.simplex

        def varies(path: str, values: Mapping[str, Any]) -> bool:
            return self._builder.varies(path, self._builder.configurations.changed({**around, **values}))

        return Space(moved, design.search.sampler, simplex=simplex, varies=varies, whens=self._conditions.whens)

    def arm(self, task: SearchTask, number: int, answer: Answer) -> Arm | str:
        """The arm of an answer, or why there is none."""
        if task.arm is not None:
            return self._tuned(task.arm, f"tune/{task.arm.label}/{number}", answer.values)
        label = f"{task.name}/{number}"
        if answer.shares:
            return self._simplex(task, label, answer.shares)
        config, values = self._builder.configure(answer.values)
        return self._builder.refusal(config) or Arm(label, config, (task.name,), values, role="proposal")

    def _simplex(self, task: SearchTask, label: str, shares: Mapping[str, float]) -> Arm | str:
        """Weights by their shares: the trial makes numbers of them. Conditions see the shares as weights."""
        if broken := self._conditions.broken(self._builder.configurations.changed(dict(shares))):
            return broken
        config = with_value(self._spec.baseline, SHARES, {path.rpartition(".")[2]: s for path, s in shares.items()})
        values = {**self._builder.base, **dict.fromkeys(shares)}
        return Arm(label, config, (task.name,), values, role="proposal", relative=True)

    def _tuned(self, arm: Arm, label: str, values: Mapping[str, Any]) -> Arm | str:
        found = retuned(arm, values)
        broken = self._builder.refusal(found.config)
        return broken or replace(found, label=label, designs=("nuisance",), role="tuning")

    def _check_space(self, task: SearchTask, path: str) -> None:
        """See that the space holds an arm, by drawing from it.

        Raises: SpecError.
        """
        suggest = partial(_draw, random.Random(0))
        conditional = {path for path in task.design.over if path in self._conditions.whens}
        asked: set[str] = set()
        reasons: dict[str, int] = {}
        possible = False
        for _ in range(REFUSED_IN_A_ROW):
            answer = task.space.ask(suggest)
            asked.update(answer.values)
            made = self.arm(task, 0, answer)
            possible = possible or isinstance(made, Arm)
            if possible and (conditional <= asked or task.settings.simplex):
                return
            if isinstance(made, str):
                reasons[made] = reasons.get(made, 0) + 1
        if not possible:
            raise self._builder.problem(task.name, path, empty_space(reasons))
        asleep = min(conditional - asked)
        message = f"never true in {REFUSED_IN_A_ROW} draws from {task.name}, so the factor never varies"
        raise self._builder.problem(asleep, f"factors.{asleep}.when", message)


def _draw(rng: random.Random, dim: Dimension) -> Any:
    if isinstance(dim, Choice):
        return rng.choice(dim.options)
    return rng.randint(int(dim.low), int(dim.high)) if dim.integer else rng.uniform(dim.low, dim.high)


def empty_space(reasons: Mapping[str, int]) -> str:
    """The sentence for a space that seems to hold no arm."""
    worst = ", ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:3])
    return f"{REFUSED_IN_A_ROW} proposals in a row cannot be trained; the space is empty or all but empty: {worst}"


def retuned(arm: Arm, values: Mapping[str, Any]) -> Arm:
    """An arm with other values of its nuisance factors; its label says what it is compared for, and stays."""
    config: Config = arm.config
    for path, value in values.items():
        config = with_value(config, path, value)
    return replace(arm, config=config, factors={**arm.factors, **values})


def ranked(task: SearchTask, result: SearchResult) -> list[Proposal]:
    """What the search made that is COMPLETE, best first; the same arm once, the baseline not.

    Several objectives: by fronts of what nothing found is better than in all of them, each by the first objective.
    """
    signs = [1.0 if objective.goal == "minimize" else -1.0 for objective in task.settings.objectives]
    found: dict[str, Proposal] = {}
    for proposal in task.own(result):
        if proposal.state == "COMPLETE" and proposal.objectives is not None and proposal.arm != BASELINE:
            found.setdefault(proposal.arm, proposal)
    losses = {arm: [sign * v for sign, v in zip(signs, p.objectives or (), strict=True)] for arm, p in found.items()}
    order: list[str] = []
    left = sorted(found, key=lambda arm: (losses[arm], found[arm].number))
    while left:
        front = [arm for arm in left if not any(_dominates(losses[other], losses[arm]) for other in left)]
        order += front
        left = [arm for arm in left if arm not in front]
    return [found[arm] for arm in order]


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and list(one) != list(other)


def tuned_values(task: SearchTask, result: SearchResult) -> Mapping[str, Any]:
    """The best settings that were tried; none where all of them failed."""
    best = ranked(task, result)
    return best[0].values if best else {}
