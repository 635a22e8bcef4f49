"""From arms to trials: each under its seeds, named by what it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ablate.plan.configurations import Configurations
from ablate.plan.files import Files
from ablate.plan.identity import trial_ids
from ablate.plan.model import Arm, PlannedTrial
from ablate.spec.models import VARIED, Config, StudySpec
from ablate.spec.paths import canonical, value_at, with_value


class TrialMaker:
    """Names the trials of a study."""

    def __init__(
        self, spec: StudySpec, name: str, fingerprint: Any, configurations: Configurations, files: Files
    ) -> None:
        self._name = name
        self._fingerprint_of = fingerprint
        self._configurations = configurations
        self._files = files
        self._evaluation = canonical(spec.evaluation.model_dump(mode="json"))
        self._baseline = files.identity(files.located(spec.baseline), configurations)
        self._varied = [VARIED[part] for part in spec.seeds.vary if part in VARIED]
        self._fingerprints: dict[str, str] = {}

    def trials(self, arm: Arm, seeds: Iterable[int]) -> list[PlannedTrial]:
        """The trials of an arm whose files are located, seed by seed."""
        if not self._varied:
            return [
                PlannedTrial(i, arm, seed) for i, seed in zip(self._ids(arm, arm.config, seeds), seeds, strict=True)
            ]
        found = []
        for seed in seeds:
            varied = {path: value_at(arm.config, path) + seed for path in self._varied}
            (trial_id,) = self._ids(arm, _changed(arm.config, varied), [seed])
            found.append(PlannedTrial(trial_id, arm, seed, varied))
        return found

    def _ids(self, arm: Arm, config: Config, seeds: Iterable[int]) -> list[str]:
        return trial_ids(
            workload=self._name,
            fingerprint=self._fingerprint(config),
            config=self._files.identity(config, self._configurations),
            evaluation=self._evaluation,
            seeds=seeds,
            replicate=arm.replicate,
            baseline=self._baseline if arm.relative else "null",
        )

    def _fingerprint(self, config: Config) -> str:
        data = self._configurations.section_text(config, "data")
        if data not in self._fingerprints:
            self._fingerprints[data] = str(self._fingerprint_of(config))
        return self._fingerprints[data]


def _changed(config: Config, values: Mapping[str, Any]) -> Config:
    for path, value in values.items():
        config = with_value(config, path, value)
    return config
