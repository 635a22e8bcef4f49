"""What a trial can do wrong, and what becomes of the study."""

import contextlib
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient

pytestmark = pytest.mark.slow

KILL_AT = Path(__file__).parent / "kill_at.py"

STUDY = """
study: toy
workload: toy_workload:train
baseline: {{x: 1.0, fault: none, steps: 4, sleep: {sleep}, log: {log}}}
factors:
  fault: [{faults}]
designs: [{{one_at_a_time: [fault]}}]
seeds: {{count: {seeds}}}
metrics: {{primary: {{name: loss}}}}
run: {{max_failure_rate: 1.0, retries: 1, timeout_s: {timeout}}}
"""


def run_in_process(place):
    """Run the study without Ray, for what does not depend on it. Returns: the exit code."""
    return subprocess.run([sys.executable, KILL_AT, "study.yaml"], cwd=place.path, capture_output=True).returncode


def study_text(place, faults=("none", "other"), seeds=1, sleep=0.0, timeout="null"):
    log = place.path / "executions.txt"
    return STUDY.format(faults=", ".join(faults), seeds=seeds, sleep=sleep, timeout=timeout, log=log)


def test_each_fault_is_that_trials_alone(place):
    faults = ("none", "raise", "nan", "killed-once", "exit", "hang", "late")
    place.write(study_text(place, faults, timeout=8))
    _, err = place.ablate("run", "study.yaml", code=1)

    frame = place.study().trials().set_index("arm")
    outcomes = {arm: (row.state, row.reason) for arm, row in frame.iterrows()}
    assert outcomes == {
        "baseline": ("COMPLETE", ""),
        "fault=raise": ("FAIL", "exception"),
        "fault=nan": ("FAIL", "diverged"),
        "fault=killed-once": ("COMPLETE", ""),
        "fault=exit": ("FAIL", "died"),
        "fault=hang": ("FAIL", "timeout"),
        "fault=late": ("COMPLETE", ""),
    }
    executions = Counter(fault for fault, _, _ in place.executions())
    assert (executions["raise"], executions["killed-once"], executions["exit"], executions["hang"]) == (1, 2, 2, 1)
    assert re.search(r"failed: fault=raise · seed 0, exception; see: ablate logs toy [0-9a-f]{12}", err)
    assert "RuntimeError: boom" in err

    log = place.ablate("logs", "toy", frame.loc["fault=raise", "trial_id"])[0]
    assert 'raise RuntimeError("boom")' in log
    log = place.ablate("logs", "toy", frame.loc["fault=killed-once", "trial_id"])[0]
    assert "starting after step 0" in log
    assert "starting after step 2" in log
    log = place.ablate("logs", "toy", frame.loc["fault=hang", "trial_id"])[0]
    assert "toy_workload.py" in log, "the stack of a hanging trial is in its log"

    mlflow = {run.data.tags["ablate.arm"]: run.info.status for run in place.mlflow_runs()}
    assert mlflow == {arm: "FINISHED" if state == "COMPLETE" else "FAILED" for arm, (state, _) in outcomes.items()}
    assert place.ablate("check", "toy")[0] == "the records agree\n"
    status = place.status()
    assert status["states"] == {"WAITING": 0, "RUNNING": 0, "COMPLETE": 3, "PRUNED": 0, "FAIL": 4}
    reasons = {failure["reason"] for failure in status["failures"]}
    assert reasons == {"exception", "diverged", "died", "timeout"}

    # failed trials are run again only when asked for, and a diverged one never
    before = len(place.executions())
    place.ablate("run", "study.yaml", code=1)
    assert len(place.executions()) == before
    place.ablate("run", "study.yaml", "--retry-failed", "--arm", "fault=raise", "--arm", "fault=nan", code=1)
    assert [fault for fault, _, _ in place.executions()[before:]] == ["raise"]
    attempts = [(run.data.tags["ablate.arm"], run.data.tags["ablate.attempt"]) for run in place.mlflow_runs()]
    assert ("fault=raise", "2") in attempts
    assert ("fault=nan", "2") not in attempts


