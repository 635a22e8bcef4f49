"""Effects of two-level designs against truths written down beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from ablate.analysis.factorial import factorial_effects, interaction_matrix
from tests.designed_trials import METRIC, designed_trials, fraction, full_factorial


def additive(config: dict[str, float]) -> float:
    return 3.0 - 1.0 * config["a"] - 0.2 * config["b"] + 0.5 * config["c"]


def test_additive_truth_gives_the_effects_and_no_interaction() -> None:
    trials = designed_trials(full_factorial("abc"), additive)
    table = factorial_effects(trials, metric=METRIC, design="grid").set_index("term")
    assert table["effect"].to_dict() == pytest.approx(
        {"a": 1.0, "b": 0.2, "c": -0.5, "a × b": 0.0, "a × c": 0.0, "b × c": 0.0}
    )


def test_an_interaction_is_a_difference_of_differences() -> None:
    def truth(config: dict[str, float]) -> float:
        return additive(config) + 0.8 * (config["a"] == 0) * (config["b"] == 0)

    trials = designed_trials(full_factorial("abc", with_empty=True), truth)
    table = factorial_effects(trials, metric=METRIC, design="grid").set_index("term")
    assert table.loc["a × b", "effect"] == pytest.approx(0.8)
    assert table.loc["a", "effect"] == pytest.approx(1.0 + 0.4)
    assert table.loc["a × c", "effect"] == pytest.approx(0.0)
    matrix = interaction_matrix(table.reset_index())
    assert matrix.loc["a", "b"] == matrix.loc["b", "a"] == pytest.approx(0.8)
    assert matrix.loc["c", "c"] == pytest.approx(-0.5)


RESOLUTION_IV = fraction("abcdef", {"e": (-1, "abc"), "f": (1, "bcd")})


def test_aliases_of_a_fraction_are_named() -> None:
    """2^(6-2), E = -ABC, F = BCD: so AB = -CE and AE = -BC = -DF, and A is clear of pairs."""
    designs = {"baseline": "baseline"} | {arm: "factorial" for arm in RESOLUTION_IV if arm != "baseline"}
    assert len(RESOLUTION_IV) == 17
    trials = designed_trials(RESOLUTION_IV, lambda c: 1.0 - c["a"] + 0.4 * c["f"], designs=designs)
    table = factorial_effects(trials, metric=METRIC, design="factorial").set_index("term")
    assert table.loc["a", "effect"] == pytest.approx(1.0)
    assert table.loc["f", "effect"] == pytest.approx(-0.4)
    assert table.loc[list("bcde"), "effect"].tolist() == pytest.approx([0.0] * 4)
    assert table.loc["a × b", "aliases"] == "= - c × e"
    assert set(table.loc["a × e", "aliases"].split("; ")) == {"= - b × c", "= - d × f"}
    pairs = table.loc[table["order"] == 2]
    assert len(pairs) == 7
    assert not any(" × " in alias and alias.count("×") == 1 for alias in table.loc["a", "aliases"].split("; "))


def test_a_screening_design_gives_main_effects_and_says_what_they_are_confounded_with() -> None:
    """Plackett and Burman 1946, 12 runs: the cyclic shifts of their first row, and a row of minuses."""
    first = [1, 1, -1, 1, 1, 1, -1, -1, -1, 1, -1]
    rows = [np.roll(first, shift) for shift in range(11)] + [np.full(11, -1)]
    arms = {"baseline": dict.fromkeys("abcde", 1.0)}
    for index, row in enumerate(rows):
        arms[f"run={index}"] = {path: float(level > 0) for path, level in zip("abcde", row, strict=False)}
    designs = {arm: "baseline" if arm == "baseline" else "factorial" for arm in arms}
    trials = designed_trials(arms, lambda c: 2.0 * c["b"] - 0.3 * c["e"], designs=designs)
    table = factorial_effects(trials, metric=METRIC, design="factorial").set_index("term")
    assert list(table.index) == list("abcde")
    assert table["effect"].tolist() == pytest.approx([0, -2.0, 0, 0, 0.3])
    assert "~ b × c" in table.loc["a", "aliases"].split("; ")
    assert table["p_bh"].notna().all()


def test_factors_that_moved_together_are_one() -> None:
    arms = {label: config | {"twin": config["a"]} for label, config in full_factorial("ab", with_empty=True).items()}
    table = factorial_effects(designed_trials(arms, lambda c: c["a"]), metric=METRIC, design="grid")
    assert list(table["term"]) == ["a", "b", "a × b"]


def test_a_seed_that_lacks_an_arm_is_used_where_the_rest_determines_all() -> None:
    trials = designed_trials(full_factorial("abc", with_empty=True), additive, seeds=7)
    trials.loc[(trials["arm"] == "-a") & (trials["seed"] == 2), "state"] = "FAIL"
    table = factorial_effects(trials, metric=METRIC, design="grid")
    assert set(table["n_seeds"]) == {7}
    assert table["effect"].tolist() == pytest.approx([1.0, 0.2, -0.5, 0, 0, 0])
    # Seven arms determine seven numbers; without one more they don't.
    trials.loc[(trials["arm"] == "-b") & (trials["seed"] == 2), "state"] = "FAIL"
    assert set(factorial_effects(trials, metric=METRIC, design="grid")["n_seeds"]) == {6}


def test_three_levels_are_refused() -> None:
    arms = {"baseline": {"a": 1.0, "b": 1.0}, "a=2": {"a": 2.0, "b": 1.0}, "a=3": {"a": 3.0, "b": 1.0}}
    with pytest.raises(ValueError, match=r"^a takes 2 values beside the baseline's; two levels are needed$"):
        factorial_effects(designed_trials(arms, lambda c: c["a"]), metric=METRIC, design="grid")


def test_intervals_cover_and_noise_is_not_found() -> None:
    wrong = 0
    for study in range(100):
        trials = designed_trials(full_factorial("abc"), additive, noise=0.1, rng_seed=study, seeds=8)
        table = factorial_effects(trials, metric=METRIC, design="grid")
        truth = np.array([1.0, 0.2, -0.5, 0, 0, 0])
        wrong += bool(((table["low"] > truth) | (table["high"] < truth)).any())
    assert wrong <= 11  # 5 expected; 12 or more has probability 0.4 %
