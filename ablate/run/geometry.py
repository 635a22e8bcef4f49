"""Measuring the geometry of a study: the reference pass where it is missing, then one pass over its table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ablate.errors import SpecError, StudyError
from ablate.plan.geometry import StudyGeometry, gram_request, read_geometry
from ablate.plan.geometry_text import no_geometry
from ablate.plan.model import Plan
from ablate.record.run_folder import RunFolder
from ablate.workloads import import_path, load_object
from ablate.workloads.contract import Workload
from ablate.workloads.weight_gram import read_gram


def measure_study(plan: Plan, workload: Workload, folder: Path, say: Callable[[str], None]) -> None:
    """Make what the geometry of a study needs, unless it is in its run folder; nothing is trained but the reference.

    Raises: SpecError for a workload without one; StudyError where another process holds the study, or the folder
        cannot be written.
    """
    request = gram_request(plan.spec, plan.arms, workload)
    if request is None or workload.prepare is None or workload.geometry is None:
        raise SpecError(no_geometry(plan.spec.workload))
    reference = folder / "reference"
    if read_gram(reference / request.key, request.settings) is not None:
        return
    say(f"measuring {len(request.settings)} settings on the reference table in {reference}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with import_path(plan.spec.folder), RunFolder(folder).locked():
            load_object(workload.prepare)(request.config, reference)
            load_object(workload.geometry)({"config": request.config, "settings": request.settings}, reference)
    except OSError as error:
        raise StudyError(f"{folder}: {error.strerror or error}; name another with --runs DIR") from error


def measured_geometry(plan: Plan, workload: Workload, folder: Path, threshold: float) -> StudyGeometry:
    """The geometry of a study that was measured.

    Raises: SpecError for training data without a token.
    """
    found = read_geometry(plan, workload, folder / "reference", threshold)
    if found is None:
        raise SpecError(f"{plan.spec.study}: the training data have no token to predict, so no term has a weight")
    return found
