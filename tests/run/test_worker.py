import contextlib
import math
import os
import sys
import textwrap

import pytest

from ablate.run.assignment import Assignment, Ending, Message
from ablate.run.worker import run_trial
from ablate.workloads.contract import Row, TrialStopped

CODE = """
import os, random, sys
import numpy as np
from ablate.workloads.contract import TrialDiverged, TrialStopped

def good(config, trial):
    print("out", config["x"])
    print("err", file=sys.stderr)
    os.write(1, b"from C\\n")
    for step in range(3):
        trial.report(step, {"train/loss": step})
    trial.report(3, {"loss": 0.5})
    trial.note("factor", 2.0)
    trial.keep_text("samples.tsv", "a\\tb")
    return {"loss": 0.5, "extra": 1}

def returns_another_value(config, trial):
    trial.report(3, {"loss": 0.5})
    return {"loss": 0.25}

def returns_at_once(config, trial):
    return {"loss": 0.5}

def raises(config, trial):
    raise RuntimeError("boom")

def exits(config, trial):
    sys.exit(3)

def diverges(config, trial):
    raise TrialDiverged("objective is nan at step 7")

def stops_by_itself(config, trial):
    raise TrialStopped("just so")

def bad_metric(config, trial):
    trial.report(0, {"loss": "low"})

def bad_name(config, trial):
    trial.report(0, {"loss!": 1.0})

def no_dict(config, trial):
    return 3.0

def nothing(config, trial):
    return None

def hears_nothing(config, trial):
    try:
        trial.report(0, {"loss": 1.0})
    except Exception:
        print("stopped, tidying up")
        raise
    print("never here")

def resumes(config, trial):
    state = trial.checkpoint_dir / "step"
    start = int(state.read_text()) if state.exists() else 0
    for step in range(start + 1, 6):
        trial.report(step, {"train/loss": step})
        state.write_text(str(step))
        trial.checkpointed(step)
    return {"loss": 0.5}

def global_streams(config, trial):
    return {"loss": random.random() + np.random.random()}
"""


@pytest.fixture
def assignment(tmp_path, monkeypatch):
    (tmp_path / "worker_toy.py").write_text(textwrap.dedent(CODE))
    monkeypatch.delitem(sys.modules, "worker_toy", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def make(function, **changes):
        values = {
            "trial_id": "abc",
            "attempt": 1,
            "train": f"worker_toy:{function}",
            "config": {"x": 1},
            "baseline": None,
            "evaluation": {},
            "seed": 3,
            "replicate": 0,
            "checkpoint_dir": str(tmp_path / "checkpoint"),
            "shared_dir": str(tmp_path / "shared"),
            "output_file": str(tmp_path / "output.txt"),
            "import_path": (str(tmp_path),),
            "flush_on": "loss",
        }
        return Assignment(**(values | changes))

    return make


def messages_of(assignment):
    messages = []
    # pytest stands its own objects in for the streams; a worker has those of the process
    with (
        os.fdopen(1, "w", closefd=False) as stdout,
        os.fdopen(2, "w", closefd=False) as stderr,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        run_trial(assignment, "cpu", lambda message: messages.append(Message.from_json(message.to_json())))
    return messages


def ending_of(assignment):
    return messages_of(assignment)[-1].ending


def test_reports_wait_for_the_primary_metric_and_the_end(assignment):
    messages = messages_of(assignment("good"))
    # the second holds what the function returned, and is sent for the primary metric in it
    assert [[row.step for row in message.rows] for message in messages] == [[0, 1, 2, 3], [3], []]
    assert messages[-1].ending == Ending(
        metrics={"loss": 0.5, "extra": 1.0}, notes={"factor": 2.0}, texts={"samples.tsv": "a\tb"}
    )


def test_reports_that_a_checkpoint_is_past_and_no_driver_has_are_sent_again(assignment):
    recorded = []

    def dying(message):
        if len(recorded) == 2:
            raise ConnectionError("the driver is gone")
        recorded.extend(message.rows)

    with pytest.raises(ConnectionError):
        run_trial(assignment("resumes"), "cpu", dying)
    assert [row.step for row in recorded] == [1, 2], "the checkpoint is past step 3"
    again = messages_of(assignment("resumes", last_step=2, last_row={"train/loss": 2.0}))
    steps = [row.step for message in again for row in message.rows]
    assert steps == [2, 3, 4, 5, 5]
    assert again[-1].ending.metrics == {"train/loss": 5.0, "loss": 0.5}


def test_everything_printed_is_sent_once(assignment):
    text = "".join(message.log for message in messages_of(assignment("good")))
    assert sorted(text.splitlines()) == ["err", "from C", "out 1"]


def test_a_returned_value_that_differs_from_the_reported_one_counts(assignment):
    rows = [row for message in messages_of(assignment("returns_another_value")) for row in message.rows]
    assert [(row.step, row.metrics) for row in rows] == [(3, {"loss": 0.5}), (4, {"loss": 0.25})]


def test_a_trial_that_had_only_its_result_left_to_say_says_it_at_its_last_step(assignment):
    going_on = assignment("returns_at_once", last_step=7, last_row={"loss": 0.5})
    rows = [row for message in messages_of(going_on) for row in message.rows]
    assert [(row.step, row.metrics) for row in rows] == [(7, {"loss": 0.5})]


@pytest.mark.parametrize(
    ("function", "reason", "error"),
    [
        ("raises", "exception", "RuntimeError: boom"),
        ("exits", "exception", "SystemExit: 3"),
        ("diverges", "diverged", "objective is nan at step 7"),
        ("stops_by_itself", "exception", "TrialStopped was raised, but no one had asked for it: just so"),
        ("bad_metric", "exception", "TypeError: metric 'loss' is 'low'; a number is needed"),
        (
            "bad_name",
            "exception",
            "ValueError: metric name 'loss!' cannot be recorded; allowed are letters, digits, '_', '-', '.', ' ', "
            "':' and single '/' between parts",
        ),
        ("no_dict", "exception", "TypeError: a trial function returns a dict of its final metrics, not float"),
        ("absent", "exception", "AttributeError: module 'worker_toy' has no attribute 'absent'"),
    ],
)
def test_whatever_is_raised_ends_the_trial_alone(assignment, function, reason, error):
    ending = ending_of(assignment(function))
    assert (ending.reason, ending.error) == (reason, error)


def test_the_traceback_is_in_the_log(assignment):
    log = "".join(message.log for message in messages_of(assignment("raises")))
    assert 'raise RuntimeError("boom")' in log


def test_a_function_that_returns_nothing_has_no_final_metrics(assignment):
    assert ending_of(assignment("nothing")) == Ending()


def test_a_stopped_trial_sends_no_ending(assignment):
    sent = []

    def send(message):
        sent.append(message)
        raise TrialStopped

    run_trial(assignment("hears_nothing"), "cpu", send)
    assert [message.ending for message in sent] == [None]


def test_a_reused_process_draws_the_same_global_numbers(assignment):
    first, second = (ending_of(assignment("global_streams")).metrics["loss"] for _ in range(2))
    assert first == second
    assert ending_of(assignment("global_streams", seed=4)).metrics["loss"] != first


def test_messages_pass_as_json():
    rows = (Row(1, 2.0, {"a": math.inf, "b": 1.0}),)
    message = Message("abc", 2, rows, "text", 4, 7, Ending("diverged", "why", {"a": math.inf}, {"n": [1]}))
    assert Message.from_json(message.to_json()) == message
