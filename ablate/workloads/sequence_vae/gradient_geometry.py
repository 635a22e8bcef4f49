"""Gradient geometry: where the terms pull the parameters, beside where their weight matrices say they do."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from ablate.workloads.sequence_vae.evaluation import HeldOut, real_tokens
from ablate.workloads.sequence_vae.model import SequenceVAE
from ablate.workloads.sequence_vae.train_step import Objective
from losses import TERMS, masked_token_nll_per_position, reconstruction_losses, temperature_at

EXAMPLES = 64
"""Examples of the held-out batch, the first of the split."""


def gradient_cosines(
    model: SequenceVAE, data: HeldOut, objective: Objective, step: int, device: str
) -> dict[str, float]:
    """Cosine of the parameter gradients of each pair of reconstruction terms, for lambda_k = 1.

    One forward pass without dropout and a backward pass a term, over the first EXAMPLES examples of a split and their
    fixed noise; z as in training, so that the encoder has a gradient too. No state or stream of the trial changes.

    Args:
        step: sets the temperature.
    Returns: by `gradient_cosine/<weight>/<weight>`; a pair of which one gradient is 0 has none.
    """
    rows = torch.arange(min(EXAMPLES, len(data.split.mask)))
    tokens, mask = data.split.tokens[rows].to(device, torch.int64), data.split.mask[rows].to(device)
    parameters = model.encode(tokens, real_tokens(mask))
    z = model.latent.relaxed(
        parameters,
        data.noise[rows].to(device),
        temperature_at(objective.temperature, step),
        straight_through=objective.straight_through,
    )
    nll = masked_token_nll_per_position(model.decode(tokens[:, :-1], mask, z), tokens[:, 1:], mask)
    reference = data.reference[rows].to(device)
    terms = reconstruction_losses(nll, mask, reference, objective.reconstruction, objective.example_weight_mean).terms
    gradients = torch.stack([_unit(_gradient(model, terms[name])) for name in TERMS])
    cosines = (gradients @ gradients.T).tolist()
    fields = [term.weight_field for term in TERMS.values()]
    pairs = itertools.combinations(range(len(fields)), 2)
    found = {f"gradient_cosine/{fields[i]}/{fields[j]}": cosines[i][j] for i, j in pairs}
    return {name: value for name, value in found.items() if value == value}


def _gradient(model: nn.Module, loss: Tensor) -> Tensor:
    """The gradient of a term with respect to all parameters, one vector in float64."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    parts = torch.autograd.grad(loss, weights, retain_graph=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts]).double()


def _unit(gradient: Tensor) -> Tensor:
    return torch.nn.functional.normalize(gradient, dim=0, eps=0.0)
