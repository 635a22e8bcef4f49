"""A driver that is killed at any write: the next run ends with every trial recorded once, with undisturbed numbers."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ablate.record.history import last_values, read_history

pytestmark = pytest.mark.slow

KILL_AT = Path(__file__).parent / "kill_at.py"
LEDGER = "ablate.record.optuna_storage:Ledger"
TRACKER = "ablate.record.mlflow_tracking:Tracker"

#: Every kind of write, in the order in which a trial makes them: (what, which call, before or after it).
WRITES = [
    (f"{LEDGER}.add", 1, "after"),
    (f"{LEDGER}.claim", 1, "after"),
    (f"{TRACKER}.start", 1, "after"),
    (f"{LEDGER}.note", 2, "after"),
    (f"{LEDGER}.note", 3, "after"),
    ("ablate.record.history:HistoryFile.append", 3, "after"),
    ("ablate.run.recorder:Recorder.receive", 2, "before"),
    (f"{LEDGER}.report", 2, "after"),
    (f"{LEDGER}.note_outcome", 1, "before"),
    (f"{LEDGER}.note_outcome", 1, "after"),
    (f"{TRACKER}.log", 1, "after"),
    (f"{TRACKER}.end", 1, "before"),
    (f"{TRACKER}.end", 1, "after"),
    (f"{LEDGER}.finish", 1, "before"),
    (f"{LEDGER}.finish", 1, "after"),
]

STUDY = """
study: toy
workload: toy_workload:train
baseline: {{x: 1.0, fault: none, steps: 3, sleep: 0.0, log: {log}}}
factors: {{fault: [none, a, b]}}
designs: [{{one_at_a_time: [fault]}}]
seeds: {{count: 5}}
metrics: {{primary: {{name: loss}}}}
"""


def run(place, writes=()):
    kills = [f"{target},{count},{when}" for target, count, when in writes]
    command = [sys.executable, KILL_AT, "study.yaml", *kills]
    done = subprocess.run(command, cwd=place.path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_kill_at_every_write_loses_and_doubles_nothing(place, tmp_path_factory):
    text = STUDY.format(log=place.path / "executions.txt")
    place.write(text)
    run(place, WRITES)

    trials = place.optuna_trials()
    assert Counter(trial.state.name for trial in trials) == {"COMPLETE": 15}
    assert len({trial.user_attrs["trial_id"] for trial in trials}) == 15
    runs = place.mlflow_runs()
    assert Counter(run.info.status for run in runs) == {"FINISHED": 15}
    assert len({run.data.tags["ablate.trial_id"] for run in runs}) == 15
    for found in runs:
        history = read_history(place.path / "runs/toy/trials" / found.data.tags["ablate.trial_id"] / "history.jsonl")
        assert [row.step for row in history] == [1, 2, 3]
        assert found.data.metrics == last_values(history)
    assert place.ablate("check", "toy")[0] == "the records agree\n"

    other = type(place)(tmp_path_factory.mktemp("undisturbed"), place.databases)
    (other.path / "toy_workload.py").write_text((place.path / "toy_workload.py").read_text())
    other.write(text)
    other.lend("toy")
    run(other)
    assert other.final_metrics() == place.final_metrics()
