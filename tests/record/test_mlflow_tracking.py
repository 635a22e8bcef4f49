import math

import pytest
from mlflow import MlflowClient

from ablate.record.mlflow_tracking import Tracker, TrackingError, flatten, thinned
from ablate.workloads.contract import Row


@pytest.fixture(scope="module")
def tracker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "artifacts").mkdir()
    opened = Tracker(None, folder, "s")
    opened.open_study({"ablate.question": "why"})
    return opened


def start(tracker, trial_id, config=None, attempt=1):
    tags = {"ablate.trial_id": trial_id, "ablate.attempt": str(attempt)}
    return tracker.start(f"{trial_id} · seed 0", tags, config or {}, 1000.0)


def client_of(tracker):
    return MlflowClient(tracker.url)


def test_a_trial_is_a_nested_run_with_its_configuration(tracker):
    long = "x" * 10_000
    run_id = start(tracker, "a1", {"model": {"width": 8, "sizes": [1, 2]}, "odd name!": True, "long": long})
    run = client_of(tracker).get_run(run_id)
    assert run.data.tags["mlflow.parentRunId"] == tracker.open_study({})
    assert run.data.params == {
        "model.width": "8",
        "model.sizes": "[1, 2]",
        "odd name_": "True",
        "long": long[:6000],
    }
    assert run.info.status == "RUNNING"


def test_rows_logged_twice_are_there_once_with_their_own_steps_and_times(tracker):
    run_id = start(tracker, "a2")
    rows = [Row(step, 1000.5 + step, {"loss": 1.0 / (step + 1)}) for step in range(5)]
    tracker.log(run_id, rows)
    tracker.log(run_id, rows)
    assert tracker.curves([run_id]) == {run_id: [(row.step, "loss", row.metrics["loss"]) for row in rows]}
    points = client_of(tracker).get_metric_history(run_id, "loss")
    assert {point.step: point.timestamp for point in points} == {row.step: row.time * 1000 for row in rows}


def test_curves_of_many_runs_come_in_one_answer(tracker):
    expected = {}
    for i in range(3):
        run_id = start(tracker, f"b{i}")
        tracker.log(run_id, [Row(9, 2000.0, {"b": 2.0, "a": 3.0}), Row(i, 1000.0 + i, {"b": float(i)})])
        expected[run_id] = [(i, "b", float(i)), (9, "a", 3.0), (9, "b", 2.0)]
    empty = start(tracker, "b3")
    assert tracker.curves([*expected, empty]) == expected | {empty: []}
    assert {run_id: tracker._curves_from_server(run_id) for run_id in expected} == expected


def test_non_finite_values_are_not_logged(tracker):
    run_id = start(tracker, "a3")
    tracker.log(run_id, [Row(0, 1000.0, {"a": math.inf, "b": math.nan, "c": 1.0})])
    assert client_of(tracker).get_run(run_id).data.metrics == {"c": 1.0}


def test_a_run_ends_with_its_artifacts_and_is_found_again(tracker, tmp_path):
    run_id = start(tracker, "a4", attempt=2)
    (tmp_path / "log.txt").write_text("hello")
    missing = tmp_path / "missing.txt"
    tracker.end(run_id, "FAIL", tags={"ablate.reason": "died"}, artifacts=[tmp_path / "log.txt", missing], end_s=2000.0)
    run = client_of(tracker).get_run(run_id)
    assert (run.info.status, run.info.end_time, run.data.tags["ablate.reason"]) == ("FAILED", 2_000_000, "died")
    assert [item.path for item in client_of(tracker).list_artifacts(run_id)] == ["log.txt"]
    assert tracker.find("a4", 2) == run_id
    assert tracker.find("a4", 1) is None


def test_deleted_runs_are_seen_as_such_and_can_be_restored(tracker):
    run_id = start(tracker, "0000000000a5")
    tracker.discard(run_id)
    assert [run.deleted for run in tracker.runs() if run.trial_id == "0000000000a5"] == [True]
    tracker.restore(run_id)
    assert [run.deleted for run in tracker.runs() if run.trial_id == "0000000000a5"] == [False]


def test_a_server_that_is_down_is_one_kind_of_error(tmp_path):
    tracker = Tracker("http://127.0.0.1:9", tmp_path, "s")
    with pytest.raises(TrackingError):
        tracker.open_study({})


@pytest.mark.parametrize("count", [1, 49, 50, 51, 1000])
def test_thinning_keeps_the_last_report_and_few_others(count):
    rows = [
        Row(step, float(step), {"loss": step, **({"eval": step} if step % 100 == 0 else {})}) for step in range(count)
    ]
    kept = thinned(rows)
    assert kept[-1].metrics["loss"] == count - 1
    assert min(count, 25) <= sum("loss" in row.metrics for row in kept) <= 50
    assert sum("eval" in row.metrics for row in kept) == len(range(0, count, 100))
    assert [row.step for row in kept] == sorted({row.step for row in kept})


def test_flattening_names_leaves_by_path():
    assert list(flatten({"a": {"b": 1, "c": {}}, "d": (1, "x")})) == [("a.b", 1), ("a.c", "{}"), ("d", '[1, "x"]')]
