"""Who else may run a study: what the lock of its run folder does not keep out, a lease in its store does."""

from __future__ import annotations

from collections.abc import Callable

from ablate.record.file_systems import network_kind
from ablate.record.run_folder import RunFolder
from ablate.spec.models import StudySpec


def needs_lease(spec: StudySpec, folder: RunFolder, locked: bool, warn: Callable[[str], None]) -> bool:
    """Whether processes that the lock of the run folder does not keep out may run this study: a lease does then."""
    kind = network_kind(folder.path)
    if spec.track.optuna is None and (kind or not locked):
        where = f"a file system of a network ({kind})" if kind else "a file system without locks"
        warn(
            f"{folder.path} is on {where}: sqlite is slow there and breaks where it is not mounted with care; "
            "name servers in track.optuna and track.mlflow, or a local folder with --runs"
        )
    return spec.track.optuna is not None or kind is not None or not locked
