"""The queue against a recorder that only remembers, for the laws of retrying and stopping."""

import pytest

from ablate.plan.model import Arm, PlannedTrial
from ablate.record.optuna_storage import LedgerTrial, Outcome
from ablate.run.assignment import Message
from ablate.run.packs import Packs
from ablate.run.stopping import StopRequest
from ablate.run.trial_queue import TrialQueue
from ablate.spec.models import Run
from ablate.workloads.contract import Row


class Remembering:
    """A recorder without stores."""

    def __init__(self, endings=()):
        self.running = ()
        self.released, self.failed, self.swept, self.deaths = [], [], [], {}
        self.printed = ""
        self._endings = dict(endings)

    def begin(self, trial, entry, notes):
        self.running += (trial.trial_id,)
        return True

    def last_row(self, trial_id):
        return Row(0, 0.0, {})

    def receive(self, message):
        if message.checkpoint_step is not None:
            return None
        self._leave(message.trial_id)
        return self._endings.get(message.trial_id, Outcome("COMPLETE", value=1.0))

    def fail(self, trial_id, reason, error):
        self._leave(trial_id)
        self.failed.append((trial_id, reason, error))
        return Outcome("FAIL", reason, error=error)

    def release(self, trial_id):
        self._leave(trial_id)
        self.released.append(trial_id)

    def prune(self, trial_id):
        self._leave(trial_id)
        return Outcome("PRUNED")

    def sweep(self, trial_id):
        self.swept.append(trial_id)

    def died(self, trial_id, why):
        self.deaths[trial_id] = self.deaths.get(trial_id, 0) + 1
        return self.deaths[trial_id]

    def recover_output(self, trial_id):
        return self.printed

    def attempt_of(self, trial_id):
        return 1

    def elapsed_s(self, trial_id):
        return 100.0

    def _leave(self, trial_id):
        self.running = tuple(name for name in self.running if name != trial_id)


class OneByOne(TrialQueue):
    """A queue that hands out single trials."""

    def next_assignment(self):
        return next(iter(self.next_assignments()), None)


class Silent:
    def __getattr__(self, name):
        return lambda *arguments: None


def trial(name):
    return PlannedTrial(name, Arm(name, {}, ("grid",), {}), 0)


@pytest.fixture
def make():
    def queue(names, run=None, recorder=None, packs=None, searches=None):
        entries = {name: LedgerTrial(1, 0, name, 1, "WAITING", {}, None, None) for name in names}
        stop = StopRequest()
        made = OneByOne(
            [trial(name) for name in names],
            entries=lambda: entries,
            recorder=recorder or Remembering(),
            assignment=lambda planned, attempt, row: planned.trial_id,
            notes=lambda planned: {},
            run=run or Run(),
            progress=Silent(),
            stop=stop,
            packs=packs,
            searches=searches,
        )
        return made, stop

    return queue


def test_trials_start_in_the_order_of_the_plan(make):
    queue, _ = make("abc")
    assert [queue.next_assignment() for _ in range(4)] == ["a", "b", "c", None]
    assert not queue.exhausted()
    for name in "abc":
        queue.receive(Message(name, 1))
    assert queue.exhausted()


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_dying_trial_goes_first_again_until_its_retries_are_used_up(make, retries):
    recorder = Remembering()
    queue, _ = make("ab", Run(retries=retries), recorder)
    for _ in range(retries + 1):
        assert queue.next_assignment() == "a"
        queue.died(["a"], "killed")
    assert recorder.failed == [("a", "died", f"its process died {retries + 1} times; last: killed")]
    assert queue.next_assignment() == "b"


def test_a_trial_whose_time_was_up_is_not_tried_again(make):
    recorder = Remembering()
    recorder.printed = "some output\nTimeout (0:00:05)!\nThread 0x1:\n"
    queue, _ = make("a", Run(timeout_s=5.0), recorder)
    queue.next_assignment()
    queue.died(["a"], "exit code 1")
    assert recorder.failed == [("a", "timeout", "not finished after 5 s")]


