import math

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from losses import (
    BetaSchedule,
    TemperatureSchedule,
    beta_at,
    categorical_kl,
    categorical_kl_per_group,
    free_bits,
    gaussian_kl,
    gaussian_kl_per_dimension,
    temperature_at,
)

GENERATOR = torch.Generator().manual_seed(0)
MU, LOGVAR = 2 * torch.randn(2, 6, 4, generator=GENERATOR, dtype=torch.float64)
LOGITS = 3 * torch.randn(6, 2, 5, generator=GENERATOR, dtype=torch.float64)
ALL = torch.ones(6, dtype=torch.bool)


def test_gaussian_kl_equals_torch_distributions():
    expected = kl_divergence(Normal(MU, (LOGVAR / 2).exp()), Normal(torch.zeros_like(MU), torch.ones_like(MU)))
    torch.testing.assert_close(gaussian_kl_per_dimension(MU, LOGVAR), expected)
    torch.testing.assert_close(gaussian_kl(MU, LOGVAR), expected.sum(-1))


def test_categorical_kl_equals_torch_distributions():
    expected = kl_divergence(Categorical(logits=LOGITS), Categorical(logits=torch.zeros_like(LOGITS)))
    torch.testing.assert_close(categorical_kl_per_group(LOGITS), expected)
    torch.testing.assert_close(categorical_kl(LOGITS), expected.sum(-1))


def test_the_kl_of_the_prior_is_zero():
    assert torch.equal(gaussian_kl(torch.zeros(3, 4), torch.zeros(3, 4)), torch.zeros(3))
    assert categorical_kl(torch.full((3, 4, 7), 2.5)).abs().max() < 1e-6


def test_a_small_gaussian_kl_is_not_lost_in_float32():
    logvar = torch.tensor([[1e-3]])
    assert pytest.approx(0.5 * (math.expm1(1e-3) - 1e-3), rel=1e-3) == gaussian_kl(torch.zeros(1, 1), logvar).item()


def test_categorical_kl_of_a_certain_code_is_log_k():
    logits = torch.tensor([[[1e4, 0.0, -1e4]]], requires_grad=True)
    kl = categorical_kl(logits)
    kl.sum().backward()
    assert pytest.approx(math.log(3)) == kl.item()
    assert torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_scored_in_float32(dtype):
    mu, logvar, logits = MU.to(dtype), LOGVAR.to(dtype), LOGITS.to(dtype)
    torch.testing.assert_close(gaussian_kl(mu, logvar), gaussian_kl(mu.float(), logvar.float()), rtol=0, atol=0)
    torch.testing.assert_close(categorical_kl(logits), categorical_kl(logits.float()), rtol=0, atol=0)


def test_gradients():
    inputs = [table.clone().requires_grad_() for table in (MU, LOGVAR, LOGITS)]
    assert torch.autograd.gradcheck(gaussian_kl, inputs[:2])
    assert torch.autograd.gradcheck(categorical_kl, inputs[2:])
    # Away from the bend of the maximum.
    assert torch.autograd.gradcheck(
        lambda mu, logvar: free_bits(gaussian_kl_per_dimension(mu, logvar), 1.7, ALL), inputs[:2]
    )


def test_free_bits_clamp_the_batch_mean_not_each_example():
    kl = torch.tensor([[0.0, 3.0], [1.0, 1.0], [torch.nan, torch.nan]], requires_grad=True)
    present = torch.tensor([True, True, False])
    loss = free_bits(kl, 0.6, present)
    loss.backward()
    assert pytest.approx(0.6 + 2.0) == loss.item()
    assert kl.grad.tolist() == [[0.0, 0.5], [0.0, 0.5], [0.0, 0.0]]


def test_no_free_bits_is_the_mean_kl():
    kl = gaussian_kl_per_dimension(MU, LOGVAR)
    torch.testing.assert_close(free_bits(kl, 0.0, ALL), gaussian_kl(MU, LOGVAR).mean())


def test_free_bits_over_many_trials():
    kl = gaussian_kl_per_dimension(MU, LOGVAR)
    several = torch.func.vmap(lambda bits: free_bits(kl, bits, ALL))(torch.tensor([0.0, 0.5, 5.0]))
    expected = [free_bits(kl, bits, ALL).item() for bits in (0.0, 0.5, 5.0)]
    assert pytest.approx(expected) == several.tolist()


@pytest.mark.parametrize("bits", [-0.1, math.nan, math.inf])
def test_wrong_free_bits_are_refused(bits):
    with pytest.raises(ValueError, match=f"lambda_fb: got {bits}; allowed: a finite number >= 0"):
        free_bits(torch.ones(6, 2), bits, ALL)


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"logvar: got shape \(6, 3\); allowed: \(6, 4\) as mu has it"):
        gaussian_kl(MU, LOGVAR[:, :3])
    with pytest.raises(ValueError, match=r"logits: got shape \(6, 5\); allowed: \[B, groups, K\]"):
        categorical_kl(LOGITS[:, 0])


def test_constant_beta():
    assert [beta_at(BetaSchedule(beta=0.3), step) for step in (0, 5, 10**6)] == [0.3] * 3


def test_linear_warmup():
    schedule = BetaSchedule(beta=2.0, schedule="linear_warmup", warmup_steps=4)
    assert [beta_at(schedule, step) for step in range(6)] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.0]


def test_cyclical():
    """A cycle of 8 steps, half of it a ramp; every cycle is like the first."""
    schedule = BetaSchedule(beta=2.0, schedule="cyclical", cycle_steps=8, cycle_ramp=0.5)
    assert [beta_at(schedule, step) for step in range(9)] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 0.0]
    assert [beta_at(schedule, step) for step in range(8)] == [beta_at(schedule, step + 24) for step in range(8)]


def test_temperature():
    schedule = TemperatureSchedule(initial=2.0, minimum=0.5, anneal_rate=0.1)
    assert temperature_at(schedule, 0) == 2.0
    assert pytest.approx(2.0 * math.exp(-0.7)) == temperature_at(schedule, 7)
    assert temperature_at(schedule, 1000) == 0.5
