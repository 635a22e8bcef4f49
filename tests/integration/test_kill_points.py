"""A driver that is killed at any write: the next run ends with every trial recorded once, with undisturbed numbers."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ablate.record.history import last_values, read_history
from tests.integration import packed_toy
from tests.integration.recorded_once import assert_recorded_once

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


#: Of a pack's trials the second or third is struck.
WRITES_OF_A_PACK = [
    ("ablate.run.recorder:Recorder.receive", 6, "before"),
    (f"{LEDGER}.note_outcome", 2, "after"),
]
MORE_WRITES_OF_A_PACK = [
    (f"{LEDGER}.claim", 2, "after"),
    (f"{TRACKER}.start", 3, "after"),
    ("ablate.record.history:HistoryFile.append", 8, "after"),
    (f"{LEDGER}.note_outcome", 3, "before"),
    (f"{TRACKER}.end", 2, "before"),
    (f"{LEDGER}.finish", 2, "before"),
    (f"{LEDGER}.finish", 2, "after"),
]


@pytest.mark.parametrize(
    "writes", [WRITES_OF_A_PACK, pytest.param(MORE_WRITES_OF_A_PACK, marks=pytest.mark.campaign)], ids=["few", "more"]
)
def test_a_killed_packed_study_has_the_records_of_trials_that_run_alone(packed_place, writes):
    text = STUDY.format(log=packed_place.path / "executions.txt").replace("toy_workload:train", "packed_toy")
    packed_place.write(f"{text.replace('count: 5', 'count: 4')}run: {{pack: 4}}\n")
    run(packed_place, writes)
    assert_recorded_once(packed_place, trials=12, steps=3)
    starts = len(packed_place.executions())
    assert 12 < starts < 12 * (len(writes) + 1)

    alone = [packed_toy.alone(packed_place.path / f"alone-{seed}", seed, steps=3) for seed in range(4)]
    assert packed_place.final_metrics() == {
        (arm, seed): alone[seed] for arm in ("baseline", "fault=a", "fault=b") for seed in range(4)
    }
