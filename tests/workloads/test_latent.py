"""Both latent variables against torch.distributions and closed forms."""

import math

import pytest
import torch
from torch import Generator
from torch.distributions import Independent, Normal, OneHotCategorical, kl_divergence

from ablate.workloads.sequence_vae.keyed_noise import keyed_noise
from ablate.workloads.sequence_vae.latent import ContinuousLatent, DiscreteLatent

CONTINUOUS, DISCRETE = ContinuousLatent(3), DiscreteLatent(2, 4)


def parameters(latent, batch=5, seed=0):
    return torch.randn(batch, latent.parameters, generator=Generator().manual_seed(seed))


def distribution(latent, given):
    """q(z|x) and p(z) as torch.distributions has them."""
    if latent is CONTINUOUS:
        mu, logvar = given[:, :3], given[:, 3:]
        q, p = Normal(mu, (0.5 * logvar).exp()), Normal(torch.zeros_like(mu), torch.ones_like(mu))
    else:
        logits = given.view(-1, 2, 4)
        q, p = OneHotCategorical(logits=logits), OneHotCategorical(logits=torch.zeros_like(logits))
    return Independent(q, 1), Independent(p, 1)


@pytest.mark.parametrize("latent", [CONTINUOUS, DISCRETE])
def test_kl_and_importance_weights(latent):
    given = parameters(latent)
    q, p = distribution(latent, given)
    torch.testing.assert_close(latent.kl(given).sum(-1), kl_divergence(q, p))
    z = latent.draw(given, latent.noise(5, Generator().manual_seed(1)))
    shaped = z if latent is CONTINUOUS else z.view(-1, 2, 4)
    torch.testing.assert_close(latent.log_weight(given, z), p.log_prob(shaped) - q.log_prob(shaped))


def test_kl_sums_over_dimensions():
    assert ContinuousLatent(8).kl(torch.tensor([[1.0] * 8 + [0.0] * 8])).sum().item() == 4.0


@pytest.mark.parametrize("latent", [CONTINUOUS, DISCRETE])
@pytest.mark.parametrize("keyed", [False, True])
def test_draws_follow_the_posterior(latent, keyed):
    count = 20_000
    given = parameters(latent, batch=1).expand(count, -1)
    if keyed:
        noise = keyed_noise(7, range(count), (latent.size,), latent.noise_kind)
    else:
        noise = latent.noise(count, Generator().manual_seed(7))
    z = latent.draw(given, noise)
    q, _ = distribution(latent, given[:1])
    mean, variance = q.base_dist.mean.flatten(), q.base_dist.variance.flatten()
    error = (z.mean(0) - mean).abs()
    assert (error < 5 * (variance / count).sqrt()).all()
    torch.testing.assert_close(z.var(0), variance, rtol=0.1, atol=0.01)


def test_the_relaxed_draw_is_the_exact_one_in_the_limit_and_straight_through():
    given = parameters(DISCRETE).requires_grad_()
    noise = DISCRETE.noise(5, Generator().manual_seed(1))
    exact = DISCRETE.draw(given, noise)
    assert (exact.view(5, 2, 4).sum(-1) == 1).all()
    torch.testing.assert_close(DISCRETE.relaxed(given, noise, 1e-4, straight_through=False), exact)
    hard = DISCRETE.relaxed(given, noise, 1.0, straight_through=True)
    soft = DISCRETE.relaxed(given, noise, 1.0, straight_through=False)
    torch.testing.assert_close(hard, exact)
    weights = torch.randn(5, 8, generator=Generator().manual_seed(2))
    (through,) = torch.autograd.grad((hard * weights).sum(), given, retain_graph=True)
    (smooth,) = torch.autograd.grad((soft * weights).sum(), given)
    torch.testing.assert_close(through, smooth)
    assert smooth.abs().sum() > 0


def test_active_units():
    mu = torch.zeros(4, 3)
    mu[:, 1] = torch.tensor([1.0, -1.0, 1.0, -1.0]) * 0.2  # variance 0.04
    mu[:, 2] = 5.0  # far from 0, but it says nothing
    assert CONTINUOUS.active_units(torch.cat([mu, torch.zeros(4, 3)], 1)) == 1
    logits = torch.zeros(4, 2, 4)
    logits[:, 0, 2] = 50.0  # certain, but the same for all
    assert DISCRETE.active_units(logits.view(4, 8)) == 0
    logits[0, 1, 3] = logits[1, 1, 0] = 50.0
    assert DISCRETE.active_units(logits.view(4, 8)) == 1


def test_noise_belongs_to_the_row():
    whole = keyed_noise(3, range(6), (2, 4), "normal")
    torch.testing.assert_close(keyed_noise(3, [4, 1], (2, 4), "normal"), whole[[4, 1]], rtol=0, atol=0)
    assert not torch.equal(keyed_noise(4, range(6), (2, 4), "normal"), whole)
    assert len(whole.unique()) == whole.numel()
    assert math.isclose(keyed_noise(0, range(4000), (), "gumbel").mean().item(), 0.5772, abs_tol=0.07)
