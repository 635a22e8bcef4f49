"""The parameters of K models of one architecture in one tensor, so that they train as one batched program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from ablate.workloads.sequence_vae.config import Training
from ablate.workloads.sequence_vae.model import SequenceVAE


class ModelPack:
    """K models over one [K, P] tensor of parameters, and their optimiser.

    Attributes:
        models: the K models, each over its own row.
        batched: the K models as one.
        parameters: its parameters, views [K, ...] of the same memory.
    """

    def __init__(
        self, models: Sequence[SequenceVAE], trainings: Sequence[Training], states: Sequence[dict[str, Any]]
    ) -> None:
        """Args:
        models: their parameters move into the pack.
        states: what an optimiser remembers of each; kept up to date in place.
        """
        values = torch.stack([nn.utils.parameters_to_vector(model.parameters()).detach() for model in models])
        self.models = tuple(models)
        self.batched = copy.deepcopy(models[0])
        self._rows = values.unbind()
        for model, row in zip(models, self._rows, strict=True):
            _point(model, row)
        _point(self.batched, values)
        self.parameters = tuple(self.batched.parameters())
        self._optimiser = build_optimiser(self._rows, trainings)
        for row, state in zip(self._rows, states, strict=True):
            self._optimiser.state[row] = state

    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Take a step of the optimiser; a model without a gradient [P] stays where it is."""
        for row, gradient in zip(self._rows, gradients, strict=True):
            row.grad = gradient
        self._optimiser.step()


def build_optimiser(rows: Sequence[Tensor], trainings: Sequence[Training]) -> Optimizer:
    """Adam with decoupled weight decay, fused into one call for all rows with the same settings."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for row, training in zip(rows, trainings, strict=True):
        groups.setdefault((training.learning_rate, training.weight_decay), []).append(row)
    parts = [{"params": part, "lr": rate, "weight_decay": decay} for (rate, decay), part in groups.items()]
    return AdamW(parts, fused=True)


def _point(model: nn.Module, values: Tensor) -> None:
    """Make the parameters views of `values` [..., P], in the order of `parameters()`."""
    end = 0
    for module in model.modules():
        for name, old in list(module.named_parameters(recurse=False)):
            begin, end = end, end + old.numel()
            setattr(module, name, nn.Parameter(values[..., begin:end].view(*values.shape[:-1], *old.shape)))
