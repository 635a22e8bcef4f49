"""The eight identities of the loss stack, as properties in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from losses import (
    ReconstructionLossConfig,
    example_weight_mean,
    prepare_reference,
    reconstruction_losses,
    term_weight_matrices,
    zfree_reference_scale,
)
from losses.reconstruction import TERMS
from tests.losses.batches import Batch, values

RAW, NORMALIZED, EXAMPLE, SHARE, CORRECTED, INVERSE = TERMS

law = settings(derandomize=True, deadline=None, max_examples=60)
surprisals = st.one_of(st.just(0.0), st.floats(1e-6, 30), st.floats(0.1, 5))
weights = st.floats(0, 3)
epsilons = st.floats(1e-3, 10)
seeds = st.integers(0, 2**31)


@st.composite
def batches(draw, *, same_surprisal: bool = False, full: bool = False) -> Batch:
    examples, length = draw(st.integers(1, 4)), draw(st.integers(1, 5))

    def table(elements):
        row = st.lists(elements, min_size=length, max_size=length)
        return draw(st.lists(row, min_size=examples, max_size=examples))

    mask = torch.tensor(table(st.just(True) if full else st.booleans()))
    surprisal = torch.tensor(table(surprisals), dtype=torch.float64)
    if same_surprisal:
        surprisal = torch.full_like(surprisal, draw(st.floats(1e-3, 30)))
    return Batch(torch.tensor(table(st.floats(0, 20)), dtype=torch.float64), mask, surprisal)


@st.composite
def configs(draw, **fixed) -> ReconstructionLossConfig:
    numbers = {term.weight_field: draw(weights) for term in TERMS.values()}
    return ReconstructionLossConfig(
        **{
            **numbers,
            "token_weight_alpha": draw(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 4))),
            "example_inverse_surprisal_epsilon": draw(epsilons),
            "inverse_surprisal_token_weight_epsilon": draw(epsilons),
            "zfree_reference_scale": draw(st.floats(0.1, 20)),
            "token_aggregation": draw(st.sampled_from(["token_sum", "token_mean"])),
            **fixed,
        }
    )


def losses_of(batch: Batch, config: ReconstructionLossConfig, mean: float | None = None):
    return reconstruction_losses(batch.nll, batch.mask, batch.surprisal, config, mean)


def terms_of(batch: Batch, config: ReconstructionLossConfig) -> dict[str, float]:
    return values(losses_of(batch, config).terms)


def close(value: object, rel: float = 1e-9):
    return pytest.approx(value, rel=rel, abs=1e-9)


def rearranged(batch: Batch, change) -> Batch:
    return Batch(change(batch.nll), change(batch.mask), change(batch.surprisal))


@law
@given(batches(), configs())
def test_1_a_model_that_scores_as_the_reference_does_is_calibrated(batch, config):
    prepared = prepare_reference(batch.surprisal, batch.mask, config)
    assume(batch.mask.any())
    scale = zfree_reference_scale(prepared)
    terms = terms_of(replace(batch, nll=batch.surprisal), config)
    for name in (NORMALIZED, CORRECTED, INVERSE):
        assert close(scale / config.zfree_reference_scale) == terms[name]
    assume(scale > 0)
    own_scale = terms_of(replace(batch, nll=batch.surprisal), replace(config, zfree_reference_scale=scale))
    assert close([1.0] * 3) == [own_scale[name] for name in (NORMALIZED, CORRECTED, INVERSE)]


@law
@given(batches(), configs(token_weight_alpha=0.0))
def test_2_without_an_exponent_the_share_is_uniform(batch, config):
    losses = losses_of(batch, config)
    terms = values(losses.terms)
    assert close(terms[RAW]) == terms[SHARE]
    assert close(terms[NORMALIZED]) == terms[CORRECTED]
    assert close(float(batch.mask.any())) == losses.diagnostics["token_concentration_factor"].item()


@law
@given(
    batches(),
    configs(example_inverse_surprisal_epsilon=1e12, inverse_surprisal_token_weight_epsilon=1e12),
)
def test_3_a_large_epsilon_takes_the_inverse_weights_to_uniform(batch, config):
    losses = losses_of(batch, config)
    terms = values(losses.terms)
    assert close(terms[RAW]) == terms[EXAMPLE]
    assert close(terms[NORMALIZED]) == terms[INVERSE]
    assert close(float(batch.mask.any())) == losses.diagnostics["inverse_token_base_scale_factor"].item()


@law
@given(batches(same_surprisal=True), configs())
def test_4_equal_surprisals_weigh_tokens_the_same(batch, config):
    terms = terms_of(batch, config)
    assert close(terms[RAW]) == terms[SHARE]
    assert close([terms[NORMALIZED]] * 2) == [terms[CORRECTED], terms[INVERSE]]
    lengths = set(batch.mask.sum(-1).tolist()) - {0}
    if config.token_aggregation == "token_mean" or len(lengths) == 1:
        assert close(terms[RAW]) == terms[EXAMPLE]


@law
@given(batches(), configs(), seeds)
def test_5_order_and_padding_change_nothing(batch, config, seed):
    generator = torch.Generator().manual_seed(seed)
    before = losses_of(batch, config)
    examples = torch.randperm(len(batch.mask), generator=generator)
    positions = torch.randperm(batch.mask.shape[1], generator=generator)

    def pad(table: Tensor) -> Tensor:
        return torch.nn.functional.pad(table, (0, 3), value=False if table.dtype == torch.bool else torch.nan)

    for change in (lambda table: table[examples], lambda table: table[:, positions], pad):
        after = losses_of(rearranged(batch, change), config)
        assert close(values(before.terms)) == values(after.terms)
        assert close(values(before.diagnostics)) == values(after.diagnostics)
        assert close(before.objective.item()) == after.objective.item()


@law
@given(batches(), configs())
def test_6_repeating_positions(batch, config):
    twice = rearranged(batch, lambda table: table.repeat(1, 2))
    by_sum = config.token_aggregation == "token_sum"
    before = losses_of(batch, config)
    epsilon = config.example_inverse_surprisal_epsilon * (2 if by_sum else 1)
    after = losses_of(twice, replace(config, example_inverse_surprisal_epsilon=epsilon))
    factor = 2 if by_sum else 1
    assert close({name: factor * value for name, value in values(before.terms).items()}) == values(after.terms)
    for family in ("token_weighting", "inverse_token_weighting"):
        name = f"{family}/effective_token_count_mean"
        assert close(2 * before.diagnostics[name].item()) == after.diagnostics[name].item()


@law
@given(batches(), configs(), st.data())
def test_7_the_objective_is_one_contraction_and_splits_exactly(batch, config, data):
    losses = losses_of(batch, config)
    assert close((losses.effective_token_weights * batch.nll).sum().item()) == losses.objective.item()
    summed = sum(getattr(config, term.weight_field) * losses.terms[name] for name, term in TERMS.items())
    assert close(summed.item()) == losses.objective.item()

    assume(batch.mask.any())
    mean = example_weight_mean(prepare_reference(batch.surprisal, batch.mask, config), config)
    parts = data.draw(st.lists(st.integers(0, 2), min_size=len(batch.mask), max_size=len(batch.mask)))
    whole = losses_of(batch, config, mean)
    assert close(losses.objective.item()) == whole.objective.item()
    objective, weights, present = 0.0, torch.zeros_like(batch.nll), batch.mask.any(-1).sum().item()
    for part in set(parts):
        index = torch.tensor([b for b, other in enumerate(parts) if other == part])
        micro = rearranged(batch, lambda table, index=index: table[index])
        share = micro.mask.any(-1).sum().item() / present
        micro_losses = losses_of(micro, config, mean)
        objective += share * micro_losses.objective.item()
        weights[index] += share * micro_losses.effective_token_weights
    assert close(whole.objective.item()) == objective
    torch.testing.assert_close(weights, whole.effective_token_weights)


@law
@given(batches(), configs())
def test_8_gradients(batch, config):
    nll = batch.nll.clone().requires_grad_()

    def outputs(nll: Tensor):
        losses = reconstruction_losses(nll, batch.mask, batch.surprisal, config)
        return (losses.objective, *losses.terms.values())

    assert torch.autograd.gradcheck(outputs, (nll,))
    losses = reconstruction_losses(nll, batch.mask, batch.surprisal, config)
    (gradient,) = torch.autograd.grad(losses.objective, nll, retain_graph=True)
    torch.testing.assert_close(gradient, losses.effective_token_weights)
    prepared = prepare_reference(batch.surprisal, batch.mask, config)
    present = max(1, batch.mask.any(-1).sum().item())
    for name, matrix in term_weight_matrices(prepared, config).items():
        (gradient,) = torch.autograd.grad(losses.terms[name], nll, retain_graph=True)
        torch.testing.assert_close(gradient, matrix / present)
