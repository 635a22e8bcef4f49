import re
from dataclasses import replace

import pytest
import torch

from losses import (
    ReconstructionLossConfig,
    effective_token_weight_table,
    masked_token_nll_per_position,
    prepare_reference,
    reconstruction_losses,
)
from losses.cross_entropy import FEW_CLASSES
from tests.losses.batches import CONFIG, Batch, batch, expected, values

MODES = pytest.mark.parametrize("mode", ["token_sum", "token_mean"])


def close_to_oracle(losses, oracle, rel=1e-12):
    assert pytest.approx(oracle.terms, rel=rel) == values(losses.terms)
    assert pytest.approx(oracle.diagnostics, rel=rel) == values(losses.diagnostics)
    assert pytest.approx(oracle.objective, rel=rel) == losses.objective.item()
    weights = torch.tensor(oracle.weights, dtype=torch.float64)
    torch.testing.assert_close(losses.effective_token_weights.double(), weights, rtol=rel, atol=1e-12)


@MODES
@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.5])
@pytest.mark.parametrize("mean", [None, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_everything_equals_the_oracle(mode, alpha, mean, seed):
    data = batch(seed=seed)
    config = replace(CONFIG, token_aggregation=mode, token_weight_alpha=alpha)
    losses = reconstruction_losses(data.nll, data.mask, data.surprisal, config, mean)
    close_to_oracle(losses, expected(data, config, mean))


@MODES
@pytest.mark.parametrize("mean", [None, 0.05])
def test_a_large_epsilon_of_examples_equals_the_oracle(mode, mean):
    """Inside, (S_b + eps)^-1 is kept times max(1, eps)."""
    data = batch()
    config = replace(CONFIG, token_aggregation=mode, example_inverse_surprisal_epsilon=5.0)
    losses = reconstruction_losses(data.nll, data.mask, data.surprisal, config, mean)
    close_to_oracle(losses, expected(data, config, mean))


@MODES
def test_prepared_and_indexed_equals_the_surprisal(mode):
    data = batch(examples=9)
    config = replace(CONFIG, token_aggregation=mode)
    index = torch.tensor([4, 2, 0, 7])
    part = Batch(data.nll[index], data.mask[index], data.surprisal[index])
    prepared = prepare_reference(data.surprisal, data.mask, config)[index]
    losses = reconstruction_losses(part.nll, part.mask, prepared, config)
    close_to_oracle(losses, expected(part, config))


def test_nothing_under_the_mask_is_read():
    data = batch()
    expected_losses = reconstruction_losses(data.nll, data.mask, data.surprisal, CONFIG)
    for anything in (torch.nan, torch.inf, -torch.inf, 1e30, -5.0):
        nll = data.nll.masked_fill(~data.mask, anything).requires_grad_()
        surprisal = data.surprisal.masked_fill(~data.mask, anything).requires_grad_()
        losses = reconstruction_losses(nll, data.mask, surprisal, CONFIG)
        assert values(expected_losses.terms) == values(losses.terms)
        assert values(expected_losses.diagnostics) == values(losses.diagnostics)
        assert torch.equal(expected_losses.effective_token_weights, losses.effective_token_weights)
        (losses.objective + sum(losses.terms.values())).backward()
        assert surprisal.grad is None
        assert nll.grad.isfinite().all()
        assert torch.equal(nll.grad[~data.mask], torch.zeros_like(nll.grad[~data.mask]))


def test_a_negative_surprisal_is_zero():
    data = batch()
    negative = replace(data, surprisal=data.surprisal - 2.0)
    clamped = replace(data, surprisal=negative.surprisal.clamp(min=0))
    one, other = (reconstruction_losses(d.nll, d.mask, d.surprisal, CONFIG) for d in (negative, clamped))
    assert values(one.terms) == values(other.terms)


@MODES
def test_an_empty_example_takes_no_part(mode):
    config = replace(CONFIG, token_aggregation=mode)
    data = batch()
    without = Batch(*(table[data.mask.any(-1)] for table in (data.nll, data.mask, data.surprisal)))
    assert len(without.mask) == len(data.mask) - 1
    one, other = (reconstruction_losses(d.nll, d.mask, d.surprisal, config) for d in (data, without))
    assert pytest.approx(values(one.terms)) == values(other.terms)
    assert pytest.approx(values(one.diagnostics)) == values(other.diagnostics)


@MODES
@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (0, 4), (3, 0)])
@pytest.mark.parametrize("mean", [None, 0.5])
def test_a_batch_without_an_active_position(mode, shape, mean):
    nll = torch.full(shape, torch.nan, requires_grad=True)
    mask = torch.zeros(shape, dtype=torch.bool)
    config = replace(CONFIG, token_aggregation=mode)
    losses = reconstruction_losses(nll, mask, torch.full(shape, torch.nan), config, mean)
    assert [*values(losses.terms).values(), losses.objective.item()] == [0.0] * 7
    assert all(torch.isfinite(value) for value in losses.diagnostics.values())
    (losses.objective + sum(losses.terms.values())).backward()
    assert torch.equal(nll.grad, torch.zeros(shape))
    assert torch.equal(losses.effective_token_weights, torch.zeros(shape))


def test_a_zero_weight_changes_no_logged_value():
    data = batch()
    before = reconstruction_losses(data.nll, data.mask, data.surprisal, CONFIG)
    off = replace(CONFIG, raw_weight=0.0, token_weighted_weight=0.0)
    after = reconstruction_losses(data.nll, data.mask, data.surprisal, off)
    assert values(before.terms) == values(after.terms)
    assert values(before.diagnostics) == values(after.diagnostics)
    assert after.objective < before.objective


