"""What a trial costs beside its training: trivial trials through Ray Tune, Optuna and MLflow.

    python benchmarks/orchestration.py [TRIALS] [--pack SIZE] [--records-only] [--profile FILE]

Milliseconds of wall time a trial: of Ray Tune with a driver that writes nothing; of the records without Ray, which are
fed what workers would send; and of a whole run, from the first trial's start to the last one's end. Starting Ray and
making the two databases is none of them. Commits are counted in the records without Ray, which `--profile` profiles.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import os
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from sqlalchemy import Connection, Engine, event

from ablate.plan.model import Plan
from ablate.plan.planning import make_plan
from ablate.record.frames import open_study
from ablate.record.mlflow_tracking import Tracker
from ablate.record.optuna_storage import Ledger
from ablate.record.run_folder import RunFolder
from ablate.run.assignment import Assignment, Ending, Message
from ablate.run.calling import run_study
from ablate.run.ray_tune.session import ray_session
from ablate.run.recorder import Recorder
from ablate.spec.loading import load_study
from ablate.spec.models import Run
from ablate.workloads import BUILT_IN, find_workload, import_path
from ablate.workloads.contract import Row

STUDY = """
study: trivial
workload: trivial
baseline: {{x: 0.0}}
factors: {{x: [0.0, 1.0]}}
designs: [{{one_at_a_time: [x]}}]
seeds: {{count: {seeds}}}
metrics: {{primary: {{name: loss}}}}
run: {{pack: {pack}}}
"""
WORKLOAD = """
from ablate.workloads.contract import Workload

def train(config, trial):
    trial.report(1, {"loss": 2.0})
    return {"loss": config["x"]}

def train_together(members):
    for member in members:
        member.trial.report(1, {"loss": 2.0})
    for member in members:
        member.end({"loss": member.config["x"]})

