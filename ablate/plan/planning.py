"""From a study to its plan: arms by seeds, trials named and in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from pydantic import BaseModel

from ablate.errors import Problem, SpecError
from ablate.plan.arms import ArmBuilder
from ablate.plan.configurations import Configurations
from ablate.plan.controls import replicates, with_twins
from ablate.plan.files import Files
from ablate.plan.identity import trial_ids
from ablate.plan.model import Arm, Plan, PlannedTrial
from ablate.plan.power import test_power
from ablate.plan.warnings import plan_warnings
from ablate.spec.models import Config, StudySpec
from ablate.spec.paths import canonical

MAX_TRIALS = 10_000_000


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
    def later(self) -> Mapping[str, Any]:
        """Paths that no identity covers where they have this value."""


def make_plan(spec: StudySpec, workload: Workload) -> Plan:
    """The arms and trials of a study, in the order in which they run.

    Raises: SpecError for a design that yields no arm, a `when` that is never true.
    """
    builder = ArmBuilder(spec, workload.config_type)
    files = Files(spec, workload.files, workload.later)
    arms = files.arms([*with_twins(spec, builder.arms()), *replicates(spec)])
    if len(arms) * spec.seeds.count > MAX_TRIALS:
        most = MAX_TRIALS // len(arms)
        message = f"got {spec.seeds.count}; allowed: at most {most} with {len(arms)} arms, {MAX_TRIALS} trials"
        raise SpecError([Problem(*spec.places.get("seeds.count", (spec.source, 0, 0)), "seeds.count", message)])
    family = sum(arm.role == "arm" for arm in arms)
    power = test_power(spec.seeds.count, family, spec.analysis.alpha / spec.analysis.looks)
    return Plan(
        spec=spec,
        arms=tuple(arms),
        trials=tuple(_trials(spec, workload, builder.configurations, arms, files)),
        power=power,
        notes=tuple(builder.notes),
        warnings=(*spec.warnings, *plan_warnings(spec, power)),
        files=files.content,
    )


def _trials(
    spec: StudySpec, workload: Workload, configurations: Configurations, arms: list[Arm], files: Files
) -> Iterator[PlannedTrial]:
    """Seed by seed every arm, so that a study stopped at any moment is balanced and paired."""
    seeds = range(spec.seeds.start, spec.seeds.start + spec.seeds.count)
    ids = list(_ids(spec, workload, configurations, arms, seeds, files))
    for block, seed in enumerate(seeds):
        for arm, of_arm in zip(arms, ids, strict=True):
            yield PlannedTrial(of_arm[block], arm, seed)


def _ids(
    spec: StudySpec,
    workload: Workload,
    configurations: Configurations,
    arms: Iterable[Arm],
    seeds: Iterable[int],
    files: Files,
) -> Iterator[list[str]]:
    """The trial_ids of each arm, seed by seed."""
    evaluation = canonical(spec.evaluation.model_dump(mode="json"))
    baseline = files.identity(files.located(spec.baseline), configurations)
    fingerprints: dict[str, str] = {}

    def fingerprint(config: Config) -> str:
        data = configurations.section_text(config, "data")
        if data not in fingerprints:
            fingerprints[data] = workload.fingerprint(config)
        return fingerprints[data]

    for arm in arms:
        yield trial_ids(
            workload=workload.name,
            fingerprint=fingerprint(arm.config),
            config=files.identity(arm.config, configurations),
            evaluation=evaluation,
            seeds=seeds,
            replicate=arm.replicate,
            baseline=baseline if arm.relative else "null",
        )
