"""What trials share and none of them makes: data and reference tables, made before the first trial."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.errors import StudyError
from ablate.plan.geometry import gram_request
from ablate.plan.model import Plan
from ablate.record.optuna_storage import LedgerTrial
from ablate.run.progress import StudyProgress
from ablate.run.ray_tune.session import Session
from ablate.run.stopping import StopRequest
from ablate.workloads.contract import Prepared, Workload
from ablate.workloads.weight_gram import read_gram


def prepare_all(
    session: Session,
    function: str,
    configs: Mapping[str, Mapping[str, Any]],
    shared_dir: Path,
    import_path: tuple[str, ...],
    stop: StopRequest,
    progress: StudyProgress,
) -> dict[str, Prepared]:
    """Make every table that is not there yet, as many at once as workers fit.

    Args:
        function: `module:function` of the workload.
        configs: a configuration for each table, by the table's key.
    Raises: StudyError where making one fails.
    Called by the process that holds the study alone.
    """
    shared_dir.mkdir(parents=True, exist_ok=True)
    for leftover in shared_dir.glob(".*"):  # of a killed pass; this process holds the study, so no one is writing it
        shutil.rmtree(leftover, ignore_errors=True)
    word = "table" if len(configs) == 1 else "tables"
    progress.say(f"preparing data and {len(configs)} reference {word} in {shared_dir}")
    waiting = {key: session.prepare(function, config, shared_dir, import_path) for key, config in configs.items()}
    prepared: dict[str, Prepared] = {}
    while waiting and not stop.reason:
        for key, future in session.ready(waiting).items():
            try:
                prepared[key] = session.result(future)
            except StudyError:  # says what is wrong itself
                raise
            except Exception as error:  # the workload's own code may raise anything
                raise StudyError(f"the reference pass failed: {type(error).__name__}: {error}") from error
            del waiting[key]
            for message in prepared[key].warnings:
                progress.warn(message)
    session.cancel(waiting)
    return prepared


def check_references(prepared: Mapping[str, Prepared], latest: Mapping[str, LedgerTrial]) -> None:
    """See that finished trials used the tables that new ones would use.

    Raises: StudyError naming the trials that did not.
    """
    other = []
    for entry in latest.values():
        used = entry.attributes.get("provenance") or {}
        table = prepared.get(used.get("reference_key", ""))
        if entry.state == "COMPLETE" and table is not None and table.sha256 != used.get("reference_sha256"):
            other.append(f"{entry.attributes['arm']} · seed {entry.attributes['seed']} ({entry.trial_id})")
    if other:
        shown = ", ".join(other[:5]) + (f" and {len(other) - 5} more" if len(other) > 5 else "")
        raise StudyError(
            f"the reference table was made again and came out with other bytes than {len(other)} finished trials "
            f"used: {shown}; --accept-new-reference goes on all the same, contrasts across the two are refused"
        )


def measure_geometry(
    plan: Plan,
    workload: Workload,
    prepared: Mapping[str, Prepared],
    reference: Path,
    session: Session,
    import_path: tuple[str, ...],
) -> None:
    """Measure the geometry of a study in a worker, once its tables are made and before its first trial.

    Nothing is done for a workload without one, or where the baseline's table is not among those made.

    Raises: StudyError where it fails.
    """
    request = gram_request(plan.spec, plan.arms, workload)
    if request is None or workload.geometry is None or request.key not in prepared:
        return
    if read_gram(reference / request.key, request.settings) is not None:
        return
    wanted = {"config": request.config, "settings": request.settings}
    try:
        session.result(session.prepare(workload.geometry, wanted, reference, import_path))
    except Exception as error:  # the workload's own code may raise anything
        raise StudyError(f"the term geometry failed: {type(error).__name__}: {error}") from error
