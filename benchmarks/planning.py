"""Whether planning and status stay flat: what `ablate plan` and `ablate status` take as studies grow.

    python benchmarks/planning.py [--trials 100 1000 10000] [--seeds 4]

A grid of two factors of the sequence VAE, a few seeds an arm, nine tenths of the trials finished. The commands run in
this process, after one call that imports what they need; the median of three calls in seconds of processor time, which
a busy machine does not change, and in ms a trial.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from ablate.cli import app
from ablate.plan.model import Plan
from ablate.plan.planning import make_plan
from ablate.record.optuna_storage import Ledger
from ablate.record.run_folder import RunFolder
from ablate.spec.loading import load_study
from ablate.workloads import find_workload

STUDY = """
study: grid-of-{trials}
workload: synthetic_sequences
factors:
  kl.beta: {{values: {betas}}}
  reconstruction.token_weight_alpha: {{values: {alphas}}}
designs: [{{grid: [kl.beta, reconstruction.token_weight_alpha]}}]
seeds: {{count: {seeds}}}
metrics: {{primary: {{name: eval/neg_elbo_per_token, goal: minimize}}}}
"""
COMMANDS = ("plan before a run", "entering the trials", "plan --json", "plan", "status --json")


def write_study(trials: int, seeds: int) -> Path:
    """A study file of about so many trials."""
    side = max(2, round(math.sqrt(trials / seeds)))
    values = [[round(1 + 0.01 * step, 2) for step in range(side)] for _factor in range(2)]
    path = Path(f"grid-of-{trials}.yaml")
    path.write_text(STUDY.format(trials=trials, seeds=seeds, betas=values[0], alphas=values[1]))
    return path


def record(plan: Plan, folder: Path) -> float:
    """The records of a study that is nine tenths done. Returns: processor seconds that entering the trials took."""
    folder.mkdir(parents=True)
    RunFolder(folder).write_settings(str(folder), plan.files)
    ledger = Ledger.create(None, folder, plan.spec.study, "minimize")
    began = time.process_time()
    ledger.add(plan.trials, plan)
    seconds = time.process_time() - began
    ledger.close()
    finish_most(folder / "optuna.db", round(0.9 * len(plan.trials)))
    return seconds


def finish_most(database: Path, count: int) -> None:
    """End so many trials, as the ledger would have after an hour's work."""
    metrics = {f"{split}/metric_{number}": float(number) for split in ("eval", "select") for number in range(20)}
    outcome = {"state": "COMPLETE", "reason": "", "value": 1.0, "error": ""}
    notes = {"metrics": metrics | {"eval/neg_elbo_per_token": 1.0}, "outcome": outcome}
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "UPDATE trials SET state = 'COMPLETE', datetime_start = '2026-01-01 00:00:00.000000', "
            "datetime_complete = '2026-01-01 00:01:00.000000' WHERE number < ?",
            [count],
        )
        for name, value in notes.items():
            connection.execute(
                "INSERT INTO trial_user_attributes (trial_id, key, value_json) "
                "SELECT trial_id, ?, ? FROM trials WHERE number < ?",
                [name, json.dumps(value), count],
            )


def command(*arguments: str) -> Callable[[], None]:
    """A command of the toolkit, in this process."""

    def run() -> None:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        if result.exit_code:
            raise SystemExit(result.output)
        if "--json" in arguments:
            json.loads(result.stdout)

    return run


def median_seconds(action: Callable[[], None], calls: int = 3) -> float:
    """Processor time, of so many calls."""
    times = []
    for _call in range(calls):
        began = time.process_time()
        action()
        times.append(time.process_time() - began)
    return statistics.median(times)


def measure(wanted: int, seeds: int) -> tuple[int, dict[str, float]]:
    """The number of trials of a study, and processor seconds of each command."""
    study = write_study(wanted, seeds)
    seconds = {"plan before a run": median_seconds(command("plan", str(study), "--json"))}
    spec = load_study(study, workload_lookup=find_workload)
    plan = make_plan(spec, find_workload(spec.workload))
    folder = Path("runs") / spec.study
    seconds["entering the trials"] = record(plan, folder)
    RunFolder(folder).study_file.write_text(study.read_text())
    seconds["plan --json"] = median_seconds(command("plan", str(study), "--json"))
    seconds["plan"] = median_seconds(command("plan", str(study)))
    seconds["status --json"] = median_seconds(command("status", spec.study, "--json"))
    return len(plan.trials), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--seeds", type=int, default=4)
    arguments = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'trials':>7}" + "".join(f"  {name:>22}" for name in COMMANDS))
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        measure(17, 1)
        for wanted in arguments.trials:
            trials, seconds = measure(wanted, arguments.seeds)
            cells = (f"{seconds[name]:8.2f} s {seconds[name] / trials * 1000:6.2f} ms" for name in COMMANDS)
            print(f"{trials:>7}" + "".join(f"  {cell:>22}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
