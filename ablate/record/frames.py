"""A study read back: its specification and two frames, trials and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ablate.errors import StudyError
from ablate.plan.collinear_groups import with_groups
from ablate.plan.geometry import StudyGeometry, geometry_json, read_geometry
from ablate.plan.model import Plan, PlannedTrial
from ablate.plan.planning import Planner
from ablate.record.history import Point, read_history, value_at
from ablate.record.optuna_search import search_results
from ablate.record.optuna_storage import Ledger, LedgerTrial
from ablate.record.run_folder import RunFolder
from ablate.spec.addresses import OPTUNA, require_variables
from ablate.spec.models import StudySpec

CURVE_COLUMNS = ["trial_id", "step", "metric", "value"]


@dataclass(frozen=True)
class Study:
    """A study's run folder, read.

    Attributes:
        path: the run folder.
        spec: the resolved study file.
        plan: arms by trials.
    """

    path: Path
    spec: StudySpec
    plan: Plan

    @property
    def folder(self) -> RunFolder:
        """Names of the files in the run folder."""
        return RunFolder(self.path)

    @cached_property
    def latest(self) -> Mapping[str, LedgerTrial]:
        """The attempt of each trial that counts, by trial_id; read once."""
        return self._ledger_reading[0]

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What is known of the study as a whole: versions, hardware, git state, reference tables, term geometry."""
        geometry = self.geometry
        measured = {} if geometry is None else {"geometry": geometry_json(geometry, self.spec.study)}
        return self._ledger_reading[1] | measured

    @cached_property
    def geometry(self) -> StudyGeometry | None:
        """What the reference table says of terms and arms; None where it was not measured."""
        from ablate.workloads import find_workload, import_path

        with import_path(self.folder.source_folder()):
            workload = find_workload(self.spec.workload)
            return read_geometry(self.plan, workload, self.folder.reference, keys=self._reference_keys())

    def _reference_keys(self) -> list[str]:
        """Keys of the tables that the baseline was trained over, which newer code may give other names."""
        baseline = [self.latest.get(trial.trial_id) for trial in self.plan.trials if trial.arm.role == "baseline"]
        used = [entry.attributes.get("provenance") or {} for entry in baseline if entry is not None]
        return list(dict.fromkeys(note["reference_key"] for note in used if "reference_key" in note))

    @cached_property
    def _canonical(self) -> dict[str, dict[str, float]]:
        """The canonical coordinates of each arm that has them, as columns."""
        arms = self.geometry.arms if self.geometry is not None else {}
        return {
            label: {f"canonical.{name}": value for name, value in found.columns().items()}
            for label, found in arms.items()
            if found is not None
        }

    @cached_property
    def _shares(self) -> dict[str, Mapping[str, float]]:
        """Shares of the effective token weight by arm, of those that a simplex search proposed."""
        proposals = (proposal for result in self.plan.searches.values() for proposal in result.proposals)
        return {proposal.arm: proposal.shares for proposal in proposals if proposal.shares}

    @cached_property
    def _ledger_reading(self) -> tuple[dict[str, LedgerTrial], dict[str, Any], dict[str, str]]:
        ledger = Ledger.find(self.spec.track.optuna, self.path, self.spec.study)
        if ledger is None:
            return {}, {}, {}
        try:
            return (
                ledger.latest(),
                dict(ledger.study_note("facts", {})),
                dict(ledger.study_note("mlflow_runs", {})),
            )
        finally:
            ledger.close()

    def trials(self) -> pd.DataFrame:
        """One row a planned trial, in the plan's order.

        Columns: trial_id, arm, seed, replicate, designs, state, reason, attempt, reference (SHA-256 of the
        reference table used), config.<path> of each factor, share.<path> of what a simplex proposed,
        canonical.<coordinate> of the arm where its geometry was measured (docs/term_geometry.md), metric.<name> final
        values at the metric's `at`, started (UTC), duration_s, mlflow_run_id.
        """
        held = self.folder.holder() is not None
        at = {self.spec.metrics.primary.name: self.spec.metrics.primary.at}
        at |= {metric.name: metric.at for metric in self.spec.metrics.secondary}
        frame = pd.DataFrame([self._row(trial, held, at) for trial in self.plan.trials])
        return frame.astype({"seed": "int64", "replicate": "int64", "attempt": "int64"}) if len(frame) else frame

    def _row(self, trial: PlannedTrial, held: bool, at: Mapping[str, str]) -> dict[str, Any]:
        entry = self.latest.get(trial.trial_id)
        outcome = entry.outcome if entry is not None and entry.finished else None
        state = entry.state if entry is not None else "WAITING"
        if state == "RUNNING" and not held:
            state = "WAITING"  # its process is gone; the next run takes it up
        row: dict[str, Any] = {
            "trial_id": trial.trial_id,
            "arm": trial.arm.label,
            "seed": trial.seed,
            "replicate": trial.arm.replicate,
            "designs": ",".join(trial.arm.designs),
            "state": state,
            "reason": outcome.reason if outcome else "",
            "attempt": entry.attempt if entry else 1,
            "reference": (entry.attributes.get("provenance") or {}).get("reference_sha256", "") if entry else "",
        }
        row |= {f"config.{path}": value for path, value in trial.arm.factors.items()}
        row |= {f"share.{path}": value for path, value in self._shares.get(trial.arm.label, {}).items()}
        row |= self._canonical.get(trial.arm.label, {})
        metrics = dict(outcome.metrics) if outcome else {}
        for name, when in at.items():
            if when != "last" and metrics:
                value = value_at(read_history(self.folder.history(trial.trial_id)), name, when)
                metrics[name] = float("nan") if value is None else value
        row |= {f"metric.{name}": value for name, value in metrics.items()}
        return row | self._times(entry)

    def _times(self, entry: LedgerTrial | None) -> dict[str, Any]:
        if entry is None or entry.started is None:
            return {"started": pd.NaT, "duration_s": float("nan"), "mlflow_run_id": ""}
        ended = entry.ended if entry.finished else None
        started = pd.Timestamp(entry.started.astimezone()).tz_convert("UTC")
        return {
            "started": started,
            "duration_s": _seconds_between(entry.started, ended),
            "mlflow_run_id": self._run_id(entry),
        }

    def curves(self) -> pd.DataFrame:
        """Every reported value: trial_id, step, metric, value; from the histories, else thinned from MLflow."""
        entries = [self.latest[trial.trial_id] for trial in self.plan.trials if trial.trial_id in self.latest]
        thinned = self._curves_of_lost_histories(entries)
        columns: dict[str, list[Any]] = {name: [] for name in CURVE_COLUMNS}
        for trial in entries:
            points = thinned.get(trial.trial_id) or self._history(trial)
            columns["trial_id"] += [trial.trial_id] * len(points)
            for name, values in zip(CURVE_COLUMNS[1:], zip(*points, strict=True), strict=False):
                columns[name] += values
        return pd.DataFrame(columns).astype({"step": "int64", "value": "float64"})

    def _history(self, entry: LedgerTrial) -> list[Point]:
        path = self.folder.history(entry.trial_id)
        marker = path.parent / "attempt"
        if marker.exists() and int(marker.read_text()) != entry.attempt:
            return []  # of an earlier attempt; this one has not begun
        return [(row.step, name, value) for row in read_history(path) for name, value in row.metrics.items()]

    def _curves_of_lost_histories(self, entries: Sequence[LedgerTrial]) -> dict[str, list[Point]]:
        """What MLflow holds of finished trials whose history file is gone, by trial_id."""
        runs = {
            self._run_id(entry): entry.trial_id
            for entry in entries
            if entry.finished and self._run_id(entry) and not self.folder.history(entry.trial_id).exists()
        }
        if not runs:
            return {}
        from ablate.record.mlflow_tracking import Tracker

        found = Tracker(self.spec.track.mlflow, self.path, self.spec.study).curves(list(runs))
        return {runs[run_id]: points for run_id, points in found.items()}

    def _run_id(self, entry: LedgerTrial) -> str:
        """The MLflow run of an attempt: the one noted with the study where it had to be made again, else its own."""
        moved = self._ledger_reading[2].get(f"{entry.trial_id}/{entry.attempt}")
        return str(moved or entry.attributes.get("mlflow_run_id", ""))


