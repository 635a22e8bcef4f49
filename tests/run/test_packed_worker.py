"""A worker that trains several trials together: whose output, whose end, whose time it is."""

import contextlib
import dataclasses
import os
import shutil
import sys
from pathlib import Path

import pytest

from ablate.run.assignment import Assignment, Message
from ablate.run.packed_worker import run_trials

TOY = Path(__file__).parent.parent / "integration" / "packed_toy.py"


@pytest.fixture
def assignment(tmp_path, monkeypatch):
    shutil.copy(TOY, tmp_path)
    monkeypatch.delitem(sys.modules, "packed_toy", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def make(fault, seed=0, *, steps=3, sleep=0.0, timeout_s=None):
        folder = tmp_path / "trials" / f"{fault}{seed}"
        return Assignment(
            trial_id=f"{fault}{seed}",
            attempt=1,
            train="packed_toy:train",
            config={"x": 1.0, "fault": fault, "steps": steps, "sleep": sleep, "log": str(tmp_path / "executions.txt")},
            baseline=None,
            evaluation={},
            seed=seed,
            replicate=0,
            checkpoint_dir=str(folder / "checkpoint"),
            shared_dir=str(tmp_path / "shared"),
            output_file=str(folder / "output.txt"),
            pack="packed_toy:train_together",
            flush_on="loss",
            timeout_s=timeout_s,
        )

    return make


class Heard:
    """A driver that remembers what it is sent, and asks to end what it is told to."""

    def __init__(self, leaving=lambda message: False):
        self.batches = []
        self._leaving = leaving

    def __call__(self, messages):
        self.batches.append([Message.from_json(message.to_json()) for message in messages])
        return {message.trial_id for message in messages if self._leaving(message)}

    def of(self, name):
        return [message for batch in self.batches for message in batch if message.trial_id == name]

    def log(self, name):
        return "".join(message.log for message in self.of(name))

    def ending(self, name):
        return next((message.ending for message in self.of(name) if message.ending is not None), None)

    def values(self, name):
        return [row.metrics["loss"] for message in self.of(name) for row in message.rows]


def run(*assignments, leaving=lambda message: False):
    heard = Heard(leaving)
    # pytest stands its own objects in for the streams; a worker has those of the process
    with (
        os.fdopen(1, "w", closefd=False) as stdout,
        os.fdopen(2, "w", closefd=False) as stderr,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        run_trials(assignments, "cpu", heard)
    return heard


def test_a_pack_reports_what_its_trials_report_alone(assignment, tmp_path):
    together = run(*(assignment("none", seed) for seed in range(3)))
    shutil.rmtree(tmp_path / "trials")
    for seed in range(3):
        alone = run(assignment("none", seed))
        name = f"none{seed}"
        assert together.values(name) == alone.values(name)
        assert together.ending(name) == alone.ending(name)


def test_reports_of_the_same_step_go_in_one_message(assignment):
    heard = run(assignment("none", 0), assignment("none", 1))
    steps = [sorted({row.step for message in batch for row in message.rows}) for batch in heard.batches]
    assert steps == [[1], [2], [3], [3], [3]], "the first one's end does not wait for the second"
    assert [len(batch) for batch in heard.batches] == [3, 4, 4, 1, 2], "checkpoints go along"


def test_each_log_has_what_its_trial_printed_and_what_no_one_did(assignment):
    heard = run(assignment("none", 0), assignment("raise", 1))
    assert heard.log("none0") == "a pack begins\nnone starts after step 0\n"
    assert heard.log("raise1").startswith("a pack begins\nraise starts after step 0\nTraceback")
    assert heard.log("raise1").endswith("RuntimeError: boom\n")


@pytest.mark.parametrize(
    ("fault", "reason", "error"),
    [("raise", "exception", "RuntimeError: boom"), ("nan", "diverged", "the walk left the plane")],
)
def test_what_ends_one_member_leaves_the_others_untouched(assignment, tmp_path, fault, reason, error):
    heard = run(assignment("none", 0), assignment(fault, 1), assignment("none", 2))
    assert (heard.ending(f"{fault}1").reason, heard.ending(f"{fault}1").error) == (reason, error)
    for name in ("none0", "none2"):
        assert heard.ending(name).reason == ""
        assert len(heard.values(name)) == 4


def test_a_finished_member_leaves_while_the_others_go_on(assignment):
    heard = run(assignment("none", 0, steps=1), assignment("none", 1, steps=3))
    order = [(message.trial_id, message.ending is not None) for batch in heard.batches for message in batch]
    ended = order.index(("none0", True))
    assert ("none1", False) in order[ended:]
    assert heard.ending("none1").metrics["aux/step"] == 3.0


def test_where_no_one_is_to_blame_all_are_sent_back(assignment):
    heard = run(assignment("none", 0), assignment("break", 1), assignment("none", 2, steps=1))
    assert heard.ending("none2").reason == "", "it had ended before"
    for name in ("none0", "break1"):
        assert heard.ending(name) is None
        assert heard.of(name)[-1].apart == "PackBrokenError: no one is to blame"
        assert "PackBrokenError: no one is to blame" in heard.log(name)
    back = [message.trial_id for message in heard.batches[-1] if message.apart]
    assert back == ["break1", "none0"], "each goes before all that wait"


def test_a_member_that_the_driver_wants_no_more_of_leaves_without_an_ending(assignment):
    heard = run(
        assignment("none", 0),
        assignment("none", 1),
        leaving=lambda message: message.trial_id == "none1" and any(row.step == 2 for row in message.rows),
    )
    assert heard.ending("none1") is None
    assert {row.step for message in heard.of("none1") for row in message.rows} == {1, 2}
    assert heard.ending("none0").metrics["aux/step"] == 3.0


def test_a_stopped_pack_keeps_what_its_members_had_reached(assignment):
    def at_the_second_step(message):
        return message.checkpoint_step == 2

    first = run(assignment("none", 0), assignment("none", 1), leaving=at_the_second_step)
    assert all(first.ending(name) is None for name in ("none0", "none1"))
    again = run(assignment("none", 0), assignment("none", 1))
    undisturbed = run(assignment("other", 0), assignment("other", 1))
    for seed in range(2):
        assert "none starts after step 3" in again.log(f"none{seed}"), "a stopped trial may save once more"
        rows = [row for message in again.of(f"none{seed}") for row in message.rows]
        assert {row.step for row in rows if "aux/step" in row.metrics} == {1, 2, 3}
        assert again.values(f"none{seed}")[-1] == undisturbed.values(f"other{seed}")[-1]


def test_the_time_of_one_member_is_its_own(assignment):
    heard = run(assignment("slow", 0, timeout_s=1.0), assignment("none", 1, timeout_s=1.0))
    assert heard.ending("slow0").reason == "timeout"
    assert heard.ending("slow0").error == "not finished after 1 s"
    assert heard.ending("none1").reason == ""


def test_a_member_that_has_left_takes_no_other_members_output_along(assignment, tmp_path):
    files = [tmp_path / "trials" / name / "output.txt" for name in ("none0", "break1")]
    seen = []

    def sweeping(message):
        if message.ending is not None:
            files[0].unlink()
        seen.append([file.exists() for file in files])
        return False

    run(assignment("none", 0, steps=1), assignment("break", 1), leaving=sweeping)
    assert seen[-1] == [False, True]
    assert "PackBrokenError" in files[1].read_text()


def test_ends_in_a_row_go_in_one_message(assignment, tmp_path):
    (tmp_path / "at_once.py").write_text(
        "def together(members):\n"
        "    for member in members:\n"
        "        member.trial.report(1, {'loss': 2.0})\n"
        "    for member in members:\n"
        "        member.end({'loss': 1.0})\n"
    )
    heard = run(*(dataclasses.replace(assignment("none", seed), pack="at_once:together") for seed in range(4)))
    assert [[message.ending is not None for message in batch] for batch in heard.batches] == [[False] * 4, [True] * 4]
    assert heard.values("none3") == [2.0, 1.0]
