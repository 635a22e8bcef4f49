"""The smaller tables, on frames small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablate.analysis.accounting import intention_to_treat, noise_floor, verdict_bounds
from ablate.analysis.arms import arm_means, arm_states
from ablate.analysis.effects import effects
from ablate.analysis.learning import arm_curves, difference_curves
from ablate.analysis.outcomes import arm_roles, only_removes, outcomes
from ablate.analysis.rate_distortion import rate_distortion
from ablate.analysis.resampling import non_dominated, pareto, rank_uncertainty
from ablate.analysis.variance import variance_components
from tests.simulated_study import EFFECTS, PRIMARY, simulate_study

METRIC = "eval/x"


def frame(values: dict[str, list[float | str]], metric: str = METRIC) -> pd.DataFrame:
    """Outcomes by arm and seed; a string is a reason of FAIL, or WAITING."""
    rows = []
    for arm, outcomes_ in values.items():
        for seed, value in enumerate(outcomes_):
            word = value if isinstance(value, str) else None
            state = "COMPLETE" if word is None else "WAITING" if word == "WAITING" else "FAIL"
            rows.append(
                {
                    "trial_id": f"{arm}/{seed}",
                    "arm": arm,
                    "seed": seed,
                    "replicate": int(arm.startswith("aa-")),
                    "designs": "leave_one_out",
                    "state": state,
                    "reason": word if state == "FAIL" else "",
                    f"metric.{metric}": np.nan if word else value,
                }
            )
    return pd.DataFrame(rows)


def test_roles() -> None:
    roles = arm_roles(simulate_study(seeds=1).trials())
    assert roles["baseline"] == "baseline"
    assert roles["aa-1"] == "aa"
    assert roles["search-1/0"] == "search"
    assert {arm for arm, role in roles.items() if role == "twin"} == {arm for arm in EFFECTS if "~" in arm}
    assert sum(role == "comparison" for role in roles.values()) == 7


def test_an_arm_that_a_search_and_a_design_share_is_compared() -> None:
    trials = frame({"baseline": [1.0], "-a": [1.0], "b=2": [1.0]})
    trials.loc[trials["arm"] == "-a", "designs"] = "leave_one_out,search-1"
    trials.loc[trials["arm"] == "b=2", "designs"] = "search-1,search-2"
    assert arm_roles(trials) == {"baseline": "baseline", "-a": "comparison", "b=2": "search"}


@pytest.mark.parametrize(
    ("label", "removes"),
    [("-a", True), ("-a, -b", True), ("-a ~rescaled", True), ("-a, b=2", False), ("+a", False), ("a=1", False)],
)
def test_only_removes(label: str, removes: bool) -> None:
    assert only_removes(label) == removes


def test_outcomes_tell_the_ways_a_value_can_be_missing_apart() -> None:
    found = outcomes(frame({"a": [1.0, "diverged", "died", "WAITING", np.inf, np.nan]}), METRIC)
    assert found.value["a"].tolist() == pytest.approx([1.0, *[np.nan] * 5], nan_ok=True)
    assert found.diverged["a"].tolist() == [False, True, False, False, True, False]
    assert found.ended["a"].tolist() == [True, True, True, False, True, True]


def test_arm_means_over_seeds() -> None:
    """Two arms by three seeds give the mean and deviation over the three; one seed gives no deviation, not 0."""
    table = arm_means(frame({"a": [1.0, 2.0, 3.0], "b": [5.0, "died", np.inf]})).set_index("arm")
    assert table.loc["a", ["n", "mean", "sd"]].tolist() == [3, 2.0, 1.0]
    half = stats.t.ppf(0.975, 2) / np.sqrt(3)
    assert table.loc["a", ["low", "high"]].tolist() == pytest.approx([2 - half, 2 + half])
    assert table.loc["b", ["n", "n_infinite", "mean"]].tolist() == [1, 1, 5.0]
    assert table.loc["b", ["sd", "low", "high"]].isna().all()


def test_arm_states_count_every_planned_trial() -> None:
    table = arm_states(frame({"baseline": [1.0, "diverged", "died"], "-a": [1.0, "WAITING", "WAITING"]}))
    columns = ["n", "COMPLETE", "FAIL", "WAITING", "diverged"]
    assert table.set_index("arm")[columns].to_numpy().tolist() == [[3, 1, 2, 0, 1], [3, 1, 0, 2, 0]]


def test_effects_count_pairs_and_improvement() -> None:
    trials = frame({"baseline": [1.0, 2.0, 3.0, 4.0], "-a": [0.5, 2.0, "died", 4.5]})
    row = effects(trials, metric=METRIC, goal="minimize").iloc[0]
    assert (row["n_pairs"], row["n_dropped"], row["difference"]) == (3, 1, 0.0)
    assert row["improvement"] == pytest.approx(0.5)  # one better, one equal, one worse
    assert (row["mean_arm"], row["mean_baseline"]) == pytest.approx((7 / 3, 7 / 3))


def test_pairing_is_worth_what_the_seeds_share() -> None:
    """With seed variance 9 and noise variance 1, unpaired needs about (9 + 1) x 2 / 2 = 10 times the seeds."""
    study = simulate_study(seeds=400, effects={"baseline": 0.0, "-a": 0.1}, seed_sd=3.0, noise_sd=1.0, steps=1)
    row = effects(study.trials(), metric=PRIMARY).iloc[0]
    assert row["pairing_gain"] == pytest.approx(10.0, rel=0.15)
    assert row["correlation"] == pytest.approx(0.9, abs=0.03)


def test_intention_to_treat_counts_the_diverged_as_the_worst() -> None:
    trials = frame({"baseline": [1.0, 2.0, 9.0], "-a": [1.0, "diverged", "died"]})
    row = intention_to_treat(trials, metric=METRIC, goal="minimize").set_index("arm").loc["-a"]
    assert row[["planned", "complete", "diverged", "failed", "unfinished"]].tolist() == [3, 1, 1, 1, 0]
    assert (row["mean"], row["mean_worst"]) == (1.0, 5.0)
    row = intention_to_treat(trials, metric=METRIC, goal="maximize").set_index("arm").loc["-a"]
    assert row["mean_worst"] == 1.0


def test_bounds_say_which_verdicts_hang_on_what_is_missing() -> None:
    near = [0.01 * (-1) ** k for k in range(12)]
    values: dict[str, list[float | str]] = {"baseline": [0.0] * 12, "-a": [1 + x for x in near], "-b": [*near]}
    trials = frame(values | {"-b": [*near[:10], "died", "WAITING"]})
    table = verdict_bounds(trials, metric=METRIC, goal="minimize", sesoi=0.2).set_index("arm")
    assert table.loc["-a"].tolist() == [0, "needed", "needed", True]
    assert table.loc["-b", "n_missing"] == 2
    assert table.loc["-b", "verdict_if_against"] == "undecided"
    sure = verdict_bounds(frame(values), metric=METRIC, goal="minimize", sesoi=0.2).set_index("arm")
    assert sure["verdict_if_for"].tolist() == ["needed", "droppable"]


def test_a_missing_baseline_bounds_every_arm() -> None:
    trials = frame({"baseline": [*[0.0] * 7, "died"], "-a": [1.0] * 8})
    assert verdict_bounds(trials, metric=METRIC, goal="minimize", sesoi=0.2)["n_missing"].tolist() == [1]


def test_noise_floor_is_what_the_replicates_differ_by() -> None:
    d = np.array([0.3, -0.1, 0.2, -0.4, 0.1, -0.2])
    floor, arms = noise_floor(frame({"baseline": [1.0] * 6, "aa-1": list(1 + d)}), metric=METRIC)
    assert floor == pytest.approx(stats.t.ppf(0.975, 6) * np.sqrt((d**2).mean() / 6))
    assert arms["flagged"].tolist() == [False]
    _, arms = noise_floor(frame({"baseline": [1.0] * 6, "aa-1": list(2 + d)}), metric=METRIC)
    assert arms["flagged"].tolist() == [True]
    assert np.isnan(noise_floor(frame({"baseline": [1.0] * 6}), metric=METRIC)[0])


def test_the_noise_floor_holds_its_level() -> None:
    """A mean difference of two equal arms lies beyond the floor in about 5 % of studies."""
    rng = np.random.default_rng(0)
    beyond = 0
    for _ in range(400):
        d = rng.normal(size=(6, 2))
        floor, _arms = noise_floor(frame({"baseline": [0.0] * 6, "aa-1": list(d[:, 0])}), metric=METRIC)
        beyond += abs(d[:, 1].mean()) > floor
    assert 0.02 <= beyond / 400 <= 0.09


def test_rate_shift_is_named_where_both_moved_and_apart() -> None:
    rng = np.random.default_rng(0)

    def values(rate: float, distortion: float) -> tuple[list[float], list[float]]:
        return list(rate + rng.normal(0, 0.01, 8)), list(distortion + rng.normal(0, 0.01, 8))

    arms = {"baseline": values(0.3, 1.8), "-a": values(0.1, 2.0), "-b": values(0.4, 1.9), "-c": values(0.3, 1.9),
            "-d": values(0.5, 1.7)}  # fmt: skip
    trials = frame({arm: rate for arm, (rate, _) in arms.items()}, "eval/rate_per_token")
    trials["metric.eval/nll_per_token"] = [x for _, distortion in arms.values() for x in distortion]
    table = rate_distortion(trials).set_index("arm")["note"]
    assert table.to_dict() == {"baseline": "", "-a": "rate shift", "-b": "", "-c": "", "-d": "rate shift"}
    assert rate_distortion(frame({"baseline": [1.0]})).empty


def test_ranks_are_sure_where_arms_are_far_apart_and_not_where_they_are_equal() -> None:
    trials = frame({"baseline": [1.0, -1.0] * 4, "-a": [-1.1, 1.1] * 4, "-b": [-9.0, -9.5] * 4})
    table = rank_uncertainty(trials, metric=METRIC, goal="minimize").set_index("arm")
    assert table.loc["-b", ["rank", "low", "high", "p_best"]].tolist() == [1, 1, 1, 1]
    assert table.loc["-a", ["low", "high"]].tolist() == [2, 3]
    assert rank_uncertainty(trials, metric=METRIC, goal="maximize").set_index("arm").loc["-b", "rank"] == 3


def test_an_arm_that_failed_throughout_does_not_empty_the_ranking() -> None:
    table = rank_uncertainty(
        frame({"baseline": [1.0, 2.0], "-a": [0.0, 1.0], "-b": ["died", "died"]}), metric=METRIC, goal="minimize"
    )
    assert table["arm"].tolist() == ["-a", "baseline"]


@pytest.mark.parametrize("columns", [2, 3])
def test_non_dominated_equals_the_definition(columns: int) -> None:
    points = np.random.default_rng(0).integers(0, 6, size=(60, columns)).astype(float)
    expected = [not any((q <= p).all() and (q < p).any() for q in points) for p in points]
    assert non_dominated(points).tolist() == expected


def test_pareto_membership() -> None:
    trials = frame({"baseline": [1.0, 1.1, 0.9], "-a": [0.0, 0.1, -0.1], "-b": [2.0, 2.1, 1.9]})
    trials["metric.eval/y"] = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5]
    table = pareto(trials, goals={METRIC: "minimize", "eval/y": "maximize"}).set_index("arm")
    assert table["on_front"].to_dict() == {"baseline": True, "-a": True, "-b": False}
    assert table["p_front"].to_dict() == {"baseline": 1.0, "-a": 1.0, "-b": 0.0}


def test_variance_components_recover_the_truth() -> None:
    arms = {"baseline": 0.0} | {f"x={k}": float(e) for k, e in enumerate(np.random.default_rng(1).normal(0, 0.5, 60))}
    study = simulate_study(seeds=40, effects=arms, seed_sd=0.3, noise_sd=0.1, diagnostics=0, steps=1)
    table = variance_components(study.trials(), metric=PRIMARY).set_index("source")["sd"]
    assert table.to_dict() == pytest.approx({"arm": 0.5, "seed": 0.3, "arm x seed": 0.1}, rel=0.3)
    assert variance_components(frame({"baseline": [1.0, 2.0]}), metric=METRIC).empty


def test_constant_outcomes_have_no_variance_and_no_share() -> None:
    table = variance_components(frame({"baseline": [1.0] * 3, "-a": [1.0] * 3}), metric=METRIC)
    assert table["variance"].tolist() == [0.0, 0.0, 0.0]
    assert table["share"].isna().all()


def curves_of(trials: pd.DataFrame, steps: list[int]) -> pd.DataFrame:
    rows = [(row.trial_id, step, METRIC, float(row.seed + step)) for row in trials.itertuples() for step in steps]
    return pd.DataFrame(rows, columns=["trial_id", "step", "metric", "value"])


def test_curves_are_means_over_seeds_at_equal_steps() -> None:
    trials = frame({"baseline": [0.0, 0.0, 0.0], "-a": [0.0, 0.0, 0.0]})
    curves = curves_of(trials, [0, 10])
    curves.loc[(curves["trial_id"] == "-a/2") & (curves["step"] == 10), "value"] = np.inf
    table = arm_curves(trials, curves, [METRIC]).set_index(["arm", "step"])
    assert table.loc[("baseline", 10), ["n", "mean"]].tolist() == [3, 11.0]
    assert table.loc[("-a", 10), ["n", "mean"]].tolist() == [2, 10.5]
    gaps = difference_curves(trials, curves, METRIC).set_index(["arm", "step"])
    assert gaps.loc[("-a", 0), ["n", "mean", "low", "high"]].tolist() == [3, 0.0, 0.0, 0.0]
    assert gaps.loc[("-a", 10), "n"] == 2


def test_long_curves_are_thinned_evenly_and_keep_their_ends() -> None:
    trials = frame({"baseline": [0.0]})
    table = arm_curves(trials, curves_of(trials, list(range(1001))), [METRIC], points=11)
    assert table["step"].tolist() == list(range(0, 1001, 100))
