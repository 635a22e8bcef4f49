"""How long it takes to read a study back: frames of many trials with curves, from histories and from MLflow alone.

    python benchmarks/read_back.py [TRIALS]

Each trial has 50 reports of 10 metrics. Writing them takes far longer than reading.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import tempfile
import time
from pathlib import Path

from ablate.plan.model import Plan
from ablate.plan.planning import make_plan
from ablate.record.frames import Study
from ablate.record.history import HistoryFile, last_values
from ablate.record.mlflow_tracking import Tracker
from ablate.record.optuna_storage import Ledger, Outcome
from ablate.record.run_folder import RunFolder
from ablate.spec.loading import load_study
from ablate.workloads import find_workload, import_path
from ablate.workloads.contract import Row

STUDY = """
study: many
workload: many_workload:train
baseline: {{x: 0.0}}
factors: {{x: [0.0, 1.0]}}
designs: [{{one_at_a_time: [x]}}]
seeds: {{count: {seeds}}}
metrics: {{primary: {{name: m/0}}}}
"""
ROWS, METRICS = 50, 10


def write(folder: Path, plan: Plan) -> None:
    """The records of every trial of the plan, finished."""
    (folder / "artifacts").mkdir(parents=True)
    ledger, tracker = Ledger.create(None, folder, "many", "minimize"), Tracker(None, folder, "many")
    tracker.open_study({})
    ledger.add(plan.trials, plan)
    rows = [Row(step, 1e9 + step, {f"m/{i}": float(step * i) for i in range(METRICS)}) for step in range(ROWS)]
    for entry in ledger.attempts():
        ledger.claim(entry)
        history = HistoryFile(RunFolder(folder).history(entry.trial_id))
        history.append(rows)
        history.close()
        run_id = tracker.start(entry.trial_id, {"ablate.trial_id": entry.trial_id}, {}, 1e9)
        tracker.log(run_id, rows)
        ledger.note(entry, "mlflow_run_id", run_id)
        outcome = Outcome("COMPLETE", value=0.0, metrics=last_values(rows))
        ledger.note_outcome(entry, outcome)
        ledger.finish(entry, outcome)
    ledger.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="?", type=int, default=1000)
    count = parser.parse_args().trials
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{platform.platform()}, {os.cpu_count()} cores, {load}, {count} trials of {ROWS} rows of {METRICS} metrics")
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name), import_path(name):
        Path("many_workload.py").write_text("def train(config, trial):\n    pass\n")
        Path("study.yaml").write_text(STUDY.format(seeds=count // 2))
        spec = load_study("study.yaml", workload_lookup=find_workload)
        plan = make_plan(spec, find_workload(spec.workload))
        folder = Path(name) / "many"
        write(folder, plan)
        for source in ("histories", "MLflow"):
            began = time.perf_counter()
            study = Study(folder, spec, plan)
            points, trials = len(study.curves()), len(study.trials())
            print(f"{trials} trials and {points} points from {source}: {time.perf_counter() - began:.1f} s")
            for path in folder.glob("trials/*/history.jsonl"):
                path.unlink()


if __name__ == "__main__":
    main()
