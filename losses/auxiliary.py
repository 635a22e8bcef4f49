"""Auxiliary terms of the objective: one table, one signature.

They couple the examples of a batch, so a batch's value is not the mean over its micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from losses.nll import at_least_float32, mean_over_examples

LatentType = Literal["continuous", "discrete"]


class GaussianPosterior(NamedTuple):
    """q = N(mu, diag sigma^2) of a batch and the sample drawn from it; each [B, D]."""

    mu: Tensor
    logvar: Tensor
    z: Tensor


class CategoricalPosterior(NamedTuple):
    """q = a product of K-way categoricals of a batch, by its logits [B, G, K]."""

    logits: Tensor


Posterior = GaussianPosterior | CategoricalPosterior


def total_correlation(posterior: GaussianPosterior, present: Tensor, training_size: int) -> Tensor:
    """Total correlation of the aggregated posterior by minibatch-weighted sampling.

    TC = <log q(z_b) - sum_j log q(z_bj)>,
    log q(z_b) = log sum_c q(z_b | x_c) - log(N M), log q(z_bj) = log sum_c q(z_bj | x_c) - log(N M),
    c over the M examples of the batch that have an active position.

    Args:
        posterior: mu, logvar, z, each [B, D].
        present: [B] bool, true where n_b > 0. Others are not read.
        training_size: N.
    Returns: scalar, nats; 0 for a batch without examples.
    Source: docs/loss_stack.md, section 5; Chen et al. 2018, eq. S5.
    """
    mu, logvar, z = (at_least_float32(t).masked_fill(~present.unsqueeze(-1), 0.0) for t in posterior)
    deviation = (z.unsqueeze(1) - mu.unsqueeze(0)).square() * (-logvar).exp().unsqueeze(0)
    density = -0.5 * (deviation + logvar.unsqueeze(0) + math.log(2 * math.pi))  # [b, c, j]
    lowest = torch.finfo(density.dtype).min
    column = present.view(1, -1)
    size = (present.sum().clamp(min=1) * training_size).log()
    joint = density.sum(-1).masked_fill(~column, lowest).logsumexp(1) - size
    marginals = density.masked_fill(~column.unsqueeze(-1), lowest).logsumexp(1) - size
    return mean_over_examples(joint - marginals.sum(-1), present)


def dip_vae_i(posterior: GaussianPosterior, present: Tensor, training_size: int) -> Tensor:
    """DIP-VAE-I: the covariance of the posterior means is drawn to the identity.

    sum_{i != j} Cov(mu)_ij^2 + 10 sum_i (Cov(mu)_ii - 1)^2, Cov over the batch, divided by its size.

    Args:
        posterior: mu [B, D] is read.
        present: [B] bool, true where n_b > 0. Others are not read.
        training_size: not used.
    Returns: scalar; 0 for a batch without examples.
    Source: docs/loss_stack.md, section 5; Kumar et al. 2018, eq. 6.
    """
    del training_size
    mu = at_least_float32(posterior.mu).masked_fill(~present.unsqueeze(-1), 0.0)
    centred = mu - mean_over_examples(mu, present)
    # A matrix product would run in bf16 under autocast.
    covariance = mean_over_examples(centred.unsqueeze(2) * centred.unsqueeze(1), present)
    identity = torch.eye(mu.shape[1], dtype=mu.dtype, device=mu.device)
    penalty = (covariance - identity).square() * (1 + 9 * identity)
    return penalty.sum() * present.any()


def code_usage(posterior: CategoricalPosterior, present: Tensor, training_size: int) -> Tensor:
    """How far the codes of a batch are from being used evenly.

    sum_g (log K - H(<q_bg>)), H in nats.

    Args:
        posterior: logits [B, G, K].
        present: [B] bool, true where n_b > 0. Others are not read.
        training_size: not used.
    Returns: scalar, nats, >= 0; 0 for a batch without examples.
    Source: docs/loss_stack.md, section 5.
    """
    del training_size
    logits = at_least_float32(posterior.logits).masked_fill(~present.view(-1, 1, 1), 0.0)
    usage = mean_over_examples(logits.softmax(-1), present)
    # A code that underflows to 0 has a finite slope this way.
    log_usage = usage.clamp(min=torch.finfo(usage.dtype).tiny).log()
    return (usage * (log_usage + math.log(usage.shape[-1]))).sum()


def auxiliary_losses(posterior: Posterior, present: Tensor, training_size: int) -> dict[str, Tensor]:
    """Every auxiliary term of the posterior's latent type, by name; scalars that carry gradients.

    Args:
        posterior: of the batch.
        present: [B] bool, true where n_b > 0.
        training_size: N, the number of training examples.
    Raises: ValueError if `present` is not [B] bool.
    Source: docs/loss_stack.md, section 5.
    """
    size = posterior[0].shape[0]
    if present.dtype != torch.bool or present.shape != (size,):
        raise ValueError(f"present: got {present.dtype} {tuple(present.shape)}; allowed: torch.bool ({size},)")
    latent: LatentType = "continuous" if isinstance(posterior, GaussianPosterior) else "discrete"
    return {
        name: term.loss(posterior, present, training_size)
        for name, term in AUXILIARY_TERMS.items()
        if term.latent == latent
    }


@dataclass(frozen=True)
class AuxiliaryTerm:
    """An auxiliary term.

    Attributes:
        latent: the latent type that has it.
        loss: (posterior, present, training_size) -> scalar, minimised.
    """

    latent: LatentType
    loss: Callable[..., Tensor]


#: The auxiliary terms by name. To add one: a function above and a line here.
AUXILIARY_TERMS: dict[str, AuxiliaryTerm] = {
    "total_correlation": AuxiliaryTerm("continuous", total_correlation),
    "dip_vae_i": AuxiliaryTerm("continuous", dip_vae_i),
    "code_usage": AuxiliaryTerm("discrete", code_usage),
}
