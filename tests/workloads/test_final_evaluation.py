"""I(x; z) and the KL of the aggregated posterior, on posteriors with known answers."""

import math

import pytest
import torch
from torch.distributions import Categorical, Normal

from ablate.workloads.sequence_vae import final_evaluation
from ablate.workloads.sequence_vae.final_evaluation import posterior_information
from ablate.workloads.sequence_vae.latent import ContinuousLatent, DiscreteLatent

CONTINUOUS, DISCRETE = ContinuousLatent(2), DiscreteLatent(2, 4)


def gaussian(mu, logvar):
    return torch.cat([mu, torch.full_like(mu, logvar)], dim=1).double()


def noise_of(latent, count):
    return latent.noise(count, torch.Generator().manual_seed(0)).double()


def test_log_densities_are_those_of_torch():
    torch.manual_seed(0)
    mu, logvar, z = torch.randn(5, 2).double(), torch.randn(5, 2).double(), torch.randn(3, 2).double()
    expected = Normal(mu, (0.5 * logvar).exp()).log_prob(z[:, None]).sum(-1)
    torch.testing.assert_close(CONTINUOUS.log_density(torch.cat([mu, logvar], 1), z), expected)

    logits, codes = torch.randn(5, 2, 4).double(), torch.randint(4, (3, 2))
    expected = Categorical(logits=logits).log_prob(codes[:, None]).sum(-1)
    z = torch.nn.functional.one_hot(codes, 4).flatten(1).double()
    torch.testing.assert_close(DISCRETE.log_density(logits.flatten(1), z), expected)


@pytest.mark.parametrize("latent", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])
def test_a_collapsed_posterior_tells_nothing(latent):
    parameters = torch.zeros(50, latent.parameters).double()
    assert posterior_information(latent, parameters, noise_of(latent, 50)) == pytest.approx((0, 0), abs=1e-12)


def test_posteriors_far_apart_tell_which_example_it_is():
    parameters = gaussian(10 * torch.arange(40.0)[:, None].expand(40, 2), -4.0)
    information, marginal = posterior_information(CONTINUOUS, parameters, noise_of(CONTINUOUS, 40))
    assert information == pytest.approx(math.log(40))
    assert information + marginal == pytest.approx(float(CONTINUOUS.kl(parameters).sum(-1).mean()))


def test_certain_codes_that_are_used_evenly_match_the_prior():
    codes = torch.cartesian_prod(torch.arange(4), torch.arange(4)).repeat(3, 1)
    parameters = 60.0 * torch.nn.functional.one_hot(codes, 4).flatten(1).double()
    information, marginal = posterior_information(DISCRETE, parameters, noise_of(DISCRETE, 48))
    assert (information, marginal) == pytest.approx((math.log(16), 0), abs=1e-9)


def test_a_posterior_whose_mixture_is_the_prior_has_only_information():
    # mu ~ N(0, 1 - s2) and sigma^2 = s2 make q(z) standard normal: I = -1/2 log s2 a dimension
    generator = torch.Generator().manual_seed(1)
    mu = math.sqrt(0.75) * torch.randn(4000, 2, generator=generator)
    information, marginal = posterior_information(CONTINUOUS, gaussian(mu, math.log(0.25)), noise_of(CONTINUOUS, 4000))
    assert information == pytest.approx(-math.log(0.25), abs=0.05)
    assert marginal == pytest.approx(0, abs=0.08)


def test_parts_in_memory_change_nothing(monkeypatch):
    parameters = gaussian(torch.randn(30, 2, generator=torch.Generator().manual_seed(2)), -1.0)
    whole = posterior_information(CONTINUOUS, parameters, noise_of(CONTINUOUS, 30))
    monkeypatch.setattr(final_evaluation, "ROWS_AT_ONCE", 7)
    assert posterior_information(CONTINUOUS, parameters, noise_of(CONTINUOUS, 30)) == pytest.approx(whole)
