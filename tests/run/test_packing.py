"""The size of a pack, from what packs cost."""

import math

import pytest

from ablate.plan.model import Arm, PlannedTrial
from ablate.run.packing import Measured, best_size, candidates, pack_sizes
from ablate.workloads.contract import PackCost, Workload

MIB = 2**20


def costs(*seconds_by_size, peak=lambda size: 100 * MIB):
    return {2**i: PackCost(seconds, peak(2**i)) for i, seconds in enumerate(seconds_by_size)}


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ((1.0,), 1),
        ((1.0, 1.5, 2.0, 4.0), 4),  # 1, 0.75, 0.5, 0.5 a member
        ((1.0, 1.9, 3.7), 1),  # 0.95 and 0.925: less than a tenth
        ((1.0, 2.2, 5.0), 1),  # slower
        ((1.0, 1.0, 1.98), 2),  # 0.5 and 0.495: a tie
        ((1.0, 1.82, 3.56, 7.0), 4),  # 0.91, 0.89, 0.875: the first that gains a tenth, within a tie of the best
    ],
)
def test_the_fastest_pack_a_member_that_gains_a_tenth(seconds, best):
    assert best_size(costs(*seconds), math.inf) == best


def test_a_pack_fits_well_within_the_memory_of_a_worker():
    growing = costs(1.0, 1.0, 1.0, 1.0, peak=lambda size: size * 100 * MIB)
    assert best_size(growing, 1000 * MIB) == 8
    assert best_size(growing, 999 * MIB) == 4
    assert best_size(growing, 10 * MIB) == 1


@pytest.mark.parametrize(
    ("trials", "slots", "sizes"),
    [(1, 1, (1,)), (2, 2, (1,)), (5, 2, (1, 2)), (8, 1, (1, 2, 4, 8)), (1000, 2, (1, 2, 4, 8, 16, 32))],
)
def test_no_pack_is_measured_that_would_leave_a_worker_idle(trials, slots, sizes):
    assert candidates(trials, slots) == sizes


def trials(kinds):
    return [PlannedTrial(f"{i}", Arm(kind, {"kind": kind}, ("grid",), {}), 0) for i, kind in enumerate(kinds)]


class Measuring:
    """Measures packs that halve the time of a member up to four, and remembers what it was asked."""

    def __init__(self, where="here"):
        self.asked, self.said = [], []
        self._where = where

    def __call__(self, config, sizes):
        self.asked.append((config["kind"], tuple(sizes)))
        return Measured(self._where, tuple(sizes), {n: PackCost(max(1.0, n / 4), MIB) for n in sizes}, math.inf)


WORKLOAD = Workload(
    "packed",
    "module:train",
    pack_key=lambda config: None if config["kind"] == "alone" else config["kind"],
    steps=lambda config: 100 if config["kind"] == "long" else 1,
)


def sizes_of(kinds, known=None, slots=1):
    measuring = Measuring()
    sizes, found = pack_sizes(trials(kinds), WORKLOAD, slots, known or {}, measuring, measuring.said.append)
    return list(sizes.values()), found, measuring


def test_each_kind_is_measured_once_and_that_is_said():
    sizes, found, measuring = sizes_of(["long"] * 8 + ["single", "alone", "alone"])
    assert sizes == [4]
    assert measuring.asked == [("long", (1,)), ("long", (1, 2, 4, 8))]
    assert measuring.said == [
        "measuring what training some of 8 trials together would save",
        "8 trials are trained in packs of up to 4: 250 ms a step and trial, alone 1000 ms a step",
    ]
    again, same, measuring = sizes_of(["long"] * 8, found)
    assert (again, same, measuring.asked, len(measuring.said)) == (sizes, found, [], 1)


def test_more_trials_than_before_are_measured_in_larger_packs():
    _, found, _ = sizes_of(["long"] * 4)
    _, _, measuring = sizes_of(["long"] * 8, found)
    assert measuring.asked[-1] == ("long", (1, 2, 4, 8))


def test_a_short_study_is_not_measured():
    sizes, found, measuring = sizes_of(["short"] * 59)
    assert (sizes, found) == ([], {})
    assert measuring.asked == [("short", (1,))]
    assert measuring.said[1:] == ["59 trials are trained one by one: their steps take some 59 s in all"]


def test_what_cannot_be_measured_is_trained_one_by_one():
    assert pack_sizes(trials(["long"] * 8), WORKLOAD, 1, {}, lambda config, sizes: None, print) == ({}, {})


def test_what_was_measured_passes_as_a_fact():
    measured = Measured("here", (1, 2, 4), {1: PackCost(0.5, 3), 2: PackCost(0.25, 4)}, 1e9)
    assert Measured.from_fact(measured.to_fact()) == measured
