import itertools
import math

import numpy as np
import pytest
from scipy.stats import nct, t

from ablate.plan import power


def max_t(differences):
    """Largest |t| over the columns."""
    means, spread = differences.mean(axis=0), differences.std(axis=0, ddof=1)
    return np.abs(means / spread * math.sqrt(len(differences))).max()


@pytest.mark.parametrize("n", range(2, 9))
def test_the_smallest_p_is_that_of_the_clearest_outcome(n):
    """All flips gone through: the observed signs and their opposite alone reach what was observed."""
    rng = np.random.default_rng(n)
    clear = 100 + rng.random((n, 3))
    flips = [max_t(clear * np.array(signs)[:, None]) for signs in itertools.product((1, -1), repeat=n)]
    found = np.mean(np.array(flips) >= max_t(clear) * (1 - 1e-9))
    assert power.smallest_p(n) == found == 2 / 2**n


def test_six_seeds_are_the_least_at_five_percent():
    assert [power.test_power(n, 1, 0.05).can_reject for n in (1, 5, 6, 7)] == [False, False, True, True]
    assert [power.least_pairs(alpha) for alpha in (0.1, 0.05, 0.01, 0.001)] == [5, 6, 8, 11]
    assert power.test_power(5, 6, 0.05) == power.Power(0.0625, math.inf, False)
    assert power.test_power(1, 6, 0.05) == power.Power(1.0, math.inf, False)


def test_drawn_flips_bound_the_smallest_p():
    assert power.smallest_p(16) == 2.0**-15
    assert power.smallest_p(30) == 1 / 100_001


def rejections(n, arms, effect, alpha, studies, seed):
    """Share of simulated studies in which the test, written out plainly, finds the one arm with an effect."""
    rng = np.random.default_rng(seed)
    flips = np.array(list(itertools.product((1, -1), repeat=n)))
    found = 0
    for _ in range(studies):
        baseline = rng.normal(size=(n, 1))
        differences = (rng.normal(size=(n, arms)) - baseline) / math.sqrt(2)
        differences[:, 0] += effect
        observed = max_t(differences[:, :1])
        reached = [max_t(differences * signs[:, None]) >= observed * (1 - 1e-9) for signs in flips]
        found += np.mean(reached) <= alpha
    return found / studies


@pytest.mark.parametrize(("n", "arms"), [(6, 1), (6, 6), (7, 6)])
def test_the_detectable_effect_is_found_with_probability_four_fifths(n, arms):
    effect = power.detectable_effect(n, arms, 0.05)
    assert rejections(n, arms, effect, 0.05, studies=150, seed=1) == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize(("n", "arms"), [(9, 6), (12, 1), (16, 20), (64, 300), (2000, 5)])
def test_beyond_that_it_is_the_t_distribution(n, arms):
    effect = power.detectable_effect(n, arms, 0.05)
    critical = t.isf((1 - 0.95 ** (1 / arms)) / 2, n - 1)
    assert nct.sf(critical, n - 1, effect * math.sqrt(n)) == pytest.approx(0.8, abs=1e-4)


def test_more_seeds_find_less_and_more_arms_find_more():
    by_seeds = [power.detectable_effect(n, 6, 0.05) for n in range(6, 40)]
    assert by_seeds == sorted(by_seeds, reverse=True)
    by_arms = [power.detectable_effect(8, arms, 0.05) for arms in (1, 2, 6, 20, 200)]
    assert by_arms == sorted(by_arms)
    assert power.detectable_effect(8, 6, 0.05) == pytest.approx(1.67, abs=0.05)
    assert power.detectable_effect(8, 10**6, 0.05) < 20


@pytest.mark.parametrize("arms", [0, 1])
def test_a_family_of_none_is_one_of_one(arms):
    assert power.test_power(8, arms, 0.05) == power.test_power(8, 1, 0.05)
