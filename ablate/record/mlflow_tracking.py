"""The measurements: one MLflow run a trial under one parent run a study. The only file importing mlflow.

Every write can be repeated: timestamps come from the trial's history, so a point logged twice is one
point to the store, and a run is found again by its `ablate.trial_id` and `ablate.attempt` tags.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the default blocks 246 s where a server is down
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunStatus, RunTag, ViewType
from mlflow.exceptions import MlflowException
from sqlalchemy import bindparam, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from ablate.errors import StudyError
from ablate.record.foreign_records import TRIAL_ID
from ablate.record.history import Point
from ablate.record.moved_folder import move_artifacts
from ablate.record.sqlite_files import create_sqlite_file, sqlite_url
from ablate.spec.addresses import concealed, filled_in
from ablate.workloads.contract import Row

logging.getLogger("alembic").setLevel(logging.WARNING)
for _name in ("mlflow.store.db", "mlflow.store.db.utils"):  # they log, with a traceback, what they raise as well
    logging.getLogger(_name).setLevel(logging.CRITICAL)

#: How an ended or waiting trial reads in MLflow.
STATUS = {"COMPLETE": "FINISHED", "FAIL": "FAILED", "PRUNED": "KILLED", "WAITING": "SCHEDULED", "RUNNING": "RUNNING"}

POINTS_PER_METRIC = 50
ATTEMPT = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)
_LONGEST_PARAM = 6000
_LONGEST_TAG = 5000
_BATCH = 900


class TrackingError(Exception):
    """The tracking server or file did not take or give what it was asked for."""


@dataclass(frozen=True)
class TrackedRun:
    """A run of one attempt at a trial, as MLflow has it."""

    run_id: str
    trial_id: str
    attempt: int
    status: str
    deleted: bool
    metrics: Mapping[str, float]


@contextlib.contextmanager
def _translated(address: str | None) -> Iterator[None]:
    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        reason = concealed(str(error).splitlines()[0] if str(error) else "", address)
        # a chain of causes would show the address with its secrets where Python prints it
        raise TrackingError(f"{type(error).__name__}: {reason}") from None


class Tracker:
    """The MLflow experiment of one study.

    Args:
        address: tracking URI, with `${NAME}` for what the environment holds; None: `mlflow.db` in the run folder.
    Raises: StudyError where the address is none that MLflow knows.
    """

    def __init__(self, address: str | None, folder: Path, study: str) -> None:
        self._address = address
        self._folder = folder
        self._artifacts = (folder / "artifacts").resolve().as_uri() if address is None else None
        if address is None:
            path = folder / "mlflow.db"
            create_sqlite_file(path, lambda new: MlflowClient(new).search_experiments(max_results=1))
            url = sqlite_url(path)
        else:
            url = filled_in(address)
        self.url = url
        try:
            self._client = MlflowClient(url)
        except (MlflowException, ImportError, SQLAlchemyError, ValueError) as error:
            reason = concealed(str(error).splitlines()[0], address)
            raise StudyError(f"track.mlflow {address} cannot be opened: {type(error).__name__}: {reason}") from None
        self._study = study
        self._experiment: str | None = None
        self._parent: str | None = None

    # --- the study ---

    def _experiment_id(self) -> str:
        if self._experiment is None:
            found = self._client.get_experiment_by_name(self._study)
            if found is None:
                self._experiment = self._client.create_experiment(self._study, artifact_location=self._artifacts)
            else:
                if found.lifecycle_stage == "deleted":
                    self._client.restore_experiment(found.experiment_id)
                if self._artifacts is not None and found.artifact_location != self._artifacts:
                    move_artifacts(self._folder / "mlflow.db", found.artifact_location, self._artifacts)
                self._experiment = found.experiment_id
        return self._experiment

    def open_study(self, tags: Mapping[str, str]) -> str:
        """Make the experiment and its parent run, or find them. Returns: the parent's run id."""
        with _translated(self._address):
            if self._parent is None:
                experiment = self._experiment_id()
                found = self._client.search_runs([experiment], "tags.`ablate.kind` = 'study'", max_results=1)
                all_tags = {"ablate.kind": "study"} | dict(tags)
                if found:
                    self._parent = found[0].info.run_id
                    self._client.log_batch(self._parent, tags=_run_tags(all_tags))
                else:
                    self._parent = self._client.create_run(
                        experiment, run_name=self._study, tags=_short(all_tags)
                    ).info.run_id
            return self._parent

    def end_study(self, finished: bool) -> None:
        """Say on the parent run whether every planned trial has ended."""
        with _translated(self._address):
            if self._parent is not None:
                self._client.update_run(self._parent, status="FINISHED" if finished else "SCHEDULED")

    def runs(self) -> list[TrackedRun]:
        """The run of every attempt at every trial, deleted ones too."""
        with _translated(self._address):
            runs, token = [], None
            while True:
                page = self._client.search_runs(
                    [self._experiment_id()], run_view_type=ViewType.ALL, max_results=1000, page_token=token
                )
                runs += [_tracked(run) for run in page if _is_ours(run.data.tags)]
                token = page.token
                if not token:
                    return runs

    # --- a trial ---

    def find(self, trial_id: str, attempt: int) -> str | None:
        """The run id of an attempt, or None."""
        with _translated(self._address):
            found = self._client.search_runs(
                [self._experiment_id()],
                f"tags.`ablate.trial_id` = '{trial_id}' and tags.`ablate.attempt` = '{attempt}'",
                max_results=1,
            )
            return found[0].info.run_id if found else None

    def start(self, name: str, tags: Mapping[str, str], config: Mapping[str, Any], start_s: float) -> str:
        """Make a trial's run. Returns: its id."""
        with _translated(self._address):
            parent = self._parent or self.open_study({})
            run = self._client.create_run(
                self._experiment_id(),
                run_name=name,
                start_time=int(start_s * 1000),
                tags=_short({"mlflow.parentRunId": parent} | dict(tags)),
            )
            params = [Param(_param_name(path), str(value)[:_LONGEST_PARAM]) for path, value in flatten(config)]
            for start in range(0, len(params), 100):
                self._client.log_batch(run.info.run_id, params=params[start : start + 100])
            return str(run.info.run_id)

    def resume(self, run_id: str) -> None:
        """Show a run as running again."""
        with _translated(self._address):
            self._client.update_run(run_id, status="RUNNING")

    def pause(self, run_id: str) -> None:
        """Show a run as waiting."""
        with _translated(self._address):
            self._client.update_run(run_id, status="SCHEDULED")

    def log(self, run_id: str, rows: Iterable[Row]) -> None:
        """Log rows; non-finite values, which MLflow would change, stay in the trial's history alone."""
        points = [
            Metric(name, value, int(row.time * 1000), row.step)
            for row in rows
            for name, value in row.metrics.items()
            if math.isfinite(value)
        ]
        with _translated(self._address):
            for start in range(0, len(points), _BATCH):
                self._client.log_batch(run_id, metrics=points[start : start + _BATCH])

    def end(self, run_id: str, state: str, *, tags: Mapping[str, str], artifacts: Sequence[Path], end_s: float) -> None:
        """Attach the artifacts and show the run as ended."""
        with _translated(self._address):
            for path in artifacts:
                if path.exists():
                    self._client.log_artifact(run_id, str(path))
            if tags:
                self._client.log_batch(run_id, tags=_run_tags(tags))
            self._client.set_terminated(run_id, STATUS[state], int(end_s * 1000))

    def restore(self, run_id: str) -> None:
        """Take a run out of MLflow's bin."""
        with _translated(self._address):
            self._client.restore_run(run_id)

    def discard(self, run_id: str) -> None:
        """Put a run into MLflow's bin."""
        with _translated(self._address):
            self._client.delete_run(run_id)

    def curves(self, run_ids: Sequence[str]) -> dict[str, list[Point]]:
        """The thinned curves of runs, by step, for trials whose history file is gone.

        One query in a thousand runs where the store is a database; a call a metric, which is all that a server
        offers, elsewhere.
        """
        with _translated(self._address):
            if self.url.startswith(("http:", "https:")):
                return {run_id: self._curves_from_server(run_id) for run_id in run_ids}
            return self._curves_from_database(run_ids)

    def _curves_from_server(self, run_id: str) -> list[Point]:
        names = self._client.get_run(run_id).data.metrics
        points = [point for name in names for point in self._client.get_metric_history(run_id, name)]
        points.sort(key=lambda point: (point.step, point.timestamp, point.key))
        return [(point.step, point.key, point.value) for point in points]

    def _curves_from_database(self, run_ids: Sequence[str]) -> dict[str, list[Point]]:
        curves: dict[str, list[Point]] = {run_id: [] for run_id in run_ids}
        query = text(
            "SELECT run_uuid, step, key, value FROM metrics WHERE run_uuid IN :runs "
            "ORDER BY run_uuid, step, timestamp, key"
        ).bindparams(bindparam("runs", expanding=True))
        engine = create_engine(self.url)
        try:
            with engine.connect() as connection:
                for start in range(0, len(run_ids), _BATCH):
                    found = connection.execute(query, {"runs": list(run_ids[start : start + _BATCH])})
                    for part in found.partitions(1000):  # half a million rows at once keep the collector busy
                        for run_id, step, metric, value in part:
                            curves[run_id].append((step, metric, value))
        finally:
            engine.dispose()
        return curves