def test_what_carries_gradients():
    data = batch()
    losses = reconstruction_losses(data.nll.clone().requires_grad_(), data.mask, data.surprisal, CONFIG)
    assert losses.objective.requires_grad
    assert all(term.requires_grad for term in losses.terms.values())
    assert not any(value.requires_grad for value in losses.diagnostics.values())
    assert not losses.effective_token_weights.requires_grad


def test_weights_are_detached_from_numbers_that_take_gradients():
    data = batch()
    config = replace(CONFIG, raw_weight=torch.tensor(1.0, requires_grad=True))
    losses = reconstruction_losses(data.nll, data.mask, data.surprisal, config)
    assert not losses.effective_token_weights.requires_grad


@pytest.mark.parametrize("vocabulary", [FEW_CLASSES, FEW_CLASSES + 1])
@pytest.mark.parametrize("way", ["surprisal", "prepared", "table"])
def test_one_cross_entropy_a_step(way, vocabulary):
    data = batch(dtype=torch.float32)
    logits = torch.randn(*data.mask.shape, vocabulary, requires_grad=True)
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    table = effective_token_weight_table(prepared, CONFIG, 0.4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        nll = masked_token_nll_per_position(logits, torch.zeros_like(data.mask, dtype=torch.int64), data.mask)
        if way == "table":
            (table * nll).sum().backward()
        else:
            known = data.surprisal if way == "surprisal" else prepared
            losses = reconstruction_losses(nll, data.mask, known, CONFIG)
            (losses.objective + sum(losses.terms.values()) + sum(losses.diagnostics.values())).backward()
    called = [event.key for event in profiler.key_averages() for _ in range(event.count)]
    exponentials = sorted(name for name in called if re.search("exp_?$|softmax", name))
    assert exponentials == (["aten::exp_"] if vocabulary == FEW_CLASSES else ["aten::_softmax", "aten::softmax"])


def test_the_objective_is_a_descent_direction_for_the_logits():
    """End to end: gradient steps on the logits drive the NLL of the targets down."""
    data = batch(dtype=torch.float32)
    logits = torch.zeros(*data.mask.shape, 5, requires_grad=True)
    targets = torch.arange(data.mask.numel()).view_as(data.mask) % 5
    history = []
    for _ in range(20):
        nll = masked_token_nll_per_position(logits, targets, data.mask)
        objective = reconstruction_losses(nll, data.mask, data.surprisal, CONFIG).objective
        history.append(objective.item())
        (gradient,) = torch.autograd.grad(objective, logits)
        logits = (logits - gradient).detach().requires_grad_()
    assert history == sorted(history, reverse=True)
    assert history[-1] < 0.5 * history[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_weight_alpha": 2.0}, "token_weight_alpha: the reference was prepared with 0.7, got 2.0"),
        (
            {"example_inverse_surprisal_epsilon": 0.5},
            "example_inverse_surprisal_epsilon: the reference was prepared with 0.3, got 0.5",
        ),
        (
            {"inverse_surprisal_token_weight_epsilon": 0.5},
            "inverse_surprisal_token_weight_epsilon: the reference was prepared with 0.2, got 0.5",
        ),
        (
            {"token_aggregation": "token_mean"},
            "token_aggregation: the reference was prepared with 'token_sum', got 'token_mean'",
        ),
    ],
)
def test_a_reference_prepared_otherwise_is_refused(change, message):
    data = batch()
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        reconstruction_losses(data.nll, data.mask, prepared, replace(CONFIG, **change))
    assert str(caught.value) == f"{message}; prepare it again"


def test_weights_and_scale_may_differ_from_the_prepared():
    data = batch()
    prepared = prepare_reference(data.surprisal, data.mask, ReconstructionLossConfig(token_weight_alpha=0.7))
    config = replace(CONFIG, example_inverse_surprisal_epsilon=0.1, inverse_surprisal_token_weight_epsilon=0.1)
    losses = reconstruction_losses(data.nll, data.mask, prepared, config)
    close_to_oracle(losses, expected(data, config))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nll": torch.zeros(5, 6)}, "nll: got shape (5, 6); allowed: (5, 7) as the mask has it"),
        ({"surprisal": torch.zeros(4, 7)}, "surprisal: got shape (4, 7); allowed: (5, 7) as the mask has it"),
        ({"mask": torch.ones(5, 7)}, "mask: got dtype torch.float32; allowed: torch.bool (mask.bool())"),
    ],
)
def test_a_wrong_shape_is_named(arguments, message):
    data = replace(batch(), **arguments)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        reconstruction_losses(data.nll, data.mask, data.surprisal, CONFIG)
    assert str(caught.value) == message


def test_a_reference_of_another_batch_is_refused():
    data = batch()
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)[:3]
    with pytest.raises(ValueError, match=r"reference: got shape \(3, 7\); allowed: \(5, 7\) as the mask has it"):
        reconstruction_losses(data.nll, data.mask, prepared, CONFIG)


def test_a_whole_number_is_taken_as_a_number():
    data, config = batch(), replace(CONFIG, zfree_reference_scale=2, raw_weight=1)
    close_to_oracle(reconstruction_losses(data.nll, data.mask, data.surprisal, config, 2), expected(data, config, 2))


@pytest.mark.parametrize("mean", [0.0, -1.0, float("nan"), float("inf")])
def test_a_normaliser_that_is_not_positive_is_refused(mean):
    data = batch()
    with pytest.raises(ValueError, match=f"example_weight_mean: got {mean}; allowed: a finite number > 0"):
        reconstruction_losses(data.nll, data.mask, data.surprisal, CONFIG, mean)