def test_a_death_under_a_time_limit_is_a_death(make):
    recorder = Remembering()
    queue, _ = make("a", Run(timeout_s=5.0), recorder)
    queue.next_assignment()
    queue.died(["a"], "killed")
    assert (recorder.failed, recorder.released) == ([], ["a"])


def test_where_a_workers_words_are_lost_the_clock_decides(make):
    recorder = Remembering()
    recorder.printed = None
    queue, _ = make("a", Run(timeout_s=99.0), recorder)
    queue.next_assignment()
    queue.died(["a"], "node lost")
    assert [reason for _, reason, _ in recorder.failed] == ["timeout"]


def test_a_stop_starts_nothing_and_puts_running_trials_back(make):
    recorder = Remembering()
    queue, stop = make("abc", recorder=recorder)
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
def test_failures_beyond_the_rate_stop_the_study(make, failures, rate, stops):
    names = [f"{i}" for i in range(10)]
    endings = [(name, Outcome("FAIL", "exception")) for name in names[:failures]]
    queue, stop = make(names, Run(max_failure_rate=rate), Remembering(endings))
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
def test_what_all_failures_have_in_common_is_said_once(make, errors, ends):
    endings = [(f"{i}", Outcome("FAIL", "missing_metric", error=error)) for i, error in enumerate(errors)]
    queue, stop = make([f"{i}" for i in range(6)], Run(max_failure_rate=0.25), Remembering(endings))
    for name, _ in endings:
        queue.next_assignment()
        queue.receive(Message(name, 1))
    assert stop.reason == f"3 of 6 trials failed, more than run.max_failure_rate 0.25{ends}"


def test_diverged_trials_are_results_and_stop_nothing(make):
    names = [f"{i}" for i in range(10)]
    queue, stop = make(names, recorder=Remembering([(name, Outcome("FAIL", "diverged")) for name in names]))
    for name in names:
        queue.next_assignment()
        queue.receive(Message(name, 1))
    assert stop.reason == ""


OUT_OF_MEMORY = RuntimeError("out of memory\nmore")


def test_of_a_round_that_ray_gave_up_only_what_dies_alone_has_died(make):
    recorder = Remembering()
    queue, _ = make("abc", Run(retries=1), recorder)
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


def test_a_suspect_that_gets_past_where_it_stood_makes_room_once(make):
    recorder = Remembering()
    queue, _ = make("abc", recorder=recorder)
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


def test_suspects_whose_time_was_up_have_ended(make):
    recorder = Remembering()
    recorder.printed = "Timeout (0:00:05)!"
    queue, _ = make("ab", Run(timeout_s=5.0), recorder)
    queue.next_assignment()
    queue.next_assignment()
    queue.round_ended(OUT_OF_MEMORY)
    assert [reason for _, reason, _ in recorder.failed] == ["timeout", "timeout"]
    assert queue.exhausted()


def test_a_trial_that_memory_killed_beside_others_is_suspected_with_them(make):
    recorder = Remembering()
    queue, _ = make("ab", recorder=recorder)
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


def pairs(of=lambda trial: "alike", size=2):
    return Packs(of, size)


def taken(queue):
    return "".join(queue.next_assignments())


def test_alike_trials_go_together_in_the_order_of_the_plan(make):
    queue, _ = make("abcdefg", packs=pairs(lambda trial: "vowel" if trial.trial_id in "ae" else "consonant"))
    assert [taken(queue) for _ in range(5)] == ["ae", "bc", "df", "g", ""]


def test_what_cannot_be_trained_together_goes_alone(make):
    queue, _ = make("abc", packs=pairs(lambda trial: None if trial.trial_id == "b" else "alike", size=8))
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
def test_packs_leave_no_worker_idle(make, count, slots, most, sizes, measured):
    names = [f"{i:02d}" for i in range(count)]
    of = (None, {"alike": most}) if measured else (most, {})
    queue, _ = make(names, packs=Packs(lambda trial: "alike", *of, lambda: slots))
    found = []
    while assignments := queue.next_assignments():
        found.append(assignments)
    assert [len(pack) for pack in found] == sizes
    assert [name for pack in found for name in pack] == names


