"""Faults that users of other libraries reported, with the values that are right here."""

import pytest
import torch

from losses import (
    BetaSchedule,
    ReconstructionLossConfig,
    beta_at,
    categorical_kl,
    effective_coefficient,
    example_weight_mean,
    gaussian_kl,
    masked_token_nll_per_example,
    masked_token_nll_per_position,
    mean_effective_token_weight,
    mean_token_weights,
    prepare_reference,
    reconstruction_losses,
    token_weighted_masked_nll_per_example,
)
from tests.losses.batches import CONFIG, batch, values

TERM = "reconstruction_loss"


def two_examples():
    """2 tokens of loss 1, and 8 of loss 3."""
    mask = torch.arange(8) < torch.tensor([[2], [8]])
    nll = torch.tensor([[1.0], [3.0]], dtype=torch.float64).expand(2, 8).clone()
    return nll.requires_grad_(), mask, torch.ones(2, 8, dtype=torch.float64)


@pytest.mark.parametrize(("mode", "loss"), [("token_sum", 13.0), ("token_mean", 2.0)])
def test_micro_batches_give_the_loss_and_gradient_of_the_batch(mode, loss):
    """transformers 34191, 35203; torchtune 1875: a mean of means."""
    nll, mask, surprisal = two_examples()
    config = ReconstructionLossConfig(token_aggregation=mode)
    mean = example_weight_mean(prepare_reference(surprisal, mask, config), config)
    whole = reconstruction_losses(nll, mask, surprisal, config, mean)
    assert pytest.approx(loss) == whole.terms[TERM].item()
    (gradient,) = torch.autograd.grad(whole.objective, nll)
    parts = [reconstruction_losses(nll[b], mask[b], surprisal[b], config, mean) for b in (slice(1), slice(1, 2))]
    for name, value in values(whole.terms).items():
        assert pytest.approx(value) == sum(part.terms[name].item() for part in parts) / 2
    (accumulated,) = torch.autograd.grad(sum(part.objective for part in parts) / 2, nll)
    torch.testing.assert_close(accumulated, gradient)


