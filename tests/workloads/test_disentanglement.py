"""Measures of disentanglement on codes with known answers: perfect, rotated, random."""

import math

import numpy as np
import pytest

from ablate.workloads.sequence_vae.disentanglement import modularity, mutual_information_gap
from ablate.workloads.sequence_vae.probes import dci, learnable, separated_attribute_predictability

RNG = np.random.default_rng(0)
FACTORS = RNG.permutation(np.array([(a, b) for a in range(4) for b in range(3)] * 50))
CENTRED = FACTORS - FACTORS.mean(0)
PERFECT = {"discrete": FACTORS[:, ::-1].copy(), "continuous": FACTORS.astype(float) * 0.37 - 2}
# each code is made of both factors in equal parts
ROTATED = CENTRED / CENTRED.std(0) @ np.array([[1, 1], [-1, 1]]) / math.sqrt(2)
RANDOM = {"discrete": RNG.integers(0, 4, (600, 3)), "continuous": RNG.normal(size=(600, 3))}


@pytest.mark.parametrize("kind", PERFECT)
def test_a_code_for_each_factor_is_perfect(kind):
    codes = PERFECT[kind]
    assert mutual_information_gap(codes, FACTORS) == pytest.approx(1)
    assert modularity(codes, FACTORS) == pytest.approx(1, abs=1e-3)
    assert dci(codes, FACTORS) == pytest.approx((1, 1, 1))
    # the best code is always right; the other, which knows nothing, one time in four and in three
    gap = ((1 - 1 / 4) + (1 - 1 / 3)) / 2
    assert separated_attribute_predictability(codes, FACTORS) == pytest.approx(gap, abs=0.05)


def test_rotated_codes_hold_all_and_separate_nothing():
    assert mutual_information_gap(ROTATED, FACTORS) < 0.1
    # H(a) is log 4, H(b) log 3: no code knows as much of both
    assert modularity(ROTATED, FACTORS) < 0.4
    found = dci(ROTATED, FACTORS)
    assert found.disentanglement < 0.1
    assert found.completeness < 0.1
    assert found.informativeness > 0.95
    assert separated_attribute_predictability(ROTATED, FACTORS) < 0.15


@pytest.mark.parametrize("kind", RANDOM)
def test_random_codes_know_nothing(kind):
    codes = RANDOM[kind]
    assert mutual_information_gap(codes, FACTORS) < 0.02
    assert modularity(codes, FACTORS) == 0
    found = dci(codes, FACTORS)
    assert found.disentanglement < 0.15
    assert found.completeness < 0.15
    assert found.informativeness == pytest.approx((1 / 4 + 1 / 3) / 2, abs=0.06)
    assert separated_attribute_predictability(codes, FACTORS) < 0.06


def test_two_codes_that_know_the_same_leave_no_gap():
    codes = FACTORS[:, [0, 0, 1, 1]]
    assert mutual_information_gap(codes, FACTORS) == pytest.approx(0)
    assert separated_attribute_predictability(codes, FACTORS) == pytest.approx(0)
    # each code is of one factor, but no factor is in one code
    assert modularity(codes, FACTORS) == pytest.approx(1, abs=1e-3)
    found = dci(codes, FACTORS)
    assert found.disentanglement == pytest.approx(1)
    assert found.completeness < 0.8


def test_one_code_that_holds_both_factors_is_complete_and_mixed():
    codes = (FACTORS @ [3, 1])[:, None].astype(float)
    found = dci(codes, FACTORS)
    assert found == pytest.approx((0, 1, 1), abs=1e-6)
    assert modularity(codes, FACTORS) < 0.4


def test_a_code_that_knows_half():
    # the code tells a // 2 of four equally likely values of a: log 2 of log 4 nats; and nothing of b
    codes = np.stack([FACTORS[:, 0] // 2, np.zeros(len(FACTORS), dtype=int)], axis=1)
    assert mutual_information_gap(codes, FACTORS) == pytest.approx(math.log(2) / math.log(4) / 2)
    assert modularity(codes, FACTORS) == pytest.approx(1 / 2, abs=1e-3)


def test_dead_codes_know_nothing():
    codes = np.zeros((600, 3))
    assert mutual_information_gap(codes, FACTORS) == 0
    assert modularity(codes, FACTORS) == 0
    assert dci(codes, FACTORS)[:2] == (0, 0)
    assert separated_attribute_predictability(codes, FACTORS) == 0


def test_factors_that_cannot_be_learnt_are_left_out():
    constant, names = np.zeros(600, dtype=int), np.arange(600)
    odd = np.stack([constant, names, FACTORS[:, 1]], axis=1)
    assert [value.tolist() for value in learnable(odd)] == [FACTORS[:, 1].tolist()]
    assert dci(PERFECT["discrete"], odd) == pytest.approx((1, 1, 1))
    assert mutual_information_gap(PERFECT["discrete"], odd[:, [0, 2]]) == pytest.approx(1)
    for measure in (mutual_information_gap, modularity, separated_attribute_predictability):
        assert measure(RANDOM["continuous"], constant[:, None]) == 0
    assert dci(RANDOM["continuous"], constant[:, None]) == (0, 0, 0)