def find_run_folder(name: str | Path, runs: Path) -> RunFolder:
    """The run folder that a name, a folder or a study file stands for.

    Raises: StudyError where there is none.
    """
    path = Path(name)
    candidates = [path, runs / str(name)]
    if path.suffix in {".yaml", ".yml"} and path.is_file():
        candidates = [runs / _study_named_in(path)]
    for candidate in candidates:
        if (candidate / "study.yaml").is_file():
            return RunFolder(candidate)
    known = sorted(found.parent.name for found in runs.glob("*/study.yaml"))
    listed = f"studies in {runs}: {', '.join(known)}" if known else f"{runs} holds no study"
    raise StudyError(f"no study {str(name)!r}; {listed}")


def _study_named_in(path: Path) -> str:
    from ablate.spec.loading import load_study
    from ablate.workloads import find_workload, import_path

    with import_path(path.parent):
        return load_study(path, workload_lookup=find_workload).study


def open_study(path_or_name: str | Path, runs: str | Path = "runs") -> Study:
    """Read a study back.

    Args:
        path_or_name: a run folder, a study's name in `runs`, or a study file.
        runs: the folder of run folders.
    Raises: StudyError where there is none.
    """
    from ablate.spec.loading import load_study
    from ablate.workloads import find_workload, import_path

    folder = find_run_folder(path_or_name, Path(runs))
    with import_path(folder.source_folder()):
        spec = load_study(folder.study_file, workload_lookup=find_workload, files=folder.files())
        require_variables(spec, OPTUNA)
        workload = find_workload(spec.workload)
        spec = with_groups(spec, workload, folder.path)
        plan = recorded_plan(Planner(spec, workload), spec, folder.path)
    return Study(folder.path, spec, plan)


def recorded_plan(planner: Planner, spec: StudySpec, folder: Path) -> Plan:
    """The plan of a study after what its searches have proposed, as the records in its folder have it."""
    names = planner.search_names()
    ledger = Ledger.find(spec.track.optuna, folder, spec.study) if names else None
    if ledger is None:
        return planner.plan({})
    try:
        return planner.plan(search_results(ledger, spec.study, names))
    finally:
        ledger.close()


def _seconds_between(start: datetime, end: datetime | None) -> float:
    """How long a trial took; not a number while it has not ended, and where the clock was set back meanwhile."""
    if end is None or end < start:
        return float("nan")
    return (end - start).total_seconds()
