"""Packs on real Ray: each member is a trial of its own, whatever becomes of the others and of their process."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.integration import packed_toy
from tests.integration.recorded_once import assert_recorded_once

pytestmark = pytest.mark.slow

KILL_AT = Path(__file__).parent / "kill_at.py"

STUDY = """
study: toy
workload: packed_toy
baseline: {{x: 1.0, fault: none, steps: {steps}, sleep: {sleep}, log: {log}}}
factors:
  fault: [{faults}]
designs: [{{one_at_a_time: [fault]}}]
seeds: {{count: {seeds}}}
metrics: {{primary: {{name: loss}}}}
run: {{pack: {pack}, max_concurrent: {workers}, max_failure_rate: 1.0, retries: 1, timeout_s: {timeout}}}
"""


def write(place, faults=("none", "other"), *, seeds=1, steps=3, sleep=0.0, timeout="null", pack=8):
    numbers = {"seeds": seeds, "steps": steps, "sleep": sleep, "timeout": timeout, "pack": pack}
    workers = "auto" if pack == "auto" else 1
    log = place.path / "executions.txt"
    place.write(STUDY.format(faults=", ".join(faults), log=log, workers=workers, **numbers))


def test_each_member_of_a_pack_ends_as_its_own_doing_says(packed_place):
    place = packed_place
    write(place, ("none", "raise", "nan", "kill", "other"))
    _, err = place.ablate("run", "study.yaml", code=1)
    frame = place.study().trials().set_index("arm")
    outcomes = {arm: (row.state, row.reason) for arm, row in frame.iterrows()}
    assert outcomes == {
        "baseline": ("COMPLETE", ""),
        "fault=raise": ("FAIL", "exception"),
        "fault=nan": ("FAIL", "diverged"),
        "fault=kill": ("FAIL", "died"),
        "fault=other": ("COMPLETE", ""),
    }
    assert "was trained with others: its process died" in err
    deaths = {trial.user_attrs["arm"]: trial.user_attrs.get("deaths", 0) for trial in place.optuna_trials()}
    assert {arm: count for arm, count in deaths.items() if count} == {"fault=kill": 2}
    starts = Counter(fault for fault, _, _ in place.executions())
    assert starts == {"none": 2, "raise": 1, "nan": 1, "kill": 3, "other": 2}
    first = {fault: pid for fault, _, pid in reversed(place.executions())}
    assert len(set(first.values())) == 1, "all began in one process"
    assert frame.loc["baseline", "metric.loss"] == packed_toy.alone(place.path / "alone", 0, steps=3)
    log = (place.path / "runs/toy/trials" / frame.loc["fault=raise", "trial_id"] / "log.txt").read_text()
    assert log.startswith("a pack begins\nraise starts after step 0\nTraceback")


@pytest.mark.campaign
def test_an_interrupted_pack_goes_on_where_each_member_was(packed_place):
    place = packed_place
    write(place, seeds=2, steps=6, sleep=0.2)
    process = place.start("run", "study.yaml")
    place.wait_for_executions(4)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert {trial.state.name for trial in place.optuna_trials()} <= {"WAITING", "COMPLETE"}
    place.ablate("run", "study.yaml")
    assert_recorded_once(place, trials=4, steps=6)
    values = [packed_toy.alone(place.path / f"alone-{seed}", seed, steps=6) for seed in range(2)]
    assert place.final_metrics() == {
        (arm, seed): value for seed, value in enumerate(values) for arm in ("baseline", "fault=other")
    }


@pytest.mark.campaign
def test_how_many_go_together_is_measured_once(packed_place):
    place = packed_place
    write(place, seeds=4, pack="auto")
    err = run_in_process(place)
    assert "toy: 8 trials are trained in packs of up to 4: 350 ms a step and trial, alone 1100 ms a step\n" in err
    measured = place.path / "measured.txt"
    assert measured.read_text() == "cpu 1\ncpu 1 2 4 8\n"
    logs = [path.read_text() for path in place.path.glob("runs/toy/trials/*/log.txt")]
    assert len(logs) == 8
    assert all(log.startswith("a pack begins\n") for log in logs)

    write(place, ("none", "other", "added"), seeds=4, pack="auto")
    assert "toy: 4 trials are trained in packs of up to 4: " in run_in_process(place)
    assert measured.read_text() == "cpu 1\ncpu 1 2 4 8\n"


def run_in_process(place):
    """Run the study without Ray. Returns: what it said."""
    place.lend("toy")
    done = subprocess.run([sys.executable, KILL_AT, "study.yaml"], cwd=place.path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.campaign
def test_a_hang_ends_the_process_and_only_the_guilty_times_out(packed_place):
    place = packed_place
    write(place, ("none", "hang", "slow", "other"), timeout=1.2)
    place.ablate("run", "study.yaml", code=1)
    frame = place.study().trials().set_index("arm")
    assert {arm: (row.state, row.reason) for arm, row in frame.iterrows()} == {
        "baseline": ("COMPLETE", ""),
        "fault=hang": ("FAIL", "timeout"),
        "fault=slow": ("FAIL", "timeout"),
        "fault=other": ("COMPLETE", ""),
    }
    log = place.ablate("logs", "toy", frame.loc["fault=hang", "trial_id"])[0]
    assert "packed_toy.py" in log, "the stack of a hanging trial is in its log"


@pytest.mark.campaign
def test_a_pack_function_that_fails_leaves_its_members_to_themselves(packed_place):
    place = packed_place
    write(place, ("none", "break", "other"))
    _, err = place.ablate("run", "study.yaml")
    assert "was trained with others: PackBrokenError: no one is to blame; goes on alone" in err
    assert_recorded_once(place, trials=3, steps=3)
    assert Counter(fault for fault, _, _ in place.executions()) == {"none": 2, "break": 2, "other": 2}
