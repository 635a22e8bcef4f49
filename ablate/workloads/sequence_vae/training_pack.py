"""One step of training for all trials of a pack: the batch, the gradients, clipping, the optimiser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.workloads.sequence_vae.model_pack import ModelPack
from ablate.workloads.sequence_vae.train_step import Batch, MemberStep, StepLosses, pack_losses
from ablate.workloads.sequence_vae.trial_setup import Setup

TINY = 1e-6
"""Added to a norm before it divides, as torch.nn.utils.clip_grad_norm_ does."""


@dataclass(frozen=True)
class TakenStep:
    """What came of a step.

    Attributes:
        members, batch, losses: of all trials.
        objectives: J of each trial.
        norms: of the gradient of each, before clipping.
    """

    members: list[MemberStep]
    batch: Batch
    losses: StepLosses
    objectives: list[float]
    norms: list[float]


def train_together(pack: ModelPack, setups: Sequence[Setup], steps: Sequence[int]) -> TakenStep:
    """Take a step of each trial; one whose objective is not finite stays where it is.

    Args:
        steps: of each, how many it has taken.
    """
    batch = gather(setups, steps)
    members = [MemberStep(own.objective, own.streams, step) for own, step in zip(setups, steps, strict=True)]
    losses = pack_losses(pack.batched, batch, members)
    clip_norms = [setup.settings.training.clip_norm for setup in setups]
    return TakenStep(members, batch, losses, *_follow(pack, losses.objectives, clip_norms))


def gather(setups: Sequence[Setup], steps: Sequence[int]) -> Batch:
    """The examples of each trial's step, from the one table that they share."""
    read = [own.batches(step) for own, step in zip(setups, steps, strict=True)]
    batch = Batch(*(torch.stack(part) for part in zip(*read, strict=True)))
    return batch.trimmed() if setups[0].settings.training.length_buckets > 1 else batch


def _follow(pack: ModelPack, objectives: Tensor, clip_norms: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """Let each model follow the gradient of its objective; one whose objective is not finite stays where it is.

    Args:
        objectives: [K], with gradients.
        clip_norms: the largest norm of each trial's gradient, or None.
    Returns: the objectives, and the norms of the gradients before clipping.
    """
    slopes = torch.autograd.grad(objectives.sum(), pack.parameters, materialize_grads=True)
    gradients = torch.cat([slope.flatten(1) for slope in slopes], dim=1)
    norms = torch.linalg.vector_norm(gradients, dim=1)
    values, measured = torch.stack([objectives.detach(), norms]).tolist()
    for gradient, norm, limit in zip(gradients, measured, clip_norms, strict=True):
        if limit is not None and norm + TINY > limit:
            gradient *= limit / (norm + TINY)
    pack.step([gradient if math.isfinite(value) else None for gradient, value in zip(gradients, values, strict=True)])
    return values, measured