def test_a_killed_driver_loses_nothing(place, tmp_path_factory):
    text = study_text(place, ("none", "killed-once", "other"), seeds=3, sleep=0.15)
    place.write(text)
    process = place.start("run", "study.yaml")
    place.wait_for_executions(4)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert place.status()["states"]["RUNNING"] == 0

    place.ablate("run", "study.yaml")
    trials = place.optuna_trials()
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 9
    assert len({trial.user_attrs["trial_id"] for trial in trials}) == 9
    assert Counter(run.info.status for run in place.mlflow_runs()) == {"FINISHED": 9}
    assert place.ablate("check", "toy")[0] == "the records agree\n"

    steps = place.study().curves().query("metric == 'aux/step'").groupby("trial_id")["step"].apply(list)
    assert steps.tolist() == [[1, 2, 3, 4]] * 9, "each step is there once"
    assert {(run.data.tags["ablate.arm"], int(run.data.tags["ablate.seed"])): run.data.metrics["loss"]
            for run in place.mlflow_runs()} == place.final_metrics()  # fmt: skip

    # an undisturbed run of the same file gives the same ids and the same numbers
    other = type(place)(tmp_path_factory.mktemp("undisturbed"))
    (other.path / "toy_workload.py").write_text((place.path / "toy_workload.py").read_text())
    other.write(text)
    while run_in_process(other):  # a trial that kills its process kills this driver
        pass
    assert other.final_metrics() == place.final_metrics()
    assert set(other.study().trials()["trial_id"]) == set(place.study().trials()["trial_id"])

    # a finished study starts nothing
    before = len(place.executions())
    place.ablate("run", "study.yaml")
    assert len(place.executions()) == before

    # one more seed and one more arm run what is new alone
    place.write(study_text(place, ("none", "killed-once", "other", "added"), seeds=3, sleep=0.15))
    place.ablate("run", "study.yaml", "--seeds", "4")
    new = [(fault, seed) for fault, seed, _ in place.executions()[before:]]
    assert Counter(new) == Counter(
        {("none", "3"): 1, ("killed-once", "3"): 2, ("other", "3"): 1} | {("added", str(seed)): 1 for seed in range(4)}
    )


def test_an_interrupted_study_goes_on_and_a_second_runner_is_refused(place):
    place.write(study_text(place, ("none", "a", "b"), seeds=2, sleep=0.5))
    first = place.start("run", "study.yaml")
    place.wait_for_executions(1)
    _, err = place.ablate("run", "study.yaml", code=1)
    assert re.search(rf"ablate: study toy is being run by process {first.pid} on \S+ since ", err)
    assert place.status()["holder"].startswith(f"process {first.pid} on ")
    first.send_signal(signal.SIGTERM)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "the same command goes on from here: ablate run study.yaml" in err
    states = place.status()["states"]
    assert (states["RUNNING"], states["FAIL"]) == (0, 0)
    assert {trial.state.name for trial in place.optuna_trials()} <= {"WAITING", "COMPLETE"}
    assert "RUNNING" not in {run.info.status for run in place.mlflow_runs()}

    place.ablate("run", "study.yaml")
    assert Counter(trial.state.name for trial in place.optuna_trials()) == {"COMPLETE": 6}
    logs = [path.read_text() for path in place.path.glob("runs/toy/trials/*/log.txt")]
    starts = [[line for line in log.splitlines() if line.startswith("starting after step")] for log in logs]
    assert all(lines[0] == "starting after step 0" for lines in starts)
    assert any(len(lines) == 2 for lines in starts), "a trial that was put back has both starts in its log"


def test_requests_that_cannot_be_met_write_nothing(place):
    place.write(study_text(place, ("none", "raise"), seeds=6))
    _, err = place.ablate("run", "study.yaml", "--set", "run.resources.gpu=0.5", code=2)
    assert err == (
        "run.resources.gpu: 0.5 asked for each worker; this machine has 0; "
        "lower it in the study file or with --set run.resources.gpu=0\n"
    )
    assert not (place.path / "runs").exists()
    _, err = place.ablate("run", "study.yaml", "--arm", "fault=rise", code=2)
    assert err == "--arm: got 'fault=rise'; arms of this study: baseline, fault=raise; did you mean 'fault=raise'?\n"
    assert not (place.path / "runs").exists()


