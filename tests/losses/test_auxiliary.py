import math

import pytest
import torch
from torch.distributions import Normal

from losses import auxiliary_losses, code_usage, dip_vae_i, total_correlation
from losses.auxiliary import CategoricalPosterior, GaussianPosterior

GENERATOR = torch.Generator().manual_seed(0)
MU, LOGVAR, NOISE = torch.randn(3, 5, 3, generator=GENERATOR, dtype=torch.float64)
POSTERIOR = GaussianPosterior(MU, LOGVAR, MU + NOISE * (LOGVAR / 2).exp())
CODES = CategoricalPosterior(2 * torch.randn(5, 2, 4, generator=GENERATOR, dtype=torch.float64))
PRESENT = torch.tensor([True, True, False, True, True])
ALL = torch.ones(5, dtype=torch.bool)


def total_correlation_by_loops(posterior, size):
    """log q(z_b) and log q(z_bj) by minibatch-weighted sampling, one density at a time."""
    batch, dimensions = posterior.z.shape
    total = 0.0
    for b in range(batch):
        logs = [
            [
                Normal(posterior.mu[c, j], (posterior.logvar[c, j] / 2).exp()).log_prob(posterior.z[b, j]).item()
                for j in range(dimensions)
            ]
            for c in range(batch)
        ]
        joint = math.log(math.fsum(math.exp(math.fsum(row)) for row in logs) / (size * batch))
        marginals = [math.log(math.fsum(math.exp(row[j]) for row in logs) / (size * batch)) for j in range(dimensions)]
        total += joint - math.fsum(marginals)
    return total / batch


def test_total_correlation_equals_loops():
    expected = total_correlation_by_loops(POSTERIOR, 100)
    assert pytest.approx(expected) == total_correlation(POSTERIOR, ALL, 100).item()


def test_total_correlation_of_one_dimension_is_zero():
    one = GaussianPosterior(*(table[:, :1] for table in POSTERIOR))
    assert pytest.approx(0.0, abs=1e-12) == total_correlation(one, ALL, 100).item()


def test_total_correlation_is_finite_far_from_every_mean():
    mu = torch.tensor([[0.0, 0.0], [100.0, -100.0]])
    leaves = [mu.clone().requires_grad_(), torch.full((2, 2), -20.0, requires_grad=True)]
    value = total_correlation(GaussianPosterior(*leaves, mu + 50), torch.tensor([True, True]), 10)
    value.backward()
    assert value.isfinite()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)


def test_dip_vae_i_equals_loops():
    rows = MU.tolist()
    means = [math.fsum(row[j] for row in rows) / 5 for j in range(3)]
    expected = 0.0
    for i in range(3):
        for j in range(3):
            covariance = math.fsum((row[i] - means[i]) * (row[j] - means[j]) for row in rows) / 5
            expected += covariance**2 if i != j else 10 * (covariance - 1) ** 2
    assert pytest.approx(expected) == dip_vae_i(POSTERIOR, ALL, 100).item()


def test_dip_vae_i_of_an_identity_covariance_is_zero():
    mu = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert dip_vae_i(GaussianPosterior(mu, mu, mu), torch.ones(4, dtype=torch.bool), 4).item() == 0.0


def test_code_usage_equals_loops():
    probabilities = [[CODES.logits[b, g].softmax(-1).tolist() for b in range(5)] for g in range(2)]
    expected = 0.0
    for group in probabilities:
        usage = [math.fsum(row[k] for row in group) / 5 for k in range(4)]
        expected += math.log(4) + math.fsum(p * math.log(p) for p in usage)
    assert pytest.approx(expected) == code_usage(CODES, ALL, 100).item()


def test_code_usage_at_its_ends():
    """0 when all codes are used evenly over the batch, log K when one is used; finite slope at a code never used."""
    even = CategoricalPosterior(1e4 * torch.eye(3).unsqueeze(1))
    one = CategoricalPosterior((1e4 * torch.eye(3)[:1]).expand(3, 3).unsqueeze(1).clone().requires_grad_())
    present = torch.ones(3, dtype=torch.bool)
    assert pytest.approx(0.0, abs=1e-6) == code_usage(even, present, 3).item()
    value = code_usage(one, present, 3)
    value.backward()
    assert pytest.approx(math.log(3)) == value.item()
    assert one.logits.grad.isfinite().all()


@pytest.mark.parametrize("present", [torch.ones(4, dtype=torch.bool), torch.ones(5)])
def test_present_is_checked(present):
    with pytest.raises(ValueError, match=r"present: got torch\.\w+ \(\d,\); allowed: torch\.bool \(5,\)"):
        auxiliary_losses(POSTERIOR, present, 100)
