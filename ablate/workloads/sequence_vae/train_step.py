"""The objectives of all trials of a pack on one batch of each, and their parts.

A dimension [K] in front of everything is that of the trials. A trial's numbers depend on its own part alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from ablate.workloads.sequence_vae.batched_layers import Linear
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
    linear_masked_token_nll,
    linear_nll,
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
class Streams:
    """The random streams that a trial's step draws from; dropout is None where the model has none."""

    latent: Generator
    dropout: Generator | None


@dataclass(frozen=True)
class MemberStep:
    """What is a trial's own in a step; `step`, counted from 0, sets beta and the temperature."""

    objective: Objective
    streams: Streams
    step: int


@dataclass(frozen=True)
class Batch:
    """Examples of one step.

    Attributes:
        tokens: [K, B, T] int64.
        mask: [K, B, L], true where there is a target.
        weights: [K, B, L], N W of these examples, as TokenWeights has it.
    """

    tokens: Tensor
    mask: Tensor
    weights: Tensor

    def trimmed(self) -> Batch:
        """The positions alone that some example has."""
        positions = int(self.mask.sum(-1).max())
        return Batch(self.tokens[..., : positions + 1], self.mask[..., :positions], self.weights[..., :positions])


@dataclass(frozen=True)
class StepLosses:
    """What a step's forward pass gives.

    Attributes:
        objectives: [K], J of each trial; carries gradients.
        nll: [K, B, L]; kl: [K, B, J]; parameters, of q(z|x): [K, B, P]; z: [K, B, Z].
    """

    objectives: Tensor
    nll: Tensor
    kl: Tensor
    parameters: Tensor
    z: Tensor


def pack_losses(model: SequenceVAE, batch: Batch, members: Sequence[MemberStep]) -> StepLosses:
    """The objective of each trial on its own batch.

    Args:
        model: of all K trials, its parameters [K, ...].
    Source: docs/loss_stack.md, section 5.
    """
    tokens, mask = batch.tokens, batch.mask
    dropout = [member.streams.dropout for member in members if member.streams.dropout is not None] or None
    parameters = model.encode(tokens, real_tokens(mask), dropout)
    noise = torch.stack([model.latent.noise(tokens.shape[1], member.streams.latent) for member in members])
    temperature = parameters.new_tensor(
        [temperature_at(member.objective.temperature, member.step) for member in members]
    )
    straight_through = members[0].objective.straight_through
    z = model.latent.relaxed(
        parameters, noise.to(parameters), temperature.view(-1, 1, 1, 1), straight_through=straight_through
    )
    states = model.decoder_states(tokens[..., :-1], mask, z, dropout)
    nll, reconstruction = _reconstruction(model.decoder.output, states, batch)

    kl = model.latent.kl(parameters.flatten(0, 1)).view(*tokens.shape[:2], -1)
    beta = parameters.new_tensor([beta_at(member.objective.beta, member.step) for member in members])
    rates = [free_bits(*own) for own in zip(kl, (member.objective.free_bits for member in members), mask, strict=True)]
    objectives = reconstruction + beta * torch.stack(rates)
    losses = StepLosses(objectives, nll, kl, parameters, z)
    if any(weight for member in members for weight in member.objective.auxiliary.values()):
        objectives = objectives + torch.stack(list(_weighted_auxiliaries(model, batch, members, losses)))
    return StepLosses(objectives, nll, kl, parameters, z)


def _reconstruction(output: Linear, states: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The NLL x [K, B, L] of each target, and J_recon [K].

    The token weights are known beforehand, so that many logits need not be kept: linear_masked_token_nll.
    """
    targets, mask = batch.tokens[..., 1:], batch.mask
    weights = batch.weights / mask.any(-1).sum(-1).clamp(min=1).view(-1, 1, 1)
    if mask[0].numel() * output.out_features < linear_nll.FEWEST_LOGITS:
        nll = masked_token_nll_per_position(output(states), targets, mask)
        return nll, (weights * nll).sum((1, 2))
    scored = [
        linear_masked_token_nll(state, matrix, target, active, weight, bias=bias)
        for state, matrix, bias, target, active, weight in zip(
            states, output.weight, output.bias, targets, mask, weights, strict=True
        )
    ]
    return torch.stack([own.nll for own in scored]), torch.stack([own.objective for own in scored])


def _weighted_auxiliaries(
    model: SequenceVAE, batch: Batch, members: Sequence[MemberStep], losses: StepLosses
) -> Iterator[Tensor]:
    """sum_a mu_a L_a of each trial."""
    for place, member in enumerate(members):
        total = losses.objectives.new_zeros(())
        if any(member.objective.auxiliary.values()):
            found = _auxiliaries(model, batch, member, losses, place)
            for name, weight in member.objective.auxiliary.items():
                if weight:
                    total = total + weight * found[name]
        yield total


def _auxiliaries(
    model: SequenceVAE, batch: Batch, member: MemberStep, losses: StepLosses, place: int
) -> dict[str, Tensor]:
    posterior = model.latent.posterior(losses.parameters[place], losses.z[place])
    return auxiliary_losses(posterior, batch.mask[place].any(-1), member.objective.training_size)


@torch.no_grad()
def parts_of(
    model: SequenceVAE, batch: Batch, member: MemberStep, losses: StepLosses, place: int, reference: PreparedReference
) -> dict[str, float]:
    """The parts of one trial's objective, and the diagnostics, by metric name.

    Args:
        place: the trial's, of K.
        reference: of its batch, before it is trimmed.
    """
    mask, objective = batch.mask[place], member.objective
    reference = replace(reference, weights=reference.weights[..., : mask.shape[-1]])
    stack = reconstruction_losses(
        losses.nll[place], mask, reference, objective.reconstruction, objective.example_weight_mean
    )
    parts = {
        "objective": losses.objectives[place],
        "kl": mean_over_examples(losses.kl[place].sum(-1), mask),
        **stack.terms,
        **stack.diagnostics,
        **_auxiliaries(model, batch, member, losses, place),
    }
    return {name: part.item() for name, part in parts.items()}
