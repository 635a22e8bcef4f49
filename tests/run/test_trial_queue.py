"""The queue against a recorder that only remembers, for the laws of retrying and stopping."""

import pytest

from ablate.record.optuna_storage import Outcome
from ablate.run.assignment import Message
from ablate.spec.models import Run
from tests.run.queues import OUT_OF_MEMORY, Remembering, queue_of


def test_trials_start_in_the_order_of_the_plan():
    queue, _ = queue_of("abc")
    assert [queue.next_assignment() for _ in range(4)] == ["a", "b", "c", None]
    assert not queue.exhausted()
    for name in "abc":
        queue.receive(Message(name, 1))
    assert queue.exhausted()


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_dying_trial_goes_first_again_until_its_retries_are_used_up(retries):
    recorder = Remembering()
    queue, _ = queue_of("ab", Run(retries=retries), recorder)
    for _ in range(retries + 1):
        assert queue.next_assignment() == "a"
        queue.died(["a"], "killed")
    assert recorder.failed == [("a", "died", f"its process died {retries + 1} times; last: killed")]
    assert queue.next_assignment() == "b"


def test_a_trial_whose_time_was_up_is_not_tried_again():
    recorder = Remembering()
    recorder.printed = "some output\nTimeout (0:00:05)!\nThread 0x1:\n"
    queue, _ = queue_of("a", Run(timeout_s=5.0), recorder)
    queue.next_assignment()
    queue.died(["a"], "exit code 1")
    assert recorder.failed == [("a", "timeout", "not finished after 5 s")]


def test_a_death_under_a_time_limit_is_a_death():
    recorder = Remembering()
    queue, _ = queue_of("a", Run(timeout_s=5.0), recorder)
    queue.next_assignment()
    queue.died(["a"], "killed")
    assert (recorder.failed, recorder.released) == ([], ["a"])


def test_where_a_workers_words_are_lost_the_clock_decides():
    recorder = Remembering()
    recorder.printed = None
    queue, _ = queue_of("a", Run(timeout_s=99.0), recorder)
    queue.next_assignment()
    queue.died(["a"], "node lost")
    assert [reason for _, reason, _ in recorder.failed] == ["timeout"]


def test_a_stop_starts_nothing_and_puts_running_trials_back():
    recorder = Remembering()
    queue, stop = queue_of("abc", recorder=recorder)
    queue.next_assignment()
    queue.next_assignment()
    stop.ask("interrupted")
    assert queue.next_assignment() is None
    queue.left(["a"])
    queue.died(["b"], "killed")
    assert (recorder.released, recorder.failed, recorder.deaths) == (["a", "b"], [], {})


@pytest.mark.parametrize(
    ("failures", "rate", "stops"), [(2, 0.0, False), (3, 0.25, True), (3, 0.3, False), (4, 0.3, True)]
)
def test_failures_beyond_the_rate_stop_the_study(failures, rate, stops):
    names = [f"{i}" for i in range(10)]
    endings = [(name, Outcome("FAIL", "exception")) for name in names[:failures]]
    queue, stop = queue_of(names, Run(max_failure_rate=rate), Remembering(endings))
    for name in names[:failures]:
        queue.next_assignment()
        queue.receive(Message(name, 1))
    assert bool(stop.reason) is stops


@pytest.mark.parametrize(
    ("errors", "ends"),
    [
        (["no loss\nmore"] * 3, " allows; each with missing_metric: no loss"),
        (["no loss", "no loss", "another"], " allows"),
    ],
)
def test_what_all_failures_have_in_common_is_said_once(errors, ends):
    endings = [(f"{i}", Outcome("FAIL", "missing_metric", error=error)) for i, error in enumerate(errors)]
    queue, stop = queue_of([f"{i}" for i in range(6)], Run(max_failure_rate=0.25), Remembering(endings))
    for name, _ in endings:
        queue.next_assignment()
        queue.receive(Message(name, 1))
    assert stop.reason == f"3 of 6 trials failed, more than run.max_failure_rate 0.25{ends}"


def test_diverged_trials_are_results_and_stop_nothing():
    names = [f"{i}" for i in range(10)]
    queue, stop = queue_of(names, recorder=Remembering([(name, Outcome("FAIL", "diverged")) for name in names]))
    for name in names:
        queue.next_assignment()
        queue.receive(Message(name, 1))
    assert stop.reason == ""


def test_of_a_round_that_ray_gave_up_only_what_dies_alone_has_died():
    recorder = Remembering()
    queue, _ = queue_of("abc", Run(retries=1), recorder)
    assert [queue.next_assignment(), queue.next_assignment()] == ["a", "b"]
    queue.round_ended(OUT_OF_MEMORY)
    assert (recorder.deaths, recorder.released) == ({}, ["b", "a"])

    assert [queue.next_assignment(), queue.next_assignment()] == ["a", None], "a suspect runs alone"
    queue.receive(Message("a", 1))
    assert [queue.next_assignment(), queue.next_assignment()] == ["b", None]
    for deaths in (1, 2):
        queue.round_ended(OUT_OF_MEMORY)
        assert recorder.deaths == {"b": deaths}
        if deaths == 1:
            assert [queue.next_assignment(), queue.next_assignment()] == ["b", None]
    assert recorder.failed == [("b", "died", "its process died 2 times; last: out of memory")]
    assert queue.next_assignment() == "c"


def test_a_suspect_that_gets_past_where_it_stood_makes_room_once():
    recorder = Remembering()
    queue, _ = queue_of("abc", recorder=recorder)
    for _ in range(2):
        queue.next_assignment()
    queue.round_ended(OUT_OF_MEMORY)
    assert queue.next_assignment() == "a"
    assert not queue.receive(Message("a", 1, checkpoint_step=0)), "no further than it was"
    assert queue.receive(Message("a", 1, checkpoint_step=5)), "it is stopped, and goes on when b has been tried"
    assert queue.next_assignment() == "b"
    assert not queue.receive(Message("b", 1, checkpoint_step=5)), "the last one goes on, with the others beside it"
    assert [queue.next_assignment(), queue.next_assignment()] == ["a", "c"]

    queue.round_ended(OUT_OF_MEMORY)
    assert recorder.deaths == {}
    assert [queue.next_assignment(), queue.next_assignment()] == ["b", None]
    assert not queue.receive(Message("b", 1, checkpoint_step=9)), "suspected again, it runs alone to its end"
    assert queue.next_assignment() is None


def test_suspects_whose_time_was_up_have_ended():
    recorder = Remembering()
    recorder.printed = "Timeout (0:00:05)!"
    queue, _ = queue_of("ab", Run(timeout_s=5.0), recorder)
    queue.next_assignment()
    queue.next_assignment()
    queue.round_ended(OUT_OF_MEMORY)
    assert [reason for _, reason, _ in recorder.failed] == ["timeout", "timeout"]
    assert queue.exhausted()


def test_a_trial_that_memory_killed_beside_others_is_suspected_with_them():
    recorder = Remembering()
    queue, _ = queue_of("ab", recorder=recorder)
    queue.next_assignment()
    queue.next_assignment()
    queue.died(["a"], "memory", crowded=True)
    assert queue.next_assignment() is None, "it is tried alone"
    queue.round_ended(OUT_OF_MEMORY)
    assert recorder.deaths == {}, "b had a neighbour until a moment ago"
    for name in "ba":
        assert queue.next_assignment() == name
        queue.died([name], "memory", crowded=True)
        queue.next_assignment()
        queue.receive(Message(name, 1))
    assert recorder.deaths == {"b": 1, "a": 1}, "alone, each is to blame"
