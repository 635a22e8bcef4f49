"""Predicted distances against measured effects, on trials with known truths."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablate.analysis.term_geometry import (
    arm_coordinates,
    canonical_columns,
    only_the_objective,
    paired_arms,
    predictions,
    rank_correlation,
)

METRIC = "eval/x"
ARMS = {  # label: (distance, beta_eff, effect, alpha, latent)
    "baseline": (0.0, 1.0, 0.0, 1.0, "continuous"),
    "-a": (0.1, 1.0, 0.05, 1.0, "continuous"),
    "-b": (0.2, 1.25, -0.12, 1.0, "continuous"),
    "-a ~rescaled": (0.1, 1.0, 0.04, 1.0, "continuous"),
    "twice": (0.0, 1.0, 0.3, 1.0, "continuous"),
    "alpha=2": (0.4, 1.0, 0.2, 2.0, "continuous"),
    "latent=discrete": (0.0, 1.0, 0.9, 1.0, "discrete"),
    "aa-1": (0.0, 1.0, 0.0, 1.0, "continuous"),
}


@pytest.fixture
def trials():
    rng = np.random.default_rng(0)
    rows = []
    for seed in range(6):
        own = rng.normal(0, 0.1)
        for arm, (distance, beta, effect, alpha, latent) in ARMS.items():
            rows.append(
                {
                    "trial_id": f"{seed}{arm}", "arm": arm, "seed": seed, "replicate": int(arm == "aa-1"),
                    "designs": "leave_one_out", "state": "COMPLETE", "reason": "",
                    "config.reconstruction.token_weight_alpha": alpha, "config.latent": latent,
                    "config.kl.beta": beta, "canonical.scale": 1.0, "canonical.beta_eff": beta,
                    "canonical.distance": distance,
                    f"metric.{METRIC}": 2 + own + effect + rng.normal(0, 0.001),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def test_arms_that_change_only_the_objective(trials):
    every = [arm for arm in ARMS if arm != "baseline"]
    assert only_the_objective(trials, every) == [arm for arm in every if arm != "latent=discrete"]


def test_predictions_stand_beside_what_was_measured(trials):
    table = predictions(trials, metric=METRIC, sesoi=0.02)
    assert list(table["arm"]) == ["twice", "-a", "-a ~rescaled", "-b", "alpha=2"]
    assert list(table["role"]) == ["comparison", "comparison", "twin", "comparison", "comparison"]
    row = table.set_index("arm").loc["-b"]
    assert row["log_beta_ratio"] == pytest.approx(math.log(1.25))
    assert row["effect"] == pytest.approx(0.12, abs=0.005) == -row["difference"]
    assert list(table["failed"]) == [True, False, False, False, False]
    assert not predictions(trials, metric=METRIC, sesoi=0.5)["failed"].any()
    assert predictions(trials, metric=METRIC)["failed"].sum() == 1


def test_an_arm_without_coordinates_or_without_a_pair_is_left_out(trials):
    trials.loc[trials["arm"] == "-a", "canonical.distance"] = np.nan
    trials.loc[trials["arm"] == "alpha=2", "state"] = "FAIL"
    assert list(predictions(trials, metric=METRIC)["arm"]) == ["twice", "-a ~rescaled", "-b"]


def test_coordinates_of_arms(trials):
    assert canonical_columns(trials) == ["scale", "beta_eff", "distance"]
    table = arm_coordinates(trials)
    assert list(table["arm"]) == list(ARMS)
    assert list(table["distance"]) == [values[0] for values in ARMS.values()]
    assert canonical_columns(trials.drop(columns=[c for c in trials if c.startswith("canonical.")])) == []


def test_pairs_that_are_one_training_are_measured(trials):
    table = paired_arms(trials, [("-a", "-a ~rescaled"), ("-a", "twice"), ("-a", "gone")], metric=METRIC, sesoi=0.02)
    assert list(table["n_pairs"]) == [6, 6, 0]
    assert table["difference"].iloc[0] == pytest.approx(0.01, abs=0.002)
    assert list(table["failed"]) == [False, True, False]
    wide = trials.pivot_table(index="seed", columns="arm", values=f"metric.{METRIC}")
    gap = wide["-a"] - wide["twice"]
    low, high = stats.t.interval(0.95, 5, gap.mean(), stats.sem(gap))
    assert (table["low"].iloc[1], table["high"].iloc[1]) == pytest.approx((low, high))


def test_rank_correlation():
    x, y = np.arange(10.0), np.array([0, 2, 1, 3, 5, 4, 6, 8, 7, 9.0])
    found = rank_correlation(x, y)
    assert (found.value, found.n) == (pytest.approx(stats.spearmanr(x, y).statistic), 10)
    half = 1.959964 * math.sqrt((1 + found.value**2 / 2) / 7)
    assert math.atanh(found.high) - math.atanh(found.low) == pytest.approx(2 * half, rel=1e-6)
    assert rank_correlation(x, -y).low == pytest.approx(-found.high)


def test_a_perfect_rank_correlation_of_few_arms_is_not_certain():
    found = rank_correlation(np.arange(5.0), np.arange(5.0))
    assert found.value == pytest.approx(1)
    assert -0.2 < found.low < 0.5
    assert found.high < 1


def test_too_few_arms_or_no_difference_have_no_interval():
    four = rank_correlation(np.arange(4.0), np.arange(4.0))
    assert (four.value, four.n) == (pytest.approx(1), 4)
    assert math.isnan(four.low)
    assert math.isnan(rank_correlation(np.zeros(6), np.arange(6.0)).value)
    assert rank_correlation(np.array([1, np.nan, 2]), np.arange(3.0)).n == 2


def test_the_interval_covers():
    """Bivariate normal, rho 0.6 of the ranks, 12 arms: 95 % intervals cover in about 95 % of 400 studies."""
    rng = np.random.default_rng(1)
    pearson = 2 * math.sin(math.pi * 0.6 / 6)
    covered = 0
    for _ in range(400):
        x = rng.normal(size=12)
        y = pearson * x + math.sqrt(1 - pearson**2) * rng.normal(size=12)
        found = rank_correlation(x, y)
        covered += found.low <= 0.6 <= found.high
    assert 0.92 < covered / 400 < 0.99