def test_the_denominator_counts_targets_not_labels():
    """transformers 46204: 2 rows of 5 labels have 8 targets; padded and packed, the same loss a token."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(6, (2, 5), generator=generator)
    logits = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64)
    mask = torch.ones(2, 4, dtype=torch.bool)
    plain = masked_token_nll_per_position(logits, tokens[:, 1:], mask)
    assert mask.sum() == 8
    pad = torch.nn.functional.pad
    padded = masked_token_nll_per_position(
        pad(logits, (0, 0, 0, 3)), pad(tokens[:, 1:], (0, 3), value=-100), pad(mask, (0, 3))
    )
    packed = masked_token_nll_per_position(logits.view(1, 8, 6), tokens[:, 1:].reshape(1, 8), mask.view(1, 8))
    expected = plain.sum().item() / 8
    assert pytest.approx([expected] * 2) == [padded.sum().item() / 8, packed.sum().item() / 8]


@pytest.mark.parametrize("mode", ["token_sum", "token_mean"])
def test_ranks_with_3_and_7_tokens_give_the_loss_of_one(mode):
    """transformers 37474: the wrong scale with several devices; here ranks of 1 and 2 examples."""
    mask = torch.arange(4) < torch.tensor([[3], [4], [3]])
    data = batch(3, 4)
    config = ReconstructionLossConfig(token_aggregation=mode)
    mean = example_weight_mean(prepare_reference(data.surprisal, mask, config), config)

    def terms(rows):
        return values(reconstruction_losses(data.nll[rows], mask[rows], data.surprisal[rows], config, mean).terms)

    one, first, second = terms(slice(None)), terms(slice(1)), terms(slice(1, 3))
    assert pytest.approx(one) == {name: (first[name] + 2 * second[name]) / 3 for name in one}


@pytest.mark.parametrize("examples", [1, 2, 4])
@pytest.mark.parametrize("mode", ["token_sum", "token_mean"])
def test_weights_of_one_are_no_weights(examples, mode):
    """pytorch 25571, 40560."""
    data = batch(examples)
    plain = masked_token_nll_per_example(data.nll, data.mask, mode)
    weighted = token_weighted_masked_nll_per_example(data.nll, data.mask, torch.ones_like(data.nll), mode)
    torch.testing.assert_close(weighted, plain)


def test_three_denominators_of_a_weighted_mean():
    """bergson 344, gpn 23: weights 6 and 4 on losses that come to 5.6390 and 4.9593 once weighted."""
    weights = torch.tensor([[6.0, 4.0]], dtype=torch.float64)
    nll = torch.tensor([[5.6390, 4.9593]], dtype=torch.float64) / weights
    mask = torch.ones(1, 2, dtype=torch.bool)

    def loss(weights, mode):
        return round(token_weighted_masked_nll_per_example(nll, mask, weights, mode).item(), 4)

    assert loss(weights, "token_sum") == 10.5983
    assert loss(weights, "token_mean") == 5.2992
    assert loss(2 * weights / weights.sum(), "token_mean") == 1.0598


@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_the_logged_loss_does_not_depend_on_accumulation(accumulation):
    """transformers 527: the logged loss was scaled by 1/accumulation."""
    data = batch(8)
    data.mask[:, 0] = True
    mean = example_weight_mean(prepare_reference(data.surprisal, data.mask, CONFIG), CONFIG)
    whole = reconstruction_losses(data.nll, data.mask, data.surprisal, CONFIG, mean)
    logged = torch.zeros((), dtype=torch.float64)
    for rows in torch.arange(8).chunk(accumulation):
        micro = reconstruction_losses(data.nll[rows], data.mask[rows], data.surprisal[rows], CONFIG, mean)
        logged += micro.objective / accumulation
    torch.testing.assert_close(logged, whole.objective)


def test_the_kl_is_summed_over_latents():
    """grammarVAE 2, keras-molecules 59: a mean over latents, which divides beta by their number."""
    assert gaussian_kl(torch.ones(3, 8), torch.zeros(3, 8)).tolist() == [4.0] * 3
    certain = torch.tensor([1e4, 0.0]).expand(3, 5, 2)
    assert pytest.approx([5 * 0.6931472] * 3) == categorical_kl(certain).tolist()


@pytest.mark.parametrize(("mode", "loss", "beta_eff"), [("token_sum", 4.0, 1.0), ("token_mean", 0.25, 16.0)])
def test_a_mean_reconstruction_beside_a_summed_kl_has_a_large_beta(mode, loss, beta_eff):
    """WorldModels 12, MMVAE 19: 16 places of loss 0.25 are 4.0 or 0.25, and beta weighs 16 times as much."""
    config = ReconstructionLossConfig(
        distribution_normalized_weight=0.0,
        example_inverse_surprisal_weight=0.0,
        token_weighted_weight=0.0,
        normalized_concentration_corrected_token_weighted_weight=0.0,
        normalized_inverse_surprisal_token_weighted_weight=0.0,
        token_aggregation=mode,
    )
    mask = torch.ones(3, 16, dtype=torch.bool)
    reference = prepare_reference(torch.ones(3, 16), mask, config)
    assert reconstruction_losses(torch.full((3, 16), 0.25), mask, reference, config).objective.item() == loss
    total = mean_effective_token_weight(mean_token_weights(reference, config), config)
    assert pytest.approx(beta_eff) == effective_coefficient(1.0, total)


def test_the_loss_does_not_depend_on_the_batch_size():
    """alibi-detect 90: a sum over the batch."""
    data = batch(3)
    once = reconstruction_losses(data.nll, data.mask, data.surprisal, CONFIG)
    twice = reconstruction_losses(*(torch.cat([t, t]) for t in (data.nll, data.mask, data.surprisal)), CONFIG)
    assert pytest.approx(values(once.terms)) == values(twice.terms)
    assert pytest.approx(values(once.diagnostics)) == values(twice.diagnostics)


def test_a_cycle_is_a_function_of_the_step_alone():
    """bn-vae 1: annealing reset in the wrong loop. A cycle of 4 epochs of 10 steps, resumed at step 17."""
    schedule = BetaSchedule(beta=1.0, schedule="cyclical", cycle_steps=40, cycle_ramp=0.5)
    whole = [beta_at(schedule, step) for step in range(100)]
    assert pytest.approx([min(1.0, (step % 40) / 20) for step in range(100)]) == whole
    assert [beta_at(schedule, step) for step in range(17, 100)] == whole[17:]
