"""Searches and what is left of their winners; effects over new data: against simulated truth."""

import math

import numpy as np
import pandas as pd
import pytest

from ablate.analysis.effects import effects
from ablate.analysis.outcomes import arm_roles
from ablate.analysis.random_effects import random_effects
from ablate.analysis.search import expected_best, search_names, search_progress, shrinkage
from ablate.analysis.verdicts import contrasts

SELECT, REPORT = "select/loss", "eval/loss"


def rows(arm, seeds, select, report, *, state="COMPLETE", designs="search-1"):
    return [
        {"trial_id": f"{arm}-{seed}", "arm": arm, "seed": seed, "replicate": 0, "designs": designs, "state": state,
         "reason": "", f"metric.{SELECT}": s, f"metric.{REPORT}": r}
        for seed, s, r in zip(seeds, select, report, strict=True)
    ]  # fmt: skip


def study(seed=0, *, equal=64, noise=1.0, fresh=8):
    """A baseline and `equal` proposals that are all as good as it, one seed each; the best two are confirmed."""
    rng = np.random.default_rng(seed)
    found = rows("baseline", range(4), rng.normal(0, noise, 4), rng.normal(0, noise, 4), designs="baseline")
    values = rng.normal(0, noise, equal)
    for number, value in enumerate(values):
        found += rows(f"search-1/{number}", [0], [value], [rng.normal(0, noise)])
    seeds = range(10**9, 10**9 + fresh)
    shared = rng.normal(0, noise, fresh)
    for label in ("baseline", *np.argsort(values)[:2]):
        own = shared + rng.normal(0, noise / 4, fresh)
        found += rows(f"confirm-1/{label}", seeds, own, own, designs="confirm-1")
    return pd.DataFrame(found)


def test_roles():
    frame = pd.concat([study(equal=2), pd.DataFrame(rows("tune/baseline/0", [2 * 10**9], [1.0], [1.0]))])
    assert arm_roles(frame) == {
        "baseline": "baseline",
        "search-1/0": "search",
        "search-1/1": "search",
        "confirm-1/baseline": "confirm",
        **{arm: "confirm" for arm in frame["arm"].unique() if arm.startswith("confirm-1/") and arm[-1].isdigit()},
        "tune/baseline/0": "tuning",
    }
    assert contrasts(frame, metric=REPORT, goal="minimize", sesoi=0.1).empty
    assert set(effects(frame, metric=REPORT, goal="minimize")["arm"]) == {"search-1/0", "search-1/1"}


def test_progress_follows_the_best_complete_arm():
    frame = pd.DataFrame(
        [
            *rows("baseline", [0, 1], [9.0, 9.0], [9.0, 9.0], designs="baseline"),
            *rows("search-1/0", [0, 1], [3.0, 5.0], [0.0, 0.0]),
            *rows("search-1/2", [0], [1.0], [0.0], state="PRUNED"),
            *rows("search-1/10", [0, 1], [2.0, 2.0], [0.0, 0.0]),
            *rows("search-1/3", [0, 1], [7.0, math.nan], [0.0, 0.0], state="FAIL"),
        ]
    )
    assert search_names(frame) == ["search-1"]
    table = search_progress(frame, search="search-1", objective=SELECT, goal="minimize")
    assert table.to_dict("list") == {
        "arm": ["search-1/0", "search-1/2", "search-1/3", "search-1/10"],
        "number": [0, 2, 3, 10],
        "state": ["COMPLETE", "PRUNED", "FAIL", "COMPLETE"],
        "n_seeds": [2, 1, 2, 2],
        "value": [4.0, 1.0, 7.0, 2.0],
        "best": [4.0, 4.0, 4.0, 2.0],
    }
    upwards = search_progress(frame, search="search-1", objective=SELECT, goal="maximize")
    assert list(upwards["best"]) == [4.0] * 4
    assert search_progress(frame, search="search-2", objective=SELECT, goal="minimize").empty


