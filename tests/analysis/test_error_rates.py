"""Error rates and coverage over simulated studies with a known truth; seeds are fixed, so each is one number."""

from __future__ import annotations

import numpy as np
import pytest

from ablate.analysis.arms import t_half_width
from ablate.analysis.beside import one_sample_t, tost
from ablate.analysis.signflip import simultaneous
from ablate.analysis.verdicts import read_interval

TERMS = 6


def null_study(rng: np.random.Generator, n: int, correlated: bool) -> np.ndarray:
    """Differences [n, 6] of arms that equal the baseline, whose noise all of them share or not."""
    differences = rng.normal(size=(n, TERMS))
    return (differences - rng.normal(size=(n, 1))) / np.sqrt(2) if correlated else differences


@pytest.mark.parametrize("correlated", [True, False])
@pytest.mark.parametrize("n", [6, 8])
def test_familywise_error_and_simultaneous_coverage(n: int, correlated: bool) -> None:
    """2,000 null studies of six terms: rejects in at most 6 %, intervals hold together in 93 to 97 %."""
    rng = np.random.default_rng(n)
    rejected = covered = 0
    for _ in range(2000):
        found = simultaneous(null_study(rng, n, correlated))
        rejected += bool((found.p_adjusted <= 0.05).any())
        covered += bool(((found.low <= 0) & (found.high >= 0)).all())
    assert rejected / 2000 <= 0.06
    assert 0.93 <= covered / 2000 <= 0.97


def test_power() -> None:
    """One term with d_z = 2, five with none, n = 8: found in at least 88 %."""
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(1000):
        differences = null_study(rng, 8, correlated=True)
        differences[:, 0] += 2.0
        found += bool(simultaneous(differences).p_adjusted[0] <= 0.05)
    assert found / 1000 >= 0.88


@pytest.mark.parametrize("n", [5, 8])
def test_marginal_t_interval_covers(n: int) -> None:
    d = np.random.default_rng(n).normal(0.3, 2.0, size=(4000, n))
    half = t_half_width(d.std(axis=1, ddof=1), np.full(4000, n), 0.05)
    covered = (np.abs(d.mean(axis=1) - 0.3) <= half).mean()
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize("n", [6, 8])
def test_tost_error_at_the_margin(n: int) -> None:
    """True difference exactly at the margin: called equivalent in at most 6 %."""
    d = np.random.default_rng(n).normal(1.0, 0.5, size=(n, 4000))
    assert (tost(d, 1.0) <= 0.05).mean() <= 0.06


def test_verdicts_are_seldom_wrong() -> None:
    """A true effect beyond the margin is hardly ever called droppable, none hardly ever needed."""
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(1000):
        differences = 0.3 * null_study(rng, 8, correlated=True)
        differences[:, :3] += 1.01
        found = simultaneous(differences)
        readings = [read_interval(low, high, 1.0, "minimize") for low, high in zip(found.low, found.high, strict=True)]
        wrong += "equivalent" in readings[:3] or "worse" in readings[3:] or "better" in readings
    assert wrong / 1000 <= 0.06


def test_a_reference_that_moves_every_seed_alike_is_not_in_the_interval() -> None:
    """The report's own figure: a shared shift of half the paired SD, eight seeds, no true difference: .22 reject."""
    rng = np.random.default_rng(0)
    d = rng.normal(size=(8, 40000)) + 0.5 * rng.normal(size=40000)
    assert (one_sample_t(d)[1] <= 0.05).mean() == pytest.approx(0.22, abs=0.01)


def test_beyond_sixteen_seeds_flips_are_drawn_and_agree_with_the_t_test() -> None:
    """With one contrast and normal differences the flip test is the t test, up to the error of 100,000 draws."""
    from scipy import stats

    d = np.random.default_rng(0).normal(0.45, 1.0, size=(20, 1))
    found = simultaneous(d)
    assert found.p_value[0] == pytest.approx(stats.ttest_1samp(d[:, 0], 0.0).pvalue, abs=0.01)
    assert found.p_value[0] == simultaneous(d).p_value[0]
    assert found.quantile == pytest.approx(stats.t.ppf(0.975, 19), abs=0.05)
