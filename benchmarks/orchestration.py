"""What a trial costs beside its training: trivial trials through Ray Tune, Optuna and MLflow.

    python benchmarks/orchestration.py [TRIALS]

Prints seconds of wall time a trial, from the first trial's start to the last one's end, so without the start of Ray
and of the two databases; and the same with neither record, which is Ray's part.
"""

import contextlib
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from ablate.record.frames import open_study
from ablate.run.assignment import Assignment
from ablate.run.calling import run_study
from ablate.run.ray_tune import ray_session
from ablate.spec.models import Run

STUDY = """
study: trivial
workload: trivial_workload:train
baseline: {{x: 0.0}}
factors: {{x: [0.0, 1.0]}}
designs: [{{one_at_a_time: [x]}}]
seeds: {{count: {seeds}}}
metrics: {{primary: {{name: loss}}}}
"""
WORKLOAD = """
def train(config, trial):
    trial.report(1, {"loss": 1.0})
    return {"loss": config["x"]}
"""


class NoRecords:
    """A driver that hands out trials and remembers when they ended, nothing else."""

    def __init__(self, count, folder):
        self._left = list(range(count))
        self._folder = folder
        self._running = set()
        self.times = []

    def next_assignment(self):
        if not self._left:
            return None
        name = f"{self._left.pop():012d}"
        self._running.add(name)
        self.times.append(time.perf_counter())
        folder = self._folder / name
        paths = {"checkpoint_dir": str(folder), "shared_dir": str(folder), "output_file": str(folder / "output.txt")}
        return Assignment(
            name, 1, "trivial_workload:train", {"x": 0.0}, None, {}, 0, 0, **paths, import_path=(str(self._folder),)
        )

    def exhausted(self):
        return not self._left and not self._running

    def should_stop(self):
        return False

    def receive(self, message):
        if message.ending is not None:
            self._running.discard(message.trial_id)
            self.times.append(time.perf_counter())

    def left(self, trial_id):
        pass

    def died(self, trial_id, why):
        raise RuntimeError(why)

    def abort(self):
        pass


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    print(f"{platform.platform()}, {os.cpu_count()} cores, {count} trials")
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name)
        (folder / "trivial_workload.py").write_text(WORKLOAD)
        (folder / "study.yaml").write_text(STUDY.format(seeds=count // 2))
        with ray_session(Run()) as session:
            alone = NoRecords(count, folder / "alone")
            (folder / "alone").mkdir()
            (folder / "alone" / "trivial_workload.py").write_text(WORKLOAD)
            session.run_round(alone, folder / "ray")
        print(f"Ray alone:     {(max(alone.times) - min(alone.times)) / count * 1000:.0f} ms a trial")
        run_study("study.yaml")
        frame = open_study("trivial").trials()
        ends = frame["started"] + pd.to_timedelta(frame["duration_s"], unit="s")
        seconds = (ends.max() - frame["started"].min()).total_seconds()
        print(f"with records:  {seconds / count * 1000:.0f} ms a trial")


if __name__ == "__main__":
    main()
