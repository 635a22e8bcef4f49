"""Collapsed posteriors are found and named with their cause, on constructed trials and on real ones."""

import pandas as pd
import pytest

from ablate.analysis.collapse import collapse, latent_units

CONFIG = {
    "latent": "continuous",
    "reconstruction": {"token_aggregation": "token_sum", "raw_weight": 1.0},
    "kl": {"beta": 1.0, "free_bits": 0.0, "schedule": "constant"},
    "model": {"latent_dimensions": 8, "latent_groups": 4, "token_dropout": 0.0},
}
NO_CURVES = pd.DataFrame({"trial_id": [], "step": [], "metric": [], "value": []})
#: KL of 2 nats over 8 tokens; and of 0.004, which is 0.0005 a dimension.
ALIVE = {"eval/kl": 2.0, "eval/rate_per_token": 0.25, "eval/nll_per_token": 0.7}
DEAD = {"eval/kl": 0.004, "eval/rate_per_token": 0.0005, "eval/nll_per_token": 0.9}


def frame(arms, seeds=2):
    """Trials of arms: label -> (factors, metrics, beta_eff)."""
    paths = {path for factors, _, _ in arms.values() for path in factors}
    rows = []
    for label, (factors, metrics, beta) in arms.items():
        for seed in range(seeds):
            row = {"trial_id": f"{label}/{seed}", "arm": label, "seed": seed, "state": "COMPLETE"}
            row |= {f"metric.{name}": value for name, value in metrics.items()}
            if beta is not None:
                row["metric.train/effective_beta"] = beta
            base = {path: value_of(path) for path in paths}
            rows.append(row | {f"config.{path}": value for path, value in (base | factors).items()})
    return pd.DataFrame(rows)


def value_of(path):
    section, name = path.split(".")
    return CONFIG[section][name]


def found(arms, config=CONFIG, curves=NO_CURVES):
    return collapse(frame(arms), curves, config).set_index("arm")


def test_a_posterior_that_is_used_is_left_alone():
    table = found({"baseline": ({}, ALIVE, 1.0)})
    assert table.loc["baseline", ["n", "collapsed", "setting", "reason"]].tolist() == [2, 0, "", ""]
    assert table.loc["baseline", "kl_per_unit"] == pytest.approx(2 / 8)


@pytest.mark.parametrize(
    ("path", "value", "beta", "reason"),
    [
        (
            "kl.beta", 30.0, 30.0,
            "kl.beta is 30.0, the baseline's 1.0: β_eff is 30 instead of 1, so the KL weighs 30 times as much against "
            "the reconstruction",
        ),
        (
            "reconstruction.token_aggregation", "token_mean", 9.0,
            "reconstruction.token_aggregation is token_mean, the baseline's token_sum: β_eff is 9 instead of 1, so "
            "the KL weighs 9 times as much against the reconstruction",
        ),
        (
            "model.token_dropout", 0.5, 1.0,
            "model.token_dropout is 0.5, the baseline's 0.0; it differs from the baseline, whose posterior did not "
            "collapse",
        ),
    ],
)  # fmt: skip
def test_what_differs_from_a_sound_baseline_is_named(path, value, beta, reason):
    table = found({"baseline": ({}, ALIVE, 1.0), "changed": ({path: value}, DEAD, beta)})
    assert table.loc["changed", ["collapsed", "setting", "reason"]].tolist() == [2, path, reason]
    assert table.loc["baseline", "collapsed"] == 0


def test_free_bits_taken_away_are_named():
    config = CONFIG | {"kl": CONFIG["kl"] | {"free_bits": 0.2}}
    arms = {
        "baseline": ({"kl.free_bits": 0.2}, ALIVE, 1.0),
        "-free_bits": ({"kl.free_bits": 0.0}, DEAD, 1.0),
    }
    assert found(arms, config).loc["-free_bits", "setting"] == "kl.free_bits"


def test_of_several_changes_the_one_that_collapses_alone_is_named():
    arms = {
        "baseline": ({}, ALIVE, 1.0),
        "beta": ({"kl.beta": 2.0}, ALIVE, 2.0),
        "drop": ({"model.token_dropout": 0.9}, DEAD, 1.0),
        "both": ({"kl.beta": 2.0, "model.token_dropout": 0.9}, DEAD, 1.0),
    }
    table = found(arms)
    assert table.loc["both", "setting"] == "model.token_dropout"
    # where none is known to do it alone, the usual suspect goes first
    assert found({name: arms[name] for name in ("baseline", "both")}).loc["both", "setting"] == "kl.beta"


