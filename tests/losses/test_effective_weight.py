import math
from dataclasses import replace

import pytest
import torch

from losses import (
    effective_coefficient,
    example_weight_mean,
    mean_effective_token_weight,
    mean_token_weights,
    prepare_reference,
    reconstruction_losses,
    term_shares,
    zfree_reference_scale,
)
from losses.reconstruction import TERMS
from tests.losses.batches import CONFIG, NO_WEIGHTS, batch, expected
from tests.losses.oracle import SIX_TERMS

MODES = pytest.mark.parametrize("mode", ["token_sum", "token_mean"])
DATA = batch(examples=20, length=9)
TOKENS = DATA.mask.sum().item()
PRESENT = DATA.mask.any(-1).sum().item()


def prepared(config):
    return prepare_reference(DATA.surprisal, DATA.mask, config)


def own(mode):
    """S_b of the examples with n_b > 0, by lists."""
    rows = [
        [max(s, 0.0) for s, on in zip(surprisals, mask, strict=True) if on]
        for surprisals, mask in zip(DATA.surprisal.tolist(), DATA.mask.tolist(), strict=True)
    ]
    return [math.fsum(row) / (len(row) if mode == "token_mean" else 1) for row in rows if row]


@MODES
def test_scale_and_normaliser(mode):
    config = replace(CONFIG, token_aggregation=mode)
    assert pytest.approx(math.fsum(own(mode)) / PRESENT) == zfree_reference_scale(prepared(config))
    inverses = [1 / (s + 0.3) for s in own(mode)]
    assert pytest.approx(math.fsum(inverses) / PRESENT) == example_weight_mean(prepared(config), config)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 50.0])
def test_the_normaliser_of_the_whole_set_as_one_batch_changes_nothing(epsilon):
    config = replace(CONFIG, example_inverse_surprisal_epsilon=epsilon)
    mean = example_weight_mean(prepared(config), config)
    one, other = (reconstruction_losses(DATA.nll, DATA.mask, DATA.surprisal, config, m) for m in (None, mean))
    torch.testing.assert_close(one.effective_token_weights, other.effective_token_weights)


@MODES
def test_mean_token_weights_equal_the_oracle(mode):
    config = replace(CONFIG, token_aggregation=mode)
    got = mean_token_weights(prepared(config), config)
    for name, field in SIX_TERMS.items():
        weights = expected(DATA, replace(config, **{**NO_WEIGHTS, field: 1.0})).weights
        assert pytest.approx(PRESENT * math.fsum(map(math.fsum, weights)) / TOKENS) == got[name]


def test_mean_token_weights_in_closed_form():
    got = list(mean_token_weights(prepared(CONFIG), CONFIG).values())
    assert pytest.approx([1.0, 1 / 2.5, 1.0]) == [got[0], got[1], got[3]]


@MODES
def test_total_and_shares(mode):
    config = replace(CONFIG, token_aggregation=mode)
    weights = mean_token_weights(prepared(config), config)
    total = mean_effective_token_weight(weights, config)
    whole = expected(DATA, config).weights
    assert pytest.approx(PRESENT * math.fsum(map(math.fsum, whole)) / TOKENS) == total
    shares = term_shares(weights, config)
    assert pytest.approx(1.0) == sum(shares.values())
    assert (
        pytest.approx(2.0 * weights["token_weighted_reconstruction_loss"] / total)
        == (shares["token_weighted_reconstruction_loss"])
    )


def test_beta_eff_of_the_elbo_is_one_and_of_token_means_the_mean_length():
    for mode, beta_eff in (("token_sum", 1.0), ("token_mean", TOKENS / PRESENT)):
        config = replace(CONFIG, **{**NO_WEIGHTS, "raw_weight": 1.0}, token_aggregation=mode)
        total = mean_effective_token_weight(mean_token_weights(prepared(config), config), config)
        assert pytest.approx(beta_eff) == effective_coefficient(1.0, total)
        assert pytest.approx(4 * beta_eff) == effective_coefficient(4.0, total)


def test_no_term_has_no_effective_coefficient():
    config = replace(CONFIG, **NO_WEIGHTS)
    weights = mean_token_weights(prepared(config), config)
    assert mean_effective_token_weight(weights, config) == 0.0
    assert math.isnan(effective_coefficient(1.0, 0.0))
    assert all(math.isnan(share) for share in term_shares(weights, config).values())


def test_a_data_set_without_active_positions():
    reference = prepare_reference(DATA.surprisal, torch.zeros_like(DATA.mask), CONFIG)
    assert math.isnan(zfree_reference_scale(reference))
    assert math.isnan(example_weight_mean(reference, CONFIG))
    assert list(map(math.isnan, mean_token_weights(reference, CONFIG).values())) == [True] * len(TERMS)


def test_other_settings_are_refused():
    config = replace(CONFIG, token_weight_alpha=3.0)
    message = "token_weight_alpha: the reference was prepared with 0.7, got 3.0; prepare it again"
    for function in (example_weight_mean, mean_token_weights):
        with pytest.raises(ValueError, match=message):
            function(prepared(CONFIG), config)
