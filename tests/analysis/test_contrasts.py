"""`contrasts` as the study contract defines it, by small cases with known answers."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ablate.analysis import contrasts
from tests.simulated_study import EFFECTS, PRIMARY, simulate_study

COMPARISON = [arm for arm in EFFECTS if "~" not in arm and arm not in ("baseline", "aa-1", "search-1/0")]


def frame(values: dict[str, list[float | str]], metric: str = "eval/x") -> pd.DataFrame:
    """A trials frame from a list of outcomes an arm; a string is the reason of a FAIL."""
    rows = []
    for arm, outcomes in values.items():
        for seed, outcome in enumerate(outcomes):
            failed = isinstance(outcome, str)
            rows.append(
                {
                    "trial_id": f"{arm}/{seed}",
                    "arm": arm,
                    "seed": seed,
                    "replicate": 0,
                    "designs": "leave_one_out",
                    "state": "FAIL" if failed else "COMPLETE",
                    "reason": outcome if failed else None,
                    f"metric.{metric}": np.nan if failed else outcome,
                }
            )
    return pd.DataFrame(rows)


def one(trials: pd.DataFrame, arm: str = "-a", sesoi: float | None = 0.1, goal: str = "minimize") -> pd.Series:
    return contrasts(trials, metric="eval/x", goal=goal, sesoi=sesoi).set_index("arm").loc[arm]


def around(center: float, n: int = 8, spread: float = 0.01) -> list[float]:
    return [center + spread * (-1) ** k * (1 + k % 3) for k in range(n)]


def test_family_is_every_comparison_arm_in_plan_order() -> None:
    table = contrasts(simulate_study().trials(), metric=PRIMARY, goal="minimize", sesoi=0.02)
    assert list(table["arm"]) == COMPARISON
    assert list(table.columns) == [
        "arm",
        "n_pairs",
        "n_dropped",
        "n_diverged",
        "difference",
        "low",
        "high",
        "p_value",
        "p_adjusted",
        "significant",
        "verdict",
        "reason",
    ]


def test_twins_are_a_family_of_their_own() -> None:
    trials = simulate_study(noise_sd=0.002).trials()
    table = contrasts(trials, metric=PRIMARY, goal="minimize", sesoi=0.02, family="twin")
    assert list(table["arm"]) == [arm for arm in EFFECTS if "~" in arm]
    assert list(table["verdict"]) == ["needed", "harmful", "equivalent"]


def test_verdicts_of_known_effects() -> None:
    trials = simulate_study(noise_sd=0.002).trials()
    table = contrasts(trials, metric=PRIMARY, goal="minimize", sesoi=0.02).set_index("arm")
    assert table.loc["-raw_weight", "verdict"] == "needed"
    assert table.loc["-token_weighted_weight", "verdict"] == "harmful"
    assert table.loc["-distribution_normalized_weight", "verdict"] == "droppable"
    assert table.loc["token_aggregation=token_mean", "verdict"] == "worse"


def test_p_values_and_interval_equal_a_plain_loop_over_all_flips() -> None:
    """An independent count over all 2^n sign vectors, one vector at a time."""
    rng = np.random.default_rng(3)
    base = rng.normal(size=7)
    arms = {"-a": rng.normal(0.8, 1, 7), "-b": rng.normal(0, 1, 7), "c=1": rng.normal(-0.4, 1, 7)}
    table = contrasts(frame({"baseline": list(base)} | {k: list(v) for k, v in arms.items()}), metric="eval/x",
                      goal="minimize", sesoi=0.1).set_index("arm")  # fmt: skip
    d = np.column_stack([v - base for v in arms.values()])

    def t_of(x: np.ndarray) -> np.ndarray:
        return np.abs(x.mean(0)) / (x.std(0, ddof=1) / np.sqrt(len(x)))

    signs = [np.array(s)[:, None] for s in itertools.product([1.0, -1.0], repeat=7)]
    null = np.array([t_of(s * d) for s in signs])
    centred = np.array([t_of(s * (d - d.mean(0))).max() for s in signs])
    q = np.sort(centred)[int(np.ceil(0.95 * len(signs))) - 1]
    se = d.std(0, ddof=1) / np.sqrt(7)
    for j, arm in enumerate(arms):
        at_least = null[:, j] >= t_of(d)[j] - 1e-12
        assert table.loc[arm, "p_value"] == pytest.approx(at_least.mean())
        assert table.loc[arm, "p_adjusted"] == pytest.approx((null.max(1) >= t_of(d)[j] - 1e-12).mean())
        assert table.loc[arm, "low"] == pytest.approx(d.mean(0)[j] - q * se[j])
        assert table.loc[arm, "high"] == pytest.approx(d.mean(0)[j] + q * se[j])


def test_five_seeds_are_too_few_and_six_are_enough() -> None:
    few = one(frame({"baseline": [0.0] * 5, "-a": around(1.0, 5)}))
    assert (few["verdict"], few["reason"]) == ("undecided", "too few seeds")
    assert (few["low"], few["high"]) == (-np.inf, np.inf)
    assert not few["significant"]
    enough = one(frame({"baseline": [0.0] * 6, "-a": around(1.0, 6)}))
    assert (enough["verdict"], enough["reason"]) == ("needed", "")
    assert enough["p_adjusted"] == pytest.approx(2 / 64)


@pytest.mark.parametrize(
    ("center", "goal", "removing", "other"),
    [
        (1.0, "minimize", "needed", "worse"),
        (-1.0, "minimize", "harmful", "better"),
        (0.0, "minimize", "droppable", "equivalent"),
        (0.1, "minimize", "undecided", "undecided"),
        (1.0, "maximize", "harmful", "better"),
        (-1.0, "maximize", "needed", "worse"),
    ],
)
def test_verdict_is_read_off_the_interval(center: float, goal: str, removing: str, other: str) -> None:
    trials = frame({"baseline": [0.0] * 8, "-a": around(center), "-a, +b": around(center)})
    assert one(trials, "-a", goal=goal)["verdict"] == removing
    assert one(trials, "-a, +b", goal=goal)["verdict"] == other


def test_an_effect_that_is_there_but_may_be_small_is_undecided_and_significant() -> None:
    row = one(frame({"baseline": [0.0] * 8, "-a": around(0.1)}))
    assert row["low"] > 0
    assert row["verdict"] == "undecided"
    assert row["significant"]


def test_no_sesoi_no_verdict() -> None:
    row = one(frame({"baseline": [0.0] * 8, "-a": around(1.0)}), sesoi=None)
    assert row["verdict"] is None
    assert row["significant"]


def test_a_seed_without_the_baseline_leaves_every_contrast() -> None:
    values: dict[str, list[float | str]] = {"baseline": [*[0.0] * 7, "exception"], "-a": around(1.0), "-b": around(0.0)}
    values["-b"][0] = "died"
    table = contrasts(frame(values), metric="eval/x", goal="minimize", sesoi=0.1).set_index("arm")
    assert list(table["n_pairs"]) == [7, 6]
    assert list(table["n_dropped"]) == [1, 2]


def test_a_diverged_trial_leaves_a_droppable_arm_undecided() -> None:
    values: dict[str, list[float | str]] = {"baseline": [0.0] * 8, "-a": around(0.0), "-b": around(1.0)}
    values["-a"][2] = "diverged"
    row = one(frame(values))
    assert (row["verdict"], row["reason"]) == ("undecided", "diverged 1/8")
    assert (row["n_pairs"], row["n_diverged"]) == (7, 1)


def test_a_verdict_that_holds_however_the_diverged_trial_is_counted_stands() -> None:
    values: dict[str, list[float | str]] = {"baseline": [0.0] * 12, "-a": around(1.0, 12, 0.001)}
    values["-a"][2] = "diverged"
    trials = frame(values)
    assert one(trials, sesoi=0.1)["verdict"] == "needed"
    # For the arm the difference is -1.0 at one of twelve seeds, which leaves the interval above 0.1 alone.
    assert one(trials, sesoi=0.6)["verdict"] == "undecided"


def test_an_arm_that_diverged_more_often_than_the_baseline_is_never_droppable() -> None:
    values: dict[str, list[float | str]] = {"baseline": [0.0] * 8, "-a": around(0.0), "b=1": around(0.0)}
    values["-a"][2] = values["b=1"][3] = "diverged"
    trials = frame(values)
    # The largest difference of the study is 0.03, so neither way of counting leaves the band of 1.
    assert one(trials, "-a", sesoi=1.0)[["verdict", "reason"]].tolist() == ["undecided", "diverged 1/8"]
    assert one(trials, "b=1", sesoi=1.0)["verdict"] == "undecided"
    values["baseline"][7] = "diverged"
    assert one(frame(values), "-a", sesoi=1.0)["verdict"] == "droppable"


def test_all_diverged() -> None:
    row = one(frame({"baseline": [0.0] * 8, "-a": ["diverged"] * 8, "-b": around(0.0)}))
    assert (row["verdict"], row["reason"], row["n_pairs"]) == ("undecided", "diverged 8/8", 0)


def test_an_infinite_value_is_an_outcome_without_a_number() -> None:
    values: dict[str, list[float | str]] = {"baseline": [0.0] * 8, "-a": around(0.0)}
    values["-a"][1] = np.inf
    row = one(frame(values))
    assert (row["n_pairs"], row["n_diverged"], row["verdict"]) == (7, 1, "undecided")
    assert np.isfinite(row["difference"])


def test_equal_differences_have_an_interval_of_no_width() -> None:
    row = one(frame({"baseline": around(0.3), "-a": [x + 1.0 for x in around(0.3)], "-b": around(0.3)}), "-a")
    assert row["low"] == pytest.approx(1.0)
    assert row["high"] == pytest.approx(1.0)
    assert row["p_value"] == pytest.approx(2 / 2**8)
    same = one(frame({"baseline": around(0.3), "-a": around(0.3)}), "-a")
    assert (same["low"], same["high"], same["p_value"], same["verdict"]) == (0.0, 0.0, 1.0, "droppable")


def test_an_arm_with_few_pairs_does_not_widen_the_others() -> None:
    values: dict[str, list[float | str]] = {"baseline": [0.0] * 8, "-a": around(1.0)}
    alone = one(frame(values))
    both = one(frame(values | {"-b": [*around(0.0, 2), *["died"] * 6]}))
    names = ["low", "high", "p_adjusted"]
    assert both[names].tolist() == pytest.approx(alone[names].tolist())


def test_refusals_say_what_to_do() -> None:
    trials = simulate_study(seeds=1).trials()
    with pytest.raises(ValueError, match=r"^train/objective: depends on the weights under study, .*compare eval/neg"):
        contrasts(trials, metric="train/objective", goal="minimize", sesoi=None)
    with pytest.raises(ValueError, match=r"^eval/mgi: no column .*did you mean eval/mig\?$"):
        contrasts(trials, metric="eval/mgi", goal="minimize", sesoi=None)
    with pytest.raises(ValueError, match=r"^goal: 'min'; it is minimize or maximize$"):
        contrasts(trials, metric=PRIMARY, goal="min", sesoi=None)
    with pytest.raises(ValueError, match=r"^no arm is called 'base'; there are "):
        contrasts(trials, metric=PRIMARY, goal="minimize", sesoi=None, baseline="base")
    twice = frame({"baseline": [0.0], "-a": [1.0]})
    with pytest.raises(ValueError, match=r"^-a, seed 0: two rows; "):
        contrasts(pd.concat([twice, twice[1:]]), metric="eval/x", goal="minimize", sesoi=None)


def test_pairs_over_different_reference_tables_are_refused() -> None:
    trials = frame({"baseline": [0.0] * 6, "-a": around(1.0, 6)})
    trials["reference"] = np.where((trials["arm"] == "-a") & (trials["seed"] == 3), "two", "one")
    with pytest.raises(ValueError, match=r"^-a, seed 3: trained on reference table two, the baseline on one; "):
        one(trials)
    trials["config.reference.steps"] = 100
    assert one(trials)["n_pairs"] == 6
    varied = trials.drop(columns="config.reference.steps").assign(reference=[f"of seed {s}" for s in trials["seed"]])
    assert one(varied)["n_pairs"] == 6


def test_an_empty_study_has_an_empty_table() -> None:
    empty = simulate_study(seeds=1).trials().iloc[:0]
    assert contrasts(empty, metric=PRIMARY, goal="minimize", sesoi=0.02).empty


def test_a_frame_of_the_bare_columns_is_enough() -> None:
    trials = frame({"baseline": [0.0] * 6, "-a": around(1.0, 6), "aa-1": around(0.0, 6), "search-1/0": [0.0] * 6})
    bare = trials[["arm", "seed", "state", "metric.eval/x"]]
    assert contrasts(bare, metric="eval/x", goal="minimize", sesoi=0.1)["arm"].tolist() == ["-a"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_exported_frame_gives_the_same_table(kind: str, tmp_path: Path) -> None:
    trials = simulate_study(failures={("-raw_weight", 1): "diverged", ("aa-1", 2): "WAITING"}).trials()
    path = tmp_path / f"trials.{kind}"
    if kind == "csv":
        trials.to_csv(path, index=False)
        read = pd.read_csv(path)
    else:
        trials.to_parquet(path)
        read = pd.read_parquet(path)
    tables = [contrasts(frame, metric=PRIMARY, goal="minimize", sesoi=0.02) for frame in (trials, read)]
    pd.testing.assert_frame_equal(*tables, check_exact=False)
