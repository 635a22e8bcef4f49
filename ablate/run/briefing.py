"""What a worker is told of a trial, and what is noted of it when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.plan.model import PlannedTrial
from ablate.run.assignment import Assignment
from ablate.run.invocation import Invocation
from ablate.workloads.contract import Prepared, Row


class Briefing:
    """Makes assignments, from what was asked for and the tables that stand ready."""

    def __init__(self, invocation: Invocation, prepared: Mapping[str, Prepared]) -> None:
        self._spec, self._workload, self._folder = invocation.spec, invocation.workload, invocation.folder
        self._searches = invocation.planner.searches
        self._provenance, self._import_path = invocation.provenance, invocation.import_path
        self._prepared = prepared

    def notes(self, trial: PlannedTrial) -> Mapping[str, Any]:
        """What is noted of a trial when it starts."""
        provenance = dict(self._provenance) | {"device": "cuda" if self._spec.run.resources.gpu else "cpu"}
        if self._workload.prepared_key is not None and self._prepared:
            prepared = self._prepared[self._workload.prepared_key(trial.config)]
            provenance |= {"reference_key": prepared.key, "reference_sha256": prepared.sha256}
        return {"provenance": provenance}

    def assignment(self, trial: PlannedTrial, attempt: int, last_row: Row) -> Assignment:
        """What a worker gets to train a trial, which stands at `last_row`."""
        return Assignment(
            trial_id=trial.trial_id,
            attempt=attempt,
            train=self._workload.train,
            config=trial.config,
            baseline=self._spec.baseline if trial.arm.relative else None,
            evaluation=self._evaluation(trial),
            seed=trial.seed,
            replicate=trial.arm.replicate,
            checkpoint_dir=str(self._folder.checkpoints(trial.trial_id).resolve()),
            shared_dir=str(self._folder.reference.resolve()),
            pack=self._workload.pack or "",
            output_file=str((self._folder.trial(trial.trial_id) / "output.txt").resolve()),
            import_path=self._import_path,
            last_step=last_row.step,
            last_row=last_row.metrics,
            flush_on=self._flush_on(trial),
            timeout_s=self._spec.run.timeout_s,
        )

    def _evaluation(self, trial: PlannedTrial) -> dict[str, Any]:
        """How a trial is evaluated; what the baseline alone measures is no part of any identity."""
        asked = self._spec.metrics.gradient_cosines and trial.arm.role == "baseline"
        return self._spec.evaluation.model_dump() | ({"gradient_cosines": True} if asked else {})

    def _flush_on(self, trial: PlannedTrial) -> str:
        """The metric whose report is sent at once: what says whether a proposal is behind, else the primary one."""
        if trial.arm.role == "proposal" and self._spec.early_stop.kind != "none":
            task = next((task for task in self._searches if task.name in trial.arm.designs), None)
            if task is not None:
                return task.settings.objectives[0].name
        return self._spec.metrics.primary.name