def thinned(rows: Sequence[Row], points: int = POINTS_PER_METRIC) -> list[Row]:
    """Some `points` evenly spaced reports of each metric, the last one among them."""
    by_metric: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        for name in row.metrics:
            by_metric.setdefault(name, []).append(index)
    kept: dict[int, dict[str, float]] = {}
    for name, indices in by_metric.items():
        stride = math.ceil(len(indices) / points)
        for index in indices[::-1][::stride]:
            kept.setdefault(index, {})[name] = rows[index].metrics[name]
    return [Row(rows[index].step, rows[index].time, kept[index]) for index in sorted(kept)]


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nested mapping by dotted path; lists and empty mappings are leaves, as JSON."""
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{path}.")
        elif isinstance(value, list | tuple | Mapping):
            yield path, json.dumps(value)
        else:
            yield path, value


def _param_name(path: str) -> str:
    return re.sub(r"[^\w\-. /:]", "_", path)[:250]


def _short(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: value[:_LONGEST_TAG] for name, value in tags.items()}


def _run_tags(tags: Mapping[str, str]) -> list[RunTag]:
    return [RunTag(name, value) for name, value in _short(tags).items()]


def _is_ours(tags: Mapping[str, str]) -> bool:
    """Whether the tags of a run are those of an attempt at a trial: anyone may write to a tracking server."""
    return bool(
        TRIAL_ID.fullmatch(tags.get("ablate.trial_id", "")) and ATTEMPT.fullmatch(tags.get("ablate.attempt", "1"))
    )


def _tracked(run: Any) -> TrackedRun:
    status = run.info.status
    return TrackedRun(
        run_id=run.info.run_id,
        trial_id=run.data.tags["ablate.trial_id"],
        attempt=int(run.data.tags.get("ablate.attempt", 1)),
        status=status if isinstance(status, str) else RunStatus.to_string(status),
        deleted=run.info.lifecycle_stage == "deleted",
        metrics=run.data.metrics,
    )
