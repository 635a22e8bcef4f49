"""MIG on codes with known answers."""

import math

import numpy as np
import pytest

from ablate.workloads.sequence_vae.disentanglement import mutual_information_gap

FACTORS = np.array([(a, b) for a in range(4) for b in range(3)] * 20)


def test_a_code_for_each_factor_is_perfect():
    assert mutual_information_gap(FACTORS[:, ::-1].copy(), FACTORS) == pytest.approx(1)
    assert mutual_information_gap(FACTORS.astype(float) * 0.37 - 2, FACTORS) == pytest.approx(1)


def test_two_codes_that_know_the_same_leave_no_gap():
    assert mutual_information_gap(FACTORS[:, [0, 0, 1, 1]], FACTORS) == pytest.approx(0)


def test_a_code_that_knows_half():
    # the code tells a // 2 of four equally likely values of a: log 2 of log 4 nats; and nothing of b
    codes = np.stack([FACTORS[:, 0] // 2, np.zeros(len(FACTORS), dtype=int)], axis=1)
    assert mutual_information_gap(codes, FACTORS) == pytest.approx(math.log(2) / math.log(4) / 2)


def test_noise_knows_nothing_and_a_constant_is_no_factor():
    rng = np.random.default_rng(0)
    factors = rng.integers(3, size=(20_000, 2))
    assert mutual_information_gap(rng.normal(size=(20_000, 4)), factors) < 0.005
    assert mutual_information_gap(FACTORS, np.zeros((len(FACTORS), 1), dtype=int)) == 0
    assert mutual_information_gap(np.zeros((len(FACTORS), 2)), FACTORS) == 0
