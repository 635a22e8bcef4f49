"""Shares of the effective token weight, which a simplex search proposes: weights that leave beta_eff alone."""

import pytest

from ablate.workloads.synthetic_sequences.config import Config
from ablate.workloads.synthetic_sequences.workload import scales, train
from tests.workloads.conftest import tiny
from tests.workloads.test_train import run, trial

SHARES = {"raw_weight": 0.2, "token_weighted_weight": 0.5, "example_inverse_surprisal_weight": 0.3}


def test_each_term_has_its_share_and_beta_eff_is_that_of_the_baseline(shared_dir):
    plain, made = trial(shared_dir), trial(shared_dir, baseline=tiny())
    train(tiny(), plain)
    train(tiny(reconstruction={"shares": SHARES}), made)
    for name in ("mean_effective_token_weight", "effective_beta"):
        assert made.notes[name] == pytest.approx(plain.notes[name])
    by_field = dict(zip(made.notes["weights_of_shares"], made.notes["term_shares"].values(), strict=True))
    assert by_field == pytest.approx({name: SHARES.get(name, 0.0) for name in by_field})
    (scale,) = scales([tiny(reconstruction={"shares": SHARES})], tiny(), shared_dir)
    assert scale.beta_eff == made.notes["effective_beta"]


def test_a_trial_of_shares_is_that_of_the_weights_they_stand_for(shared_dir):
    made = trial(shared_dir, baseline=tiny())
    of_shares = run(tiny(reconstruction={"shares": SHARES}), made)
    weights = made.notes["weights_of_shares"]
    assert of_shares == run(tiny(reconstruction=weights), trial(shared_dir))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"shares": {"raw": 1.0}}, "shares of raw; a share belongs to one of: raw_weight, "),
        ({"shares": {"raw_weight": 0.4}}, "shares add up to 0.4; they make 1"),
        ({"shares": {"raw_weight": 1.0}, "rescale": "baseline"}, "shares and rescale exclude each other"),
    ],
)
def test_shares_that_mean_nothing_are_refused(section, message):
    with pytest.raises(ValueError, match=message):
        Config.model_validate({"reconstruction": section})


def test_shares_without_a_baseline_are_refused(shared_dir):
    with pytest.raises(ValueError, match="need the baseline's configuration"):
        train(tiny(reconstruction={"shares": SHARES}), trial(shared_dir))
