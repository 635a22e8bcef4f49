"""The queue where trials share a process, or leave it early."""

import pytest

from ablate.record.optuna_storage import Outcome
from ablate.run.assignment import Message
from ablate.run.packs import Packs
from ablate.spec.models import Run
from tests.run.queues import OUT_OF_MEMORY, Remembering, queue_of


def pairs(of=lambda trial: "alike", size=2):
    return Packs(of, size)


def taken(queue):
    return "".join(queue.next_assignments())


def test_alike_trials_go_together_in_the_order_of_the_plan():
    queue, _ = queue_of("abcdefg", packs=pairs(lambda trial: "vowel" if trial.trial_id in "ae" else "consonant"))
    assert [taken(queue) for _ in range(5)] == ["ae", "bc", "df", "g", ""]


def test_what_cannot_be_trained_together_goes_alone():
    queue, _ = queue_of("abc", packs=pairs(lambda trial: None if trial.trial_id == "b" else "alike", size=8))
    assert [taken(queue) for _ in range(3)] == ["ac", "b", ""]


@pytest.mark.parametrize(
    ("count", "slots", "most", "sizes"),
    [
        (16, 2, 8, [8, 8]),
        (20, 2, 8, [5, 5, 5, 5]),
        (10, 2, 8, [5, 5]),
        (17, 2, 8, [5, 5, 4, 3]),
        (3, 4, 8, [1, 1, 1]),
        (9, 1, 4, [3, 3, 3]),
    ],
)
@pytest.mark.parametrize("measured", [True, False])
def test_packs_leave_no_worker_idle(count, slots, most, sizes, measured):
    names = [f"{i:02d}" for i in range(count)]
    of = (None, {"alike": most}) if measured else (most, {})
    queue, _ = queue_of(names, packs=Packs(lambda trial: "alike", *of, lambda: slots))
    found = []
    while assignments := queue.next_assignments():
        found.append(assignments)
    assert [len(pack) for pack in found] == sizes
    assert [name for pack in found for name in pack] == names


def test_a_size_that_was_not_measured_is_one():
    queue, _ = queue_of("abc", packs=Packs(lambda trial: "alike", None, {}, lambda: 1))
    assert taken(queue) == "a"


def test_of_a_dead_pack_no_one_has_died_and_each_goes_on_alone_first():
    recorder = Remembering()
    queue, _ = queue_of("abcde", Run(retries=0), recorder, pairs(size=3))
    assert [taken(queue), taken(queue)] == ["abc", "de"]
    queue.receive(Message("b", 1))
    queue.died("abc", "killed")
    assert (recorder.deaths, recorder.released) == ({}, ["c", "a"])
    assert [taken(queue), taken(queue), taken(queue)] == ["a", "c", ""]
    queue.died("a", "killed")
    assert recorder.failed == [("a", "died", "its process died 1 times; last: killed")]
    queue.receive(Message("c", 1))
    queue.receive(Message("d", 1))
    queue.receive(Message("e", 1))
    assert queue.exhausted()


def test_a_trial_that_has_died_alone_shares_no_process_again():
    queue, _ = queue_of("abc", packs=pairs(size=3))
    assert taken(queue) == "abc"
    queue.died("abc", "killed")
    assert taken(queue) == "a"
    queue.died("a", "killed")
    assert [taken(queue), taken(queue), taken(queue)] == ["a", "b", "c"]


def test_a_pack_that_is_given_up_is_trained_one_by_one():
    recorder = Remembering()
    queue, _ = queue_of("abcd", recorder=recorder, packs=pairs())
    assert taken(queue) == "ab"
    for name in "ba":
        assert queue.receive(Message(name, 1, checkpoint_step=0, apart="ValueError: a bug"))
    assert [taken(queue), taken(queue), taken(queue)] == ["a", "b", "cd"]
    queue.left("ab")  # what Ray says of the pack comes when its trials have gone on
    queue.died("ab", "killed")
    assert (recorder.deaths, recorder.released) == ({}, ["b", "a"])


def test_a_stopped_pack_is_put_back_but_for_what_has_ended():
    recorder = Remembering()
    queue, stop = queue_of("abc", recorder=recorder, packs=pairs(size=3))
    assert taken(queue) == "abc"
    queue.receive(Message("b", 1))
    stop.ask("interrupted")
    queue.left("abc")
    assert (recorder.released, recorder.running) == (["a", "c"], ())


def test_a_packs_watchdog_ends_no_trial():
    recorder = Remembering()
    recorder.printed = "Timeout (0:00:05)!"
    queue, _ = queue_of("ab", Run(timeout_s=5.0), recorder, pairs())
    taken(queue)
    queue.died("ab", "exit code 1")
    assert (recorder.failed, recorder.released) == ([], ["b", "a"])
    taken(queue)
    queue.died("a", "exit code 1")
    assert recorder.failed == [("a", "timeout", "not finished after 5 s")]


def test_packs_of_a_round_that_ray_gave_up_are_suspected_one_by_one():
    recorder = Remembering()
    queue, _ = queue_of("abcde", recorder=recorder, packs=pairs())
    assert [taken(queue), taken(queue)] == ["ab", "cd"]
    queue.round_ended(OUT_OF_MEMORY)
    assert recorder.deaths == {}
    for name in "abcd":
        assert [taken(queue), taken(queue)] == [name, ""]
        queue.receive(Message(name, 1))
    assert taken(queue) == "e"


def test_a_pack_that_was_all_that_ran_when_ray_gave_up_is_set_apart():
    recorder = Remembering()
    queue, _ = queue_of("abc", recorder=recorder, packs=pairs())
    taken(queue)
    queue.round_ended(OUT_OF_MEMORY)
    assert recorder.deaths == {}
    assert [taken(queue), taken(queue), taken(queue)] == ["a", "b", "c"], "beside each other"


class Pruning:
    """Searches that find a trial behind."""

    pending, complete = 0, True

    def __init__(self, behind):
        self._behind = behind

    def behind(self, trial_id, rows):
        return trial_id in self._behind

    def more(self, running):
        return []

    def ended(self, trial_id, outcome):
        pass


def test_what_one_that_ended_early_may_still_write_is_swept_when_its_process_is_back():
    recorder = Remembering({"d": Outcome("FAIL", "timeout")})
    queue, _ = queue_of("abcd", recorder=recorder, packs=pairs(), searches=Pruning("bc"))
    assert [taken(queue), taken(queue)] == ["ab", "cd"]
    assert queue.receive(Message("b", 1, checkpoint_step=1)), "it is to leave"
    assert queue.receive(Message("b", 1, checkpoint_step=2)), "and has not heard of it"
    assert queue.receive(Message("c", 1, checkpoint_step=1))
    queue.receive(Message("d", 1))
    queue.receive(Message("a", 1))
    assert recorder.swept == []
    queue.left("ab")
    assert recorder.swept == ["b"]
    queue.left("cd")
    assert sorted(recorder.swept) == ["b", "c", "d"]
    assert queue.exhausted()


def test_a_pruned_trial_alone_is_back_before_its_last_checkpoint_and_swept_again_after_the_round():
    recorder = Remembering()
    queue, _ = queue_of("ab", recorder=recorder, searches=Pruning("a"))
    assert [taken(queue), taken(queue)] == ["a", "b"]
    assert queue.receive(Message("a", 1, checkpoint_step=1))
    queue.left("a")
    assert recorder.swept == ["a"]
    queue.receive(Message("b", 1))
    queue.left("b")
    queue.round_ended(None)
    assert recorder.swept == ["a", "a"]
