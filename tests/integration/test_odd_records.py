"""Clocks that jump, stores that others hold, lines that were not written to their end."""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ablate.workloads.contract import Trial
from tests.integration.recorded_once import assert_recorded_once
from tests.integration.test_faults import study_text

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent


def run(place, script="kill_at"):
    place.lend("toy")
    command = [sys.executable, "-m", f"tests.integration.{script}", "study.yaml"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=place.path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_clock_that_jumps_changes_no_number(place):
    place.write(study_text(place, seeds=2))
    run(place, "jumping_clock")
    assert_recorded_once(place, trials=4, steps=4)
    trials = place.study().trials()
    expected = [1.0 + Trial(seed=seed).rng("noise").normal(size=4)[-1] for seed in trials["seed"]]
    assert trials["metric.loss"].tolist() == expected
    assert not (trials["duration_s"] < 0).any(), "a duration that the clock spoilt is unknown, not negative"
    assert all(run.info.end_time >= run.info.start_time for run in place.mlflow_runs())
    assert "toy: 4 COMPLETE" in place.ablate("status", "toy")[0]


@pytest.mark.campaign
@pytest.mark.parametrize("database", ["optuna.db", "mlflow.db"])
def test_a_store_that_another_process_holds_for_a_while_is_waited_for(place, database):
    place.write(study_text(place, seeds=1))
    place.lend("toy")
    connection = sqlite3.connect(place.path / "runs/toy" / database, check_same_thread=False, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    release = threading.Timer(6.0, lambda: (connection.execute("ROLLBACK"), connection.close()))
    release.start()
    run(place)
    release.join()
    assert_recorded_once(place, trials=2, steps=4)


@pytest.mark.campaign
def test_a_torn_last_line_of_a_finished_trial_is_found(place):
    place.write(study_text(place, seeds=1))
    run(place)
    trial_id = place.study().trials()["trial_id"].iloc[0]
    history = place.path / "runs/toy/trials" / trial_id / "history.jsonl"
    history.write_bytes(history.read_bytes()[:-9])
    out, _ = place.ablate("check", "toy", code=1)
    assert out == (
        f"NOT MENDED: baseline · seed 0 ({trial_id}): final aux/step, loss in MLflow is not what its history says\n"
    )
    assert place.study().trials()["metric.loss"].notna().all(), "the final values stand in the ledger"
