"""What a split's frozen reference comes to: sums over all its examples, and the token weights of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from losses import PreparedReference, ReconstructionLossConfig, effective_token_weight_table, prepare_reference

IN_MEMORY = 2**26
"""Target positions of a split whose weights are kept, some 1 GB with the examples' statistics."""

PART = 2**22
"""Positions that are prepared at once where they are not."""


@dataclass(frozen=True)
class TokenWeights:
    """N W of each example of a split: its token weights in the objective, before the mean over a batch.

    Attributes:
        surprisal: [n, L] nats, memory-mapped.
        mask: [n, L], memory-mapped.
        config: the weights lambda_k and the settings.
        example_weight_mean: <(S + eps)^-1> over the split.
        whole: [n, L], or None where that is too much to keep.
    """

    surprisal: Tensor
    mask: Tensor
    config: ReconstructionLossConfig
    example_weight_mean: float
    whole: Tensor | None

    def __getitem__(self, rows: Tensor) -> Tensor:
        """[B, L] of these rows of the split."""
        if self.whole is not None:
            return self.whole[rows]
        return effective_token_weight_table(self.reference(rows), self.config, self.example_weight_mean)

    def reference(self, rows: Tensor) -> PreparedReference:
        """What the terms and diagnostics of a batch of these rows are made from."""
        return prepare_reference(self.surprisal[rows], self.mask[rows], self.config)


@dataclass(frozen=True)
class SplitReference:
    """The reference of a split under the settings of an arm.

    Attributes:
        surprisal, mask: as TokenWeights has them.
        prepared: of the whole split, or None where that is too much.
        totals: a reference whose sums over examples are those of the split.
    """

    surprisal: Tensor
    mask: Tensor
    prepared: PreparedReference | None
    totals: PreparedReference

    def token_weights(self, config: ReconstructionLossConfig, example_weight_mean: float) -> TokenWeights:
        """The weights of an objective with the settings that the reference was prepared with."""
        whole = (
            None if self.prepared is None else effective_token_weight_table(self.prepared, config, example_weight_mean)
        )
        return TokenWeights(self.surprisal, self.mask, config, example_weight_mean, whole)


def split_reference(
    surprisal: Tensor, mask: Tensor, config: ReconstructionLossConfig, in_memory: int = IN_MEMORY
) -> SplitReference:
    """Prepare a split of [n, L] positions, as a whole if that is at most `in_memory` positions."""
    if surprisal.numel() <= in_memory:
        whole = prepare_reference(surprisal, mask, config)
        return SplitReference(surprisal, mask, whole, whole)
    rows = max(PART // surprisal.shape[1], 1)
    parts = [
        _summed(prepare_reference(part, active, config))
        for part, active in zip(torch.split(surprisal, rows), torch.split(mask, rows), strict=True)
    ]
    totals = replace(
        parts[0],
        weights=torch.cat([part.weights for part in parts], 1),
        examples=torch.cat([part.examples for part in parts], 1),
    )
    return SplitReference(surprisal, mask, None, totals)


def _summed(reference: PreparedReference) -> PreparedReference:
    """A reference of one example with one position, which has the sums of all."""
    weights = reference.weights.sum(2).sum(1, dtype=torch.float64)
    return replace(
        reference, weights=weights[:, None, None], examples=reference.examples.sum(1, keepdim=True, dtype=torch.float64)
    )
