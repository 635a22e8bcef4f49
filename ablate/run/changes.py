"""Notes when what is compared changed after results existed: the report then says *post hoc*."""

from __future__ import annotations

import json
import time

from ablate.record.optuna_storage import Ledger
from ablate.record.run_folder import RunFolder
from ablate.spec.models import StudySpec


def note_changes(folder: RunFolder, spec: StudySpec, ledger: Ledger) -> None:
    """Append to `changes.jsonl` where `metrics` or `analysis` differ from those that results were made under."""
    compared = spec.metrics.model_dump(mode="json", exclude={"gradient_cosines"})
    declared = {"metrics": compared, "analysis": spec.analysis.model_dump(mode="json")}
    known = ledger.study_note("declared", {})
    finished = sum(1 for entry in ledger.attempts() if entry.finished)
    if known and known != declared and finished:
        changed = [name for name in declared if declared[name] != known.get(name)]
        line = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "changed": changed, "finished_trials": finished}
        with (folder.path / "changes.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    if known != declared:
        ledger.set_study_note("declared", declared)
