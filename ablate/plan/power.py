"""What the test of a study can conclude: sign flips of whole seed blocks, largest |t| over the arms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ablate.plan.model import Power

Floats = NDArray[np.float64]

EXACT_UP_TO = 16
"""The most seed blocks whose flips are all gone through; beyond, FLIPS of them are drawn."""
FLIPS = 100_000
POWER = 0.8
SIMULATED_UP_TO = 8
SIMULATED_ARMS = 200
STUDIES = 1000
BISECTIONS = 20
LARGEST_EFFECT = 1e6


def smallest_p(n_pairs: int) -> float:
    """The smallest p value attainable.

    Flipping every seed block at once changes the sign of each arm's mean and nothing else, so max |t| is the same
    for a flip and its opposite: of the 2^n flips at least two reach what was observed, and p >= 2 / 2^n. Where FLIPS
    are drawn, the observed one counts as one of FLIPS + 1.
    """
    exact = 2.0 ** (1 - n_pairs)
    return min(1.0, exact if n_pairs <= EXACT_UP_TO else max(exact, 1 / (FLIPS + 1)))


def least_pairs(alpha: float) -> int:
    """The fewest pairs with which the test can reject at level alpha."""
    return next(n for n in range(1, 1100) if 2.0 ** (1 - n) <= alpha)


def test_power(n_pairs: int, n_arms: int, alpha: float) -> Power:
    """What can be concluded from so many pairs, for a family of so many arms."""
    p = smallest_p(n_pairs)
    return Power(p, math.inf if p > alpha else detectable_effect(n_pairs, n_arms, alpha), p <= alpha)


@lru_cache(maxsize=256)
def detectable_effect(n_pairs: int, n_arms: int, alpha: float) -> float:
    """Smallest mean paired difference, in SDs of the differences, that is found with probability 0.8.

    Few flips make p coarse, so up to SIMULATED_UP_TO pairs (and SIMULATED_ARMS arms) the test itself is run on seeded
    studies of normal differences that share the baseline's noise (correlation 1/2). Beyond, the noncentral t with
    Sidak's level for the family: within 4 % of that simulation from 8 pairs on, a fifth too low at 6.
    """
    simulated = n_pairs <= SIMULATED_UP_TO and n_arms <= SIMULATED_ARMS
    power = (_simulated_power if simulated else _approximate_power)(n_pairs, n_arms, alpha)
    low, high = 0.0, 1.0
    while power(high) < POWER and high < LARGEST_EFFECT:
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle) < POWER else (low, middle)
    return high


def _approximate_power(n_pairs: int, n_arms: int, alpha: float) -> Callable[[float], float]:
    """Effect to power, by the noncentral t distribution."""
    from scipy.stats import nct, t

    level = 1 - (1 - alpha) ** (1 / max(n_arms, 1))
    critical = float(t.isf(level / 2, n_pairs - 1))

    def power(effect: float) -> float:
        found = float(nct.sf(critical, n_pairs - 1, effect * math.sqrt(n_pairs)))
        return 1.0 if math.isnan(found) else found

    return power


def _simulated_power(n_pairs: int, n_arms: int, alpha: float) -> Callable[[float], float]:
    """Effect to power, by running the test on simulated studies in which one arm has the effect.

    Sum of squares does not change under flips, so |t| grows with u = |sum_i f_i d_i| / sqrt(sum_i d_i^2).
    """
    rng = np.random.default_rng(0)
    flips = np.array([(1, *signs) for signs in itertools.product((1, -1), repeat=n_pairs - 1)], dtype=float)
    shared = rng.normal(size=(STUDIES, n_pairs))
    noise = (rng.normal(size=(STUDIES, n_pairs)) + shared) / math.sqrt(2)
    others = np.zeros((STUDIES, len(flips)))
    for _ in range(n_arms - 1):
        others = np.maximum(others, _statistic((rng.normal(size=(STUDIES, n_pairs)) + shared) / math.sqrt(2), flips))

    def power(effect: float) -> float:
        own = _statistic(noise + effect, flips)
        p = (np.maximum(own, others) >= own[:, :1] * (1 - 1e-12)).mean(axis=1)
        return float((p <= alpha).mean())

    return power


def _statistic(differences: Floats, flips: Floats) -> Floats:
    """Statistic u of each study under each flip; the first flip is none."""
    found: Floats = np.abs(differences @ flips.T) / np.sqrt((differences**2).sum(axis=1, keepdims=True))
    return found
