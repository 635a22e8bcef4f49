"""What one `run` was asked for, and the records that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ablate.plan.planning import Planner
from ablate.record.mlflow_tracking import Tracker
from ablate.record.optuna_storage import Ledger
from ablate.record.run_folder import RunFolder
from ablate.run.progress import StudyProgress
from ablate.run.stopping import StopRequest
from ablate.spec.models import StudySpec
from ablate.workloads import import_folders
from ablate.workloads.contract import Workload


@dataclass(frozen=True)
class RunOptions:
    """What a caller may ask of a run beyond the study file.

    Attributes:
        runs: the folder of run folders.
        retry_failed: run failed trials again (diverged ones are results, and stay).
        on_new_code: what to do where finished trials ran with other code.
        accept_new_reference: go on where a reference table was made again with other bytes.
        arms: run only arms of these labels; all where empty.
    """

    runs: Path = Path("runs")
    retry_failed: bool = False
    on_new_code: Literal["ask", "keep_old", "rerun"] = "ask"
    accept_new_reference: bool = False
    arms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Invocation:
    """One run of one study, by the process that holds it.

    Attributes:
        spec: the study, its designs with their groups.
        provenance: what is noted with each trial that it starts: the hash of the code among it.
    """

    spec: StudySpec
    planner: Planner
    workload: Workload
    folder: RunFolder
    ledger: Ledger
    tracker: Tracker
    options: RunOptions
    progress: StudyProgress
    stop: StopRequest
    provenance: Mapping[str, Any]

    @property
    def code_hash(self) -> str:
        """Hash of the code that its trials run."""
        return str(self.provenance["code_hash"])

    @property
    def import_path(self) -> tuple[str, ...]:
        """Where workers find the user's modules."""
        return import_folders(self.spec.folder)
