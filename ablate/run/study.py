"""Runs a study: plans it, drops what is recorded as complete, runs the rest.

First run, resume after a crash and extension of a finished study are this one function.
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ablate.errors import SpecError, StudyError, first_line
from ablate.plan.collinear_groups import keep_groups, waits_for_groups, with_groups
from ablate.plan.geometry import gram_request
from ablate.plan.geometry_text import no_geometry
from ablate.plan.model import Plan
from ablate.plan.planning import Planner
from ablate.record.mlflow_tracking import Tracker
from ablate.record.optuna_storage import Ledger
from ablate.record.run_folder import RunFolder
from ablate.run.claim import needs_lease
from ablate.run.execution import run_invocation
from ablate.run.invocation import Invocation, RunOptions
from ablate.run.preparation import measure_geometry, prepare_all
from ablate.run.progress import StudyProgress
from ablate.run.provenance import code_hash, git_state, versions
from ablate.run.ray_tune.session import Session, ray_session
from ablate.run.stopping import StopRequest
from ablate.run.summary import RunSummary
from ablate.spec.addresses import require_variables
from ablate.spec.models import StudySpec
from ablate.workloads import find_workload, import_folders, import_path
from ablate.workloads.contract import Workload


def execute(spec: StudySpec, options: RunOptions, progress: StudyProgress) -> RunSummary:
    """Run what is left of a study.

    Raises: SpecError for a request that cannot be met, before anything is written; StudyError where the study
        cannot go on.
    """
    require_variables(spec)
    with import_path(spec.folder):
        workload = find_workload(spec.workload)
        spec = with_groups(spec, workload, options.runs / spec.study)
        planner = Planner(spec, workload)
        if not waits_for_groups(spec):
            _check_labels(planner.plan({}), options.arms)
        stop = StopRequest()
        with contextlib.ExitStack() as stack:
            stack.enter_context(stop.on_signals(progress.warn))
            session = None
            if needs_cluster_to_check(spec):
                session = stack.enter_context(ray_session(spec.run))
            folder = _make_folder(options.runs / spec.study, spec.run.storage)
            locked = stack.enter_context(folder.locked())
            try:
                if waits_for_groups(spec):
                    session = session or stack.enter_context(ray_session(spec.run))
                    spec = _measured_groups(spec, planner, workload, folder, session, stop, progress)
                    planner = Planner(spec, workload)
                    _check_labels(planner.plan({}), options.arms)
                keep_groups(spec, folder.path)
                leased = needs_lease(spec, folder, locked, progress.warn)
                ledger = stack.enter_context(_open_ledger(spec, folder, stop, progress, leased=leased))
                records = folder, ledger, Tracker(spec.track.mlflow, folder.path, spec.study)
                facts = _provenance(spec, workload)
                invocation = Invocation(spec, planner, workload, *records, options, progress, stop, facts)

                def cluster() -> Session:
                    if session is not None:
                        return session
                    progress.say("starting Ray")
                    return stack.enter_context(ray_session(spec.run))

                return run_invocation(invocation, cluster)
            except OSError as error:
                raise StudyError(f"{folder.path}: {first_line(error)}; nothing recorded so far is lost") from error


def _measured_groups(
    spec: StudySpec,
    planner: Planner,
    workload: Workload,
    folder: RunFolder,
    session: Session,
    stop: StopRequest,
    progress: StudyProgress,
) -> StudySpec:
    """The study with the groups of its designs, the reference of the baseline made first.

    Raises: SpecError where the workload has no term geometry; StudyError where making it fails.
    """
    plan = planner.plan({})
    request = gram_request(spec, plan.arms, workload)
    if request is None or workload.prepare is None:
        raise SpecError(no_geometry(spec.workload))
    progress.say("the groups of a design come from the reference table: it is made first")
    wanted, folders = {request.key: request.config}, import_folders(spec.folder)
    prepared = prepare_all(session, workload.prepare, wanted, folder.reference, folders, stop, progress)
    measure_geometry(plan, workload, prepared, folder.reference, session, folders)
    return with_groups(spec, workload, folder.path)


def needs_cluster_to_check(spec: StudySpec) -> bool:
    """Whether only a running cluster can tell if the resources asked for exist."""
    resources = spec.run.resources
    plain = spec.run.address is None and not resources.gpu and not resources.model_extra
    return not (plain and resources.cpu <= (os.cpu_count() or 1))


def _check_labels(plan: Plan, labels: Sequence[str]) -> None:
    known = [arm.label for arm in plan.arms]
    for label in labels:
        if label not in known:
            near = difflib.get_close_matches(label, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SpecError(f"--arm: got {label!r}; arms of this study: {', '.join(known)}{hint}")


def _make_folder(path: Path, storage: str | None) -> RunFolder:
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "artifacts").mkdir(exist_ok=True)
        probe = path / f".probe.{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise StudyError(
            f"{path} cannot be written: {error.strerror or error}; name another with --runs DIR"
        ) from error
    return RunFolder(path, None if storage is None else Path(storage))


@contextlib.contextmanager
def _open_ledger(
    spec: StudySpec, folder: RunFolder, stop: StopRequest, progress: StudyProgress, *, leased: bool
) -> Iterator[Ledger]:
    """The ledger of a study, held against runs elsewhere where a lock of this machine does not do."""
    goal = spec.metrics.primary.goal
    with contextlib.closing(Ledger.create(spec.track.optuna, folder.path, spec.study, goal, progress.warn)) as ledger:
        held = ledger.leased(folder.path, progress.say, stop.ask, stop.pause) if leased else contextlib.nullcontext()
        with held:
            yield ledger


def _provenance(spec: StudySpec, workload: Workload) -> dict[str, Any]:
    return {
        "code_hash": spec.code_version or code_hash(workload.sources),
        **{name: value for name, value in git_state(Path(spec.folder or ".")).items() if name != "git_diff"},
        "torch": versions(["torch"]).get("torch", ""),
    }