def test_a_size_that_was_not_measured_is_one(make):
    queue, _ = make("abc", packs=Packs(lambda trial: "alike", None, {}, lambda: 1))
    assert taken(queue) == "a"


def test_of_a_dead_pack_no_one_has_died_and_each_goes_on_alone_first(make):
    recorder = Remembering()
    queue, _ = make("abcde", Run(retries=0), recorder, pairs(size=3))
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


def test_a_trial_that_has_died_alone_shares_no_process_again(make):
    queue, _ = make("abc", packs=pairs(size=3))
    assert taken(queue) == "abc"
    queue.died("abc", "killed")
    assert taken(queue) == "a"
    queue.died("a", "killed")
    assert [taken(queue), taken(queue), taken(queue)] == ["a", "b", "c"]


def test_a_pack_that_is_given_up_is_trained_one_by_one(make):
    recorder = Remembering()
    queue, _ = make("abcd", recorder=recorder, packs=pairs())
    assert taken(queue) == "ab"
    for name in "ba":
        assert queue.receive(Message(name, 1, checkpoint_step=0, apart="ValueError: a bug"))
    assert [taken(queue), taken(queue), taken(queue)] == ["a", "b", "cd"]
    queue.left("ab")  # what Ray says of the pack comes when its trials have gone on
    queue.died("ab", "killed")
    assert (recorder.deaths, recorder.released) == ({}, ["b", "a"])


def test_a_stopped_pack_is_put_back_but_for_what_has_ended(make):
    recorder = Remembering()
    queue, stop = make("abc", recorder=recorder, packs=pairs(size=3))
    assert taken(queue) == "abc"
    queue.receive(Message("b", 1))
    stop.ask("interrupted")
    queue.left("abc")
    assert (recorder.released, recorder.running) == (["a", "c"], ())


def test_a_packs_watchdog_ends_no_trial(make):
    recorder = Remembering()
    recorder.printed = "Timeout (0:00:05)!"
    queue, _ = make("ab", Run(timeout_s=5.0), recorder, pairs())
    taken(queue)
    queue.died("ab", "exit code 1")
    assert (recorder.failed, recorder.released) == ([], ["b", "a"])
    taken(queue)
    queue.died("a", "exit code 1")
    assert recorder.failed == [("a", "timeout", "not finished after 5 s")]


def test_packs_of_a_round_that_ray_gave_up_are_suspected_one_by_one(make):
    recorder = Remembering()
    queue, _ = make("abcde", recorder=recorder, packs=pairs())
    assert [taken(queue), taken(queue)] == ["ab", "cd"]
    queue.round_ended(OUT_OF_MEMORY)
    assert recorder.deaths == {}
    for name in "abcd":
        assert [taken(queue), taken(queue)] == [name, ""]
        queue.receive(Message(name, 1))
    assert taken(queue) == "e"


def test_a_pack_that_was_all_that_ran_when_ray_gave_up_is_set_apart(make):
    recorder = Remembering()
    queue, _ = make("abc", recorder=recorder, packs=pairs())
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


def test_what_one_that_ended_early_may_still_write_is_swept_when_its_process_is_back(make):
    recorder = Remembering({"d": Outcome("FAIL", "timeout")})
    queue, _ = make("abcd", recorder=recorder, packs=pairs(), searches=Pruning("bc"))
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


def test_a_pruned_trial_alone_is_back_before_its_last_checkpoint_and_swept_again_after_the_round(make):
    recorder = Remembering()
    queue, _ = make("ab", recorder=recorder, searches=Pruning("a"))
    assert [taken(queue), taken(queue)] == ["a", "b"]
    assert queue.receive(Message("a", 1, checkpoint_step=1))
    queue.left("a")
    assert recorder.swept == ["a"]
    queue.receive(Message("b", 1))
    queue.left("b")
    queue.round_ended(None)
    assert recorder.swept == ["a", "a"]
