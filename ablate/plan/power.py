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
LARGEST = 1e6
POINTS = 2000
S_RANGE = 8.0


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
    return max(1, math.ceil(1 - math.log2(alpha)))


def test_power(n_pairs: int, n_arms: int, alpha: float) -> Power:
    """What can be concluded from so many pairs, for a family of so many arms."""
    p = smallest_p(n_pairs)
    return Power(p, math.inf if p > alpha else detectable_effect(n_pairs, n_arms, alpha), p <= alpha)


@lru_cache(maxsize=256)
def detectable_effect(n_pairs: int, n_arms: int, alpha: float) -> float:
    """Smallest mean paired difference, in SDs of the differences, that is found with probability 0.8.

    Few flips make p coarse, so up to SIMULATED_UP_TO pairs (and SIMULATED_ARMS arms) the test itself is run on seeded
    studies of normal differences that share the baseline's noise (correlation 1/2). Beyond, the t distribution with
    Sidak's level for the family: within 4 % of that simulation from 8 pairs on, a fifth too low at 6.
    """
    simulated = n_pairs <= SIMULATED_UP_TO and n_arms <= SIMULATED_ARMS
    power = (_simulated_power if simulated else _approximate_power)(n_pairs, n_arms, alpha)
    return _smallest(lambda effect: power(effect) >= POWER)


def _approximate_power(n_pairs: int, n_arms: int, alpha: float) -> Callable[[float], float]:
    """Effect to power, by the t distribution.

    T = (Z + d sqrt(n)) / S with Z normal and S^2 = chi^2_k / k, k = n - 1, so that
    P(T > c) = integral of Phi(d sqrt(n) - c s) p(s) ds with p(s) proportional to s^(k-1) exp(-k s^2 / 2).
    The critical c has 2 P(T > c) = 1 - (1 - alpha)^(1 / arms) at d = 0.
    """
    degrees = n_pairs - 1
    s = np.linspace(0, 1 + S_RANGE / math.sqrt(degrees), POINTS)[1:]
    log_density = (degrees - 1) * np.log(s) - degrees * s**2 / 2
    density = np.exp(log_density - log_density.max())
    density /= density.sum()

    def above(critical: float, shift: float) -> float:
        return (
            float(sum(p * math.erfc((critical * x - shift) / math.sqrt(2)) for x, p in zip(s, density, strict=True)))
            / 2
        )

    level = -math.expm1(math.log1p(-alpha) / max(n_arms, 1))
    critical = _smallest(lambda c: 2 * above(c, 0.0) <= level)
    return lambda effect: above(critical, effect * math.sqrt(n_pairs))


def _smallest(enough: Callable[[float], bool]) -> float:
    """Smallest positive number that is enough; whatever is above one that is enough is too."""
    low, high = 0.0, 1.0
    while not enough(high) and high < LARGEST:
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


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
