"""One step of training: the objective of a batch, its gradient, the optimiser."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor
from torch.nn.utils import clip_grad_norm_, get_total_norm
from torch.optim import AdamW

from ablate.workloads.sequence_vae.config import Training
from ablate.workloads.sequence_vae.evaluation import real_tokens
from ablate.workloads.sequence_vae.model import SequenceVAE
from losses import (
    BetaSchedule,
    PreparedReference,
    ReconstructionLossConfig,
    TemperatureSchedule,
    auxiliary_losses,
    beta_at,
    free_bits,
    masked_token_nll_per_position,
    mean_over_examples,
    reconstruction_losses,
    temperature_at,
)


@dataclass(frozen=True)
class Objective:
    """J = J_recon + beta L_KL + sum_a mu_a L_a, with every number that a batch does not decide.

    Attributes:
        example_weight_mean: <(S + eps)^-1> over the training split.
        auxiliary: mu_a of the terms that the latent type has, by name.
        training_size: N.
        mean_weight: mean effective token weight over the training split.
    """

    reconstruction: ReconstructionLossConfig
    example_weight_mean: float
    beta: BetaSchedule
    free_bits: float
    auxiliary: dict[str, float]
    temperature: TemperatureSchedule
    straight_through: bool
    training_size: int
    mean_weight: float


@dataclass(frozen=True)
class Batch:
    """Examples of one step: tokens [B, T] int64, the mask [B, L] of their targets, and what the reference says."""

    tokens: Tensor
    mask: Tensor
    reference: PreparedReference

    def trimmed(self, positions: int) -> Batch:
        """The first positions alone, where no example has more."""
        reference = replace(self.reference, weights=self.reference.weights[..., :positions])
        return Batch(self.tokens[:, : positions + 1], self.mask[:, :positions], reference)


@dataclass(frozen=True)
class Streams:
    """The random streams that a step draws from; dropout is None where the model has none."""

    latent: Generator
    dropout: Generator | None


def batch_losses(
    model: SequenceVAE, batch: Batch, objective: Objective, streams: Streams, step: int, *, measure: bool = True
) -> tuple[Tensor, dict[str, Tensor]]:
    """The objective of a batch, and its parts by metric name.

    Args:
        step: counted from 0; it sets beta and the temperature.
        measure: whether the parts are wanted; auxiliary terms of weight 0 are left out otherwise.
    Source: docs/loss_stack.md, section 5.
    """
    tokens, mask = batch.tokens, batch.mask
    parameters = model.encode(tokens, real_tokens(mask), streams.dropout)
    noise = model.latent.noise(len(tokens), streams.latent).to(tokens.device)
    temperature = temperature_at(objective.temperature, step)
    z = model.latent.relaxed(parameters, noise, temperature, straight_through=objective.straight_through)
    logits = model.decode(tokens[:, :-1], mask, z, streams.dropout)
    nll = masked_token_nll_per_position(logits, tokens[:, 1:], mask)

    stack = reconstruction_losses(
        nll, mask, batch.reference, objective.reconstruction, example_weight_mean=objective.example_weight_mean
    )
    kl = model.latent.kl(parameters)
    total = stack.objective + beta_at(objective.beta, step) * free_bits(kl, objective.free_bits, mask)
    auxiliary: dict[str, Tensor] = {}
    if measure or any(objective.auxiliary.values()):
        auxiliary = auxiliary_losses(model.latent.posterior(parameters, z), mask.any(-1), objective.training_size)
    for name, weight in objective.auxiliary.items():
        if weight:
            total = total + weight * auxiliary[name]
    parts = {
        "objective": total,
        "kl": mean_over_examples(kl.sum(-1), mask),
        **stack.terms,
        **stack.diagnostics,
        **auxiliary,
    }
    return total, parts


def take_step(model: SequenceVAE, optimiser: AdamW, loss: Tensor, clip_norm: float | None) -> Tensor:
    """Follow the gradient of the loss; returns its norm before clipping."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    if clip_norm is None:
        norm = get_total_norm(p.grad for p in model.parameters() if p.grad is not None)
    else:
        norm = clip_grad_norm_(model.parameters(), clip_norm)
    optimiser.step()
    return torch.as_tensor(norm)


def build_optimiser(model: SequenceVAE, training: Training) -> AdamW:
    """Adam with decoupled weight decay, fused into one call."""
    return AdamW(model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, fused=True)
