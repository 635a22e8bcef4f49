"""Dose-response and importance against known truths."""

from __future__ import annotations

import numpy as np
import pytest

from ablate.analysis.dose_response import dose_paths, dose_response
from ablate.analysis.importance import LEAST_CONFIGURATIONS, importance
from tests.designed_trials import METRIC, designed_trials

LEVELS = [0.0, 0.5, 1.0, 2.0]


def dose_arms() -> dict[str, dict[str, object]]:
    arms: dict[str, dict[str, object]] = {"baseline": {"alpha": 1.0, "mode": "sum", "w": 1.0}}
    for level in LEVELS:
        if level != 1.0:
            arms[f"alpha={level}"] = {"alpha": level, "mode": "sum", "w": 1.0}
    return arms | {"mode=mean": {"alpha": 1.0, "mode": "mean", "w": 1.0}, "-w": {"alpha": 1.0, "mode": "sum", "w": 0.0}}


def test_dose_response_follows_the_truth() -> None:
    trials = designed_trials(dose_arms(), lambda c: (float(c["alpha"]) - 1.0) ** 2, noise=0.001)
    assert dose_paths(trials) == ["alpha"]
    table = dose_response(trials, metric=METRIC, path="alpha")
    assert table["value"].tolist() == LEVELS
    assert table["difference"].tolist() == pytest.approx([1.0, 0.25, 0.0, 1.0], abs=0.01)
    assert table.loc[table["arm"] == "baseline", ["low", "high"]].to_numpy().tolist() == [[0.0, 0.0]]
    assert (table["low"] <= table["difference"]).all()


def test_the_band_is_simultaneous_over_the_levels() -> None:
    outside = 0
    for study in range(80):
        trials = designed_trials(dose_arms(), lambda c: float(c["alpha"]), noise=0.1, rng_seed=study)
        table = dose_response(trials, metric=METRIC, path="alpha")
        truth = table["value"] - 1.0
        outside += bool(((table["low"] > truth + 1e-12) | (table["high"] < truth - 1e-12)).any())
    assert outside <= 9  # 4 expected; 10 or more has probability 0.7 %


def proposals(count: int, rng: np.random.Generator) -> dict[str, dict[str, object]]:
    arms: dict[str, dict[str, object]] = {"baseline": {"a": 0.5, "b": 0.5, "c": 0.5, "mode": "sum"}}
    for index in range(count):
        a, b, c = rng.random(3)
        arms[f"search-1/{index}"] = {"a": a, "b": b, "c": c, "mode": ["sum", "mean"][int(rng.integers(2))]}
    return arms


@pytest.mark.parametrize(("method", "studies"), [("ped_anova", 10), ("fanova", 3)])
def test_pure_noise_is_called_noise(method: str, studies: int) -> None:
    called, factors = 0, 0
    for study in range(studies):
        arms = proposals(40, np.random.default_rng(study))
        trials = designed_trials(arms, lambda c: 0.0, noise=1.0, seeds=2, rng_seed=study)
        table = importance(trials, metric=METRIC, goal="minimize", method=method)
        called, factors = called + int(table["noise"].sum()), factors + len(table)
    assert factors == 4 * studies
    assert called >= 0.9 * factors


@pytest.mark.parametrize("method", ["ped_anova", "fanova"])
def test_a_strong_factor_is_told_from_noise(method: str) -> None:
    arms = proposals(60, np.random.default_rng(1))
    trials = designed_trials(arms, lambda c: 4 * abs(float(c["b"]) - 0.2), noise=0.1, seeds=2)
    table = importance(trials, metric=METRIC, goal="minimize", method=method)
    assert table.loc[0, "factor"] == "b"
    assert table.set_index("factor")["noise"].to_dict() == {"b": False, "a": True, "c": True, "mode": True}


def test_a_factor_with_a_single_level_is_skipped_and_few_configurations_give_nothing() -> None:
    arms = {label: config | {"fixed": 3.0} for label, config in proposals(20, np.random.default_rng(2)).items()}
    trials = designed_trials(arms, lambda c: float(c["a"]), seeds=1)
    assert "fixed" not in set(importance(trials, metric=METRIC, goal="minimize")["factor"])
    few = trials.loc[trials["arm"].isin(list(arms)[: LEAST_CONFIGURATIONS - 1])]
    assert importance(few, metric=METRIC, goal="minimize").empty