WORKLOAD = Workload(
    name="trivial",
    train="trivial_workload:train",
    sources=("trivial_workload",),
    pack="trivial_workload:train_together",
    pack_key=lambda config: "",
)
"""
PROVENANCE = {"provenance": {"code_hash": "0" * 64, "git_commit": "0" * 40, "torch": "2.13.0", "device": "cpu"}}


class WithoutRecords:
    """A driver that hands out trials and notes when they begin and end, nothing else."""

    def __init__(self, count: int, folder: Path, pack: int) -> None:
        self._left = list(range(count))
        self._folder = folder
        self._pack = pack
        self._running: set[str] = set()
        self.times: list[float] = []

    def next_assignments(self) -> tuple[Assignment, ...]:
        taken, self._left = self._left[: self._pack], self._left[self._pack :]
        return tuple(self._assignment(f"{number:012d}") for number in taken)

    def _assignment(self, name: str) -> Assignment:
        self._running.add(name)
        self.times.append(time.perf_counter())
        folder = self._folder / name
        folder.mkdir()
        return Assignment(
            trial_id=name,
            attempt=1,
            train="trivial_workload:train",
            pack="trivial_workload:train_together",
            config={"x": 0.0},
            baseline=None,
            evaluation={},
            seed=0,
            replicate=0,
            checkpoint_dir=str(folder),
            shared_dir=str(folder),
            output_file=str(folder / "output.txt"),
            import_path=(str(self._folder),),
            flush_on="loss",
        )

    def exhausted(self) -> bool:
        return not self._left and not self._running

    def should_stop(self) -> bool:
        return False

    def receive(self, message: Message) -> bool:
        if message.ending is not None:
            self._running.discard(message.trial_id)
            self.times.append(time.perf_counter())
        return False

    def left(self, trial_ids: Sequence[str]) -> None:
        pass

    def died(self, trial_ids: Sequence[str], why: str, *, crowded: bool = False) -> None:
        raise RuntimeError(why)

    def abort(self) -> None:
        pass


def ray_alone(count: int, folder: Path, pack: int) -> float:
    """Seconds a trial of Ray Tune."""
    folder.mkdir()
    (folder / "trivial_workload.py").write_text(WORKLOAD)
    driver = WithoutRecords(count, folder, pack)
    with ray_session(Run()) as session:
        session.run_round(driver, folder / "ray")
    return (max(driver.times) - min(driver.times)) / count


def records_alone(folder: Path, plan: Plan, profiler: cProfile.Profile | None = None) -> float:
    """Seconds a trial of the two records, each fed two points a metric and the ending."""
    (folder / "artifacts").mkdir(parents=True)
    ledger, tracker = Ledger.create(None, folder, plan.spec.study, "minimize"), Tracker(None, folder, plan.spec.study)
    tracker.open_study({})
    ledger.add(plan.trials, plan)
    entries = ledger.latest()
    recorder = Recorder(RunFolder(folder), ledger, tracker, plan.spec.metrics.primary)

    def record() -> None:
        for trial in plan.trials:
            recorder.begin(trial, entries[trial.trial_id], PROVENANCE)
            first, last = (Row(step, time.time(), {"loss": float(step)}) for step in (1, 2))
            recorder.receive(Message(trial.trial_id, 1, (first,)))
            recorder.receive(Message(trial.trial_id, 1, (last,), ending=Ending(metrics=last.metrics)))

    with commits_counted() as commits:
        began = time.perf_counter()
        profiler.runcall(record) if profiler else record()
        seconds = (time.perf_counter() - began) / len(plan.trials)
    ledger.close()
    counts = ", ".join(f"{name} {number / len(plan.trials):.1f}" for name, number in sorted(commits.items()))
    print(f"commits a trial: {counts}")
    return seconds


@contextlib.contextmanager
def commits_counted() -> Iterator[Counter[str]]:
    """Commits by the name of their sqlite file."""
    commits: Counter[str] = Counter()

    def count(connection: Connection) -> None:
        commits[Path(connection.engine.url.database or "").name] += 1

    event.listen(Engine, "commit", count)
    try:
        yield commits
    finally:
        event.remove(Engine, "commit", count)


def whole_run(study_file: Path) -> float:
    """Seconds a trial of a run with everything."""
    run_study(study_file)
    frame = open_study("trivial").trials()
    ends = frame["started"] + pd.to_timedelta(frame["duration_s"], unit="s")
    return float((ends.max() - frame["started"].min()).total_seconds()) / len(frame)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="?", type=int, default=192)
    parser.add_argument("--pack", type=int, default=1, help="trials that one process trains together")
    parser.add_argument("--records-only", action="store_true")
    parser.add_argument("--profile", type=Path, help="where to write the profile of the records, for pstats")
    arguments = parser.parse_args()
    profile_file = arguments.profile.resolve() if arguments.profile else None
    load = f"load {os.getloadavg()[0]:.1f}"
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, {load}, {arguments.trials} trials in packs of {arguments.pack}"
    )
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name), import_path(name):
        Path("trivial_workload.py").write_text(WORKLOAD)
        BUILT_IN["trivial"] = "trivial_workload:WORKLOAD"
        Path("study.yaml").write_text(STUDY.format(seeds=arguments.trials // 2, pack=arguments.pack))
        spec = load_study("study.yaml", workload_lookup=find_workload)
        profiler = cProfile.Profile() if profile_file else None
        seconds = records_alone(Path("records"), make_plan(spec, find_workload(spec.workload)), profiler)
        print(f"records alone:   {seconds * 1000:.0f} ms a trial")
        if profiler and profile_file:
            profiler.dump_stats(profile_file)
        if arguments.records_only:
            return
        ray_s = ray_alone(arguments.trials, Path("alone").resolve(), arguments.pack)
        print(f"Ray Tune alone:  {ray_s * 1000:.0f} ms a trial")
        print(f"with records:    {whole_run(Path('study.yaml')) * 1000:.0f} ms a trial")


if __name__ == "__main__":
    main()
