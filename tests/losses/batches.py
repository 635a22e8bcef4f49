"""Batches that the tests of the loss stack share."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from losses import ReconstructionLossConfig
from tests.losses import oracle

#: Six different weights, so that no two terms can be taken for one another.
CONFIG = ReconstructionLossConfig(
    raw_weight=1.0,
    distribution_normalized_weight=0.5,
    example_inverse_surprisal_weight=0.25,
    token_weighted_weight=2.0,
    normalized_concentration_corrected_token_weighted_weight=0.75,
    normalized_inverse_surprisal_token_weighted_weight=1.5,
    token_weight_alpha=0.7,
    example_inverse_surprisal_epsilon=0.3,
    inverse_surprisal_token_weight_epsilon=0.2,
    zfree_reference_scale=2.5,
)
NO_WEIGHTS = dict.fromkeys(oracle.SIX_TERMS.values(), 0.0)


@dataclass
class Batch:
    nll: Tensor
    mask: Tensor
    surprisal: Tensor


def batch(examples: int = 5, length: int = 7, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> Batch:
    """Lengths from 1 to `length`, a hole in the mask, an example without active positions, a surprisal of 0."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, length + 1, (examples, 1), generator=generator)
    lengths[0] = length
    mask = torch.arange(length) < lengths
    if examples > 2 and length > 2:
        mask[0, 1] = False
        mask[2] = False
    nll = 3 * torch.rand(examples, length, generator=generator, dtype=torch.float64)
    surprisal = 4 * torch.rand(examples, length, generator=generator, dtype=torch.float64)
    surprisal[0, 0] = 0.0
    return Batch(nll.to(dtype), mask, surprisal.to(dtype))


def expected(batch: Batch, config: ReconstructionLossConfig, mean: float | None = None) -> oracle.Expected:
    """What the oracle makes of a batch."""
    nll, surprisal = batch.nll.double().tolist(), batch.surprisal.double().tolist()
    return oracle.reconstruction(nll, batch.mask.tolist(), surprisal, asdict(config), mean)


def values(tensors: dict[str, Tensor]) -> dict[str, float]:
    """The same dictionary with floats."""
    return {name: tensor.item() for name, tensor in tensors.items()}