@pytest.mark.parametrize(
    ("kl", "mode", "beta", "setting", "reason"),
    [
        ({"beta": 8.0}, "token_sum", 8.0, "kl.beta",
         "β_eff is 8: the KL weighs 8 times what the ELBO charges; kl.beta is 8.0"),
        ({}, "token_mean", 9.0, "reconstruction.token_aggregation",
         "β_eff is 9: the KL weighs 9 times what the ELBO charges, as token_mean divides the reconstruction by the "
         "length and not the KL"),
        ({}, "token_sum", 1.0, "kl.free_bits",
         "β_eff is 1, near the ELBO's 1, and nothing keeps the rate up: no free bits (kl.free_bits 0.0), no warm-up "
         "(kl.schedule constant), the decoder reads every token of the prefix (model.token_dropout 0.0)"),
        ({"free_bits": 0.5, "schedule": "cyclical"}, "token_sum", 1.0, "kl.free_bits",
         "kl.free_bits is 0.5, which charges nothing for a rate below it, and it is not used; the decoder reads every "
         "token of the prefix (model.token_dropout 0.0)"),
    ],
)  # fmt: skip
def test_of_a_collapsed_baseline_its_own_settings_are_named(kl, mode, beta, setting, reason):
    config = CONFIG | {"kl": CONFIG["kl"] | kl, "reconstruction": {"token_aggregation": mode}}
    table = found({"baseline": ({}, DEAD, beta)}, config)
    assert table.loc["baseline", ["setting", "reason"]].tolist() == [setting, reason]


def test_a_rate_that_is_small_a_unit_and_not_in_all_is_used():
    # 5 nats over 512 dimensions are under 0.01 each, and a third of the distortion
    config = CONFIG | {"model": CONFIG["model"] | {"latent_dimensions": 512}}
    metrics = {"eval/kl": 5.0, "eval/rate_per_token": 0.25, "eval/nll_per_token": 0.7}
    assert found({"baseline": ({}, metrics, 1.0)}, config).loc["baseline", "collapsed"] == 0


def test_a_distortion_that_still_falls_is_told_from_a_flat_one():
    def curve(values):
        points = [("baseline/0", step, "eval/nll_per_token", value) for step, value in enumerate(values)]
        return pd.DataFrame(points, columns=["trial_id", "step", "metric", "value"])

    arms = {"baseline": ({}, DEAD, 1.0)}
    assert found(arms, curves=curve([2.0, 0.9, 0.9, 0.9, 0.9])).loc["baseline", "falling"] == 0
    assert found(arms, curves=curve([2.0, 1.6, 1.4, 1.1, 0.9])).loc["baseline", "falling"] == 1


def test_a_workload_of_ones_own_needs_rate_and_distortion_alone():
    own = {name: value for name, value in DEAD.items() if name != "eval/kl"}
    table = found({"baseline": ({}, own, None)}, {"beta": 4.0})
    assert table.loc["baseline", ["collapsed", "setting"]].tolist() == [2, ""]
    assert table.loc["baseline", "reason"] == "no setting stands out; see the learning curves of rate and distortion"
    assert found({"baseline": ({}, {"loss": 1.0}, None)}).empty


def test_trials_that_did_not_finish_do_not_count():
    trials = frame({"baseline": ({}, DEAD, 1.0)})
    trials.loc[0, "state"] = "FAIL"
    assert collapse(trials, NO_CURVES, CONFIG)[["n", "collapsed"]].to_numpy().tolist() == [[1, 1]]


def test_units_are_those_of_the_latent_type():
    assert latent_units(CONFIG) == 8
    assert latent_units(CONFIG | {"latent": "discrete"}) == 4
    assert latent_units({"beta": 1.0}) is None


def test_the_reported_case_of_a_mean_beside_a_sum():
    # AppliedDataSciencePartners/WorldModels#12: a reconstruction of 16 pixels with error 0.5 is 4.0 as a sum, 0.25 as
    # a mean; beside a KL that is summed, the mean makes β_eff 16
    arms = {
        "baseline": ({}, {"eval/kl": 3.0, "eval/rate_per_token": 3 / 16, "eval/nll_per_token": 0.25}, 1.0),
        "mean": (
            {"reconstruction.token_aggregation": "token_mean"},
            {"eval/kl": 0.03, "eval/rate_per_token": 0.03 / 16, "eval/nll_per_token": 0.25},
            16.0,
        ),
    }
    table = found(arms)
    assert table["collapsed"].to_dict() == {"baseline": 0, "mean": 2}
    assert table.loc["mean", "setting"] == "reconstruction.token_aggregation"
