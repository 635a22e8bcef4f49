"""Float32 against float64 at the ends of the stated range: n_b to 8192, surprisals to 1e4, logits to 1e4."""

from dataclasses import replace

import pytest
import torch

from losses import masked_token_nll_per_position, reconstruction_losses
from losses.reconstruction import TERMS
from tests.losses.batches import CONFIG, values

SURPRISALS = {
    "all zero": lambda s: torch.zeros_like(s),
    "zeros and largest": lambda s: 1e4 * (s > 0.5),
    "largest": lambda s: torch.full_like(s, 1e4),
    "one of many": lambda s: 1e4 * (torch.arange(s.shape[1]) == 0) + 0 * s,
    "twelve decades": lambda s: 10 ** (12 * s - 8),
    "ten million nats": lambda s: torch.full_like(s, 1e7),
    "close together": lambda s: 1000 + s,
    "subnormal": lambda s: torch.full_like(s, 1e-39),
    "two subnormal": lambda s: 1e-39 * ((torch.arange(s.shape[1]) < 2) + 2.0 * (torch.arange(s.shape[1]) < 1)) + 0 * s,
    "next to nothing": lambda s: 1e-37 * (1 + 8 * s),
    "two of next to nothing": lambda s: 1e-36 * (torch.arange(s.shape[1]) < 2) + 0 * s,
}


def within(got: float, exact: float) -> bool:
    return abs(got - exact) <= max(1e-5 * abs(exact), 1e-6)


@pytest.mark.parametrize("mode", ["token_sum", "token_mean"])
@pytest.mark.parametrize("length", [1, 63, 8192])
@pytest.mark.parametrize("alpha", [0.0, 0.01, 1.0, 100.0])
@pytest.mark.parametrize("kind", SURPRISALS)
def test_float32_equals_float64(mode, length, alpha, kind):
    generator = torch.Generator().manual_seed(length)
    nll = (20 * torch.rand(3, length, generator=generator)).square()
    surprisal = SURPRISALS[kind](torch.rand(3, length, generator=generator))
    mask = torch.ones(3, length, dtype=torch.bool)
    mask[1, length // 2 + 1 :] = False
    config = replace(CONFIG, token_aggregation=mode, token_weight_alpha=alpha, zfree_reference_scale=50.0)
    exact = reconstruction_losses(nll.double(), mask, surprisal.double(), config)
    got = reconstruction_losses(nll, mask, surprisal, config)
    for name, value in {**values(exact.terms), **values(exact.diagnostics)}.items():
        number = {**got.terms, **got.diagnostics}[name].item()
        assert within(number, value), (name, number, value)
    assert within(got.objective.item(), exact.objective.item())
    scale = torch.maximum(1e-5 * exact.effective_token_weights.abs(), torch.tensor(1e-6))
    assert ((got.effective_token_weights - exact.effective_token_weights).abs() <= scale).all()
    assert exact.objective.isfinite()


@pytest.mark.parametrize("epsilon", [5e-324, 1e-12, 1e30, 1e300])
@pytest.mark.parametrize("kind", SURPRISALS)
def test_no_epsilon_makes_a_value_infinite(epsilon, kind):
    generator = torch.Generator().manual_seed(0)
    nll, share = torch.rand(2, 4, 50, generator=generator)
    config = replace(CONFIG, example_inverse_surprisal_epsilon=epsilon, inverse_surprisal_token_weight_epsilon=epsilon)
    leaf = nll.clone().requires_grad_()
    losses = reconstruction_losses(leaf, torch.ones(4, 50, dtype=torch.bool), SURPRISALS[kind](share), config)
    losses.objective.backward()
    every = [*losses.terms.values(), *losses.diagnostics.values(), losses.objective]
    assert all(value.isfinite() for value in every)
    assert leaf.grad.isfinite().all()
    if epsilon >= 1e30:
        raw, normalized, example, *_, inverse = values(losses.terms).values()
        assert pytest.approx([raw, normalized], rel=1e-5) == [example, inverse]


@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0, 1e4])
def test_logits_of_any_size_give_finite_values_and_gradients(scale):
    generator = torch.Generator().manual_seed(0)
    logits = (scale * (2 * torch.rand(4, 16, 50, generator=generator) - 1)).requires_grad_()
    targets = torch.randint(50, (4, 16), generator=generator)
    mask = torch.ones(4, 16, dtype=torch.bool)
    nll = masked_token_nll_per_position(logits, targets, mask)
    losses = reconstruction_losses(nll, mask, nll.detach(), CONFIG)
    sum(losses.terms[name] for name in TERMS).backward()
    assert logits.grad.isfinite().all()
    exact = masked_token_nll_per_position(logits.detach().double(), targets, mask)
    limit = torch.maximum(1e-5 * exact.abs(), torch.tensor(1e-6))
    assert ((nll - exact).abs() <= limit).all()
