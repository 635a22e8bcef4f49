"""Shapley values of games with known solutions."""

from __future__ import annotations

import pytest

from ablate.analysis.shapley import shapley
from tests.designed_trials import METRIC, designed_trials, full_factorial


def weights(config: dict[str, float]) -> float:
    return 5.0 - 1.0 * config["a"] - 0.2 * config["b"] + 0.5 * config["c"]


@pytest.mark.parametrize("with_empty", [True, False])
def test_an_additive_game_gives_the_leave_one_out_effects(with_empty: bool) -> None:
    trials = designed_trials(full_factorial("abc", with_empty=with_empty), weights, noise=0.0)
    table = shapley(trials, metric=METRIC)
    assert list(table["term"]) == ["a", "b", "c"]
    assert table["shapley"].tolist() == pytest.approx([1.0, 0.2, -0.5])
    assert table["leave_one_out"].tolist() == pytest.approx([1.0, 0.2, -0.5])
    assert set(table["empty_run"]) == {with_empty}


def test_the_glove_game() -> None:
    """One left glove (a) and two right ones (b, c): a pair is worth 1. Shapley values 2/3, 1/6, 1/6."""

    def lost(config: dict[str, float]) -> float:
        return 1.0 - float(config["a"] and (config["b"] or config["c"]))

    table = shapley(designed_trials(full_factorial("abc", with_empty=True), lost), metric=METRIC)
    assert table["shapley"].tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert table["leave_one_out"].tolist() == pytest.approx([1.0, 0.0, 0.0])


def test_two_terms_that_do_the_same_work_share_it() -> None:
    """Each can go alone and both cannot: leave-one-out sees nothing, Shapley splits the loss."""

    def lost(config: dict[str, float]) -> float:
        return 0.0 if config["a"] or config["b"] else 1.0

    table = shapley(designed_trials(full_factorial("abc"), lost), metric=METRIC).set_index("term")
    assert table.loc[["a", "b"], "leave_one_out"].tolist() == pytest.approx([0.0, 0.0])
    assert table.loc["a", "shapley"] == pytest.approx(table.loc["b", "shapley"])
    assert table.loc["a", "shapley"] > 0.1
    assert table.loc["c", "shapley"] == pytest.approx(0.0)


def test_no_value_where_a_coalition_is_missing() -> None:
    arms = full_factorial("abc")
    del arms["-a, -b"]
    assert shapley(designed_trials(arms, weights), metric=METRIC).empty


def test_the_factorial_over_some_terms_is_found_beside_a_leave_one_out_over_all() -> None:
    arms = {label: config | {"d": 1.0} for label, config in full_factorial("abc", with_empty=True).items()}
    arms["-d"] = dict.fromkeys("abcd", 1.0) | {"d": 0.0}
    trials = designed_trials(arms, lambda c: weights(c) - c["d"], designs={"-d": "leave_one_out"})
    assert list(shapley(trials, metric=METRIC)["term"]) == ["a", "b", "c"]