@pytest.mark.parametrize(("n", "value"), [(1, 0.0), (2, 1 / math.sqrt(math.pi)), (64, 2.3437)])
def test_the_best_of_equals_looks_good(n, value):
    assert expected_best(n) == pytest.approx(value, abs=1e-3)
    if n > 1:
        drawn = np.random.default_rng(0).normal(size=(20_000, n)).max(axis=1).mean()
        assert expected_best(n) == pytest.approx(drawn, abs=0.02)


def test_what_was_luck_is_gone_on_fresh_seeds():
    """64 equal arms by one seed each: the winner looks 2.3 SDs better than the baseline is, and is no better."""
    found, confirmed, covered = [], [], 0
    for seed in range(80):
        table = shrinkage(
            study(seed),
            number=1,
            objective=SELECT,
            objective_goal="minimize",
            metric=REPORT,
            goal="minimize",
            sesoi=0.5,
        )
        assert list(table["n_found"]) == [1, 1]
        assert list(table["n_pairs"]) == [8, 8]
        found.append(table["found"].iloc[0])
        confirmed.append(table["confirmed"].iloc[0])
        covered += table["low"].iloc[0] <= 0 <= table["high"].iloc[0]
    assert np.mean(found) == pytest.approx(-expected_best(64), abs=0.3)
    assert np.mean(confirmed) == pytest.approx(0, abs=0.04)
    assert 0.9 <= covered / 80 <= 1


def test_an_arm_without_fresh_seeds_has_no_row():
    frame = study()
    frame = frame.loc[~frame["arm"].str.startswith("confirm")]
    assert shrinkage(
        frame, number=1, objective=SELECT, objective_goal="minimize", metric=REPORT, goal="minimize", sesoi=None
    ).empty


# --- over new data ------------------------------------------------------------------------------


def drawn_anew(seed, *, n=12, between=0.5, chance=0.2, effect=1.0):
    """Each seed is a data set on which the arm's effect is effect + N(0, between); two trainings differ by chance."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0, 3, n)
    half = chance / math.sqrt(2)
    frame = []
    arms = {"baseline": np.zeros(n), "-a": effect + rng.normal(0, between, n), "aa-1": np.zeros(n)}
    for arm, shift in arms.items():
        values = level + shift + rng.normal(0, half, n)
        frame += rows(arm, range(n), values, values, designs="aa" if arm == "aa-1" else "grid")
    return pd.DataFrame(frame)


def test_the_spread_between_data_sets_is_told_from_chance():
    tables = [random_effects(drawn_anew(seed, n=40), metric=REPORT) for seed in range(60)]
    first = pd.concat(tables)
    assert list(first["arm"].unique()) == ["-a"]
    assert first["mean"].mean() == pytest.approx(1.0, abs=0.03)
    assert first["sd_chance"].mean() == pytest.approx(0.2, abs=0.01)
    assert first["sd_between"].mean() == pytest.approx(0.5, abs=0.03)


def test_intervals_hold_their_level_for_the_mean_and_for_a_new_data_set():
    rng = np.random.default_rng(7)
    mean = new = 0
    for seed in range(300):
        table = random_effects(drawn_anew(seed), metric=REPORT)
        row = table.iloc[0]
        mean += row["low"] <= 1.0 <= row["high"]
        new += row["new_low"] <= 1.0 + rng.normal(0, 0.5) + rng.normal(0, 0.2) <= row["new_high"]
    assert mean / 300 == pytest.approx(0.95, abs=0.035)
    assert new / 300 == pytest.approx(0.95, abs=0.03)


def test_without_aa_arms_chance_is_not_known():
    frame = drawn_anew(0)
    row = random_effects(frame.loc[frame["arm"] != "aa-1"], metric=REPORT).iloc[0]
    assert math.isnan(row["sd_chance"])
    assert math.isnan(row["sd_between"])
    assert row["same_sign"] > 0.5


def test_one_seed_has_no_spread():
    frame = drawn_anew(0)
    row = random_effects(frame.loc[frame["seed"] == 0], metric=REPORT).iloc[0]
    assert row["n"] == 1
    assert math.isnan(row["sd"])