def test_records_that_are_lost_or_changed_are_mended(place):
    place.write(study_text(place, ("none", "a", "b")))
    assert run_in_process(place) == 0
    before = place.final_metrics()
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{place.path}/runs/toy/mlflow.db")
    runs = {run.data.tags["ablate.arm"]: run for run in place.mlflow_runs()}
    client.delete_run(runs["fault=a"].info.run_id)
    client.update_run(runs["fault=b"].info.run_id, status="RUNNING")
    out, _ = place.ablate("check", "toy")
    assert sorted(re.sub(r"\([0-9a-f]{12}\)", "(id)", line) for line in out.splitlines()) == [
        "mended: fault=a · seed 0 (id) had been deleted from MLflow; its run is restored",
        "mended: fault=b · seed 0 (id) had ended, but MLflow lacked a part of it; it is filled in",
    ]
    assert place.ablate("check", "toy")[0] == "the records agree\n"

    # the whole tracking file can be lost: the histories hold what it held
    for path in (place.path / "runs" / "toy").glob("mlflow.db*"):
        path.unlink()
    out, _ = place.ablate("check", "toy")
    assert out.count("was missing from MLflow; it is written again") == 3
    assert place.ablate("check", "toy")[0] == "the records agree\n"
    assert place.final_metrics() == before
    for path in (place.path / "runs/toy/trials").glob("*/history.jsonl"):
        path.unlink()
    curves = place.study().curves()
    assert set(curves["metric"]) == {"aux/step", "loss"}, "where a history is gone MLflow's curves stand in"
    assert curves.query("metric == 'aux/step'").groupby("trial_id").size().tolist() == [4, 4, 4]
    # not by the client of this process, which holds on to the file that was deleted
    with contextlib.closing(sqlite3.connect(place.path / "runs/toy/mlflow.db")) as connection:
        stored = {run for (run,) in connection.execute("SELECT run_uuid FROM tags WHERE key = 'ablate.trial_id'")}
    assert set(place.study().trials()["mlflow_run_id"]) == stored


def test_too_many_failures_stop_the_study(place):
    place.write(study_text(place, ("none", "raise"), seeds=8).replace("max_failure_rate: 1.0", "max_failure_rate: 0.1"))
    assert run_in_process(place) == 1
    states = place.status()["states"]
    assert states["FAIL"] == 3
    assert states["WAITING"] > 0


def test_other_code_is_asked_about(place):
    place.write(study_text(place))
    assert run_in_process(place) == 0
    workload = place.path / "toy_workload.py"
    workload.write_text(workload.read_text() + "\n# changed\n")
    _, err = place.ablate("run", "study.yaml", code=1)
    assert re.fullmatch(
        r"(?s).*ablate: 2 finished trials of toy ran with other code than the present one \(code hash [0-9a-f]{16}, "
        r"now [0-9a-f]{16}\); --keep-old keeps them beside new ones, --rerun runs them again\n",
        err,
    )
    place.ablate("run", "study.yaml", "--keep-old")
    assert len(place.executions()) == 2
    place.ablate("run", "study.yaml", "--rerun")
    assert len(place.executions()) == 4
    assert [trial.user_attrs["attempt"] for trial in place.optuna_trials()] == [1, 1, 2, 2]
    trials = place.study().trials()
    assert trials["attempt"].tolist() == [2, 2]

    # what a trial kept beside its metrics is a file and an artifact, of each attempt
    for row in trials.itertuples():
        folder = place.path / "runs/toy/trials" / row.trial_id
        assert float((folder / "texts/last.txt").read_text()) == trials.loc[row.Index, "metric.loss"]
        assert (folder / "attempt-1/texts/last.txt").exists()
    client = MlflowClient(f"sqlite:///{place.path}/runs/toy/mlflow.db")
    kept = [{item.path for item in client.list_artifacts(run.info.run_id)} for run in place.mlflow_runs()]
    assert kept == [{"config.json", "history.jsonl", "last.txt", "log.txt"}] * 4


def test_a_silent_metric_is_named(place):
    place.write(study_text(place).replace("toy_workload:train", "toy_workload:train_silently"))
    assert run_in_process(place) == 1
    failures = place.status()["failures"]
    assert {failure["error"] for failure in failures} == {"metric 'loss' was not reported; reported: other"}


def test_status_of_a_study_that_is_not_there(place):
    _, err = place.ablate("status", "nothing", code=1)
    assert err == "ablate: no study 'nothing'; runs holds no study\n"


def test_json_of_the_plan_knows_what_is_done(place):
    place.write(study_text(place))
    plan = json.loads(place.ablate("plan", "study.yaml", "--json")[0])
    assert [trial["state"] for trial in plan["trials"]] == ["WAITING"] * 2
    assert not (place.path / "runs").exists()


@pytest.mark.campaign
def test_a_second_interrupt_ends_at_once_and_loses_nothing(place, interrupt):
    place.write(study_text(place, ("none", "other"), seeds=2, sleep=30.0))
    process = place.start("run", "study.yaml")
    place.wait_for_executions(1)
    interrupt(process)
    time.sleep(0.3)
    interrupt(process)
    began = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - began < 25  # a step of a trial takes longer
    assert place.status()["states"]["RUNNING"] == 0
    place.write(study_text(place, ("none", "other"), seeds=2, sleep=0.0))
    place.ablate("check", "toy")
