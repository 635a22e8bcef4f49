"""The prepared reference of a whole split: in memory while it is small, made for each batch where it is not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from losses import PreparedReference, ReconstructionLossConfig, prepare_reference

IN_MEMORY = 2**26
"""Target positions of a split whose weights are kept, some 1 GB with the examples' statistics."""

PART = 2**22
"""Positions that are prepared at once where they are not."""


@dataclass(frozen=True)
class SplitReference:
    """What the loss reads of the frozen reference, by the rows of a batch.

    Attributes:
        surprisal: [n, L] nats, memory-mapped.
        mask: [n, L], memory-mapped.
        config: what it is prepared with.
        prepared: of the whole split, on the device, or None where that is too much.
        totals: a reference whose sums over examples are those of the split.
        device: where batches are wanted.
    """

    surprisal: Tensor
    mask: Tensor
    config: ReconstructionLossConfig
    prepared: PreparedReference | None
    totals: PreparedReference
    device: str = "cpu"

    def to(self, device: str) -> SplitReference:
        """The same with batches on that device."""
        prepared = None if self.prepared is None else self.prepared.to(device)
        return replace(self, prepared=prepared, device=device)

    def __getitem__(self, rows: Tensor) -> PreparedReference:
        """The reference of those rows of the split; `rows` [B] int64 on the CPU."""
        if self.prepared is not None:
            return self.prepared[rows.to(self.device)]
        return prepare_reference(self.surprisal[rows], self.mask[rows], self.config).to(self.device)


def split_reference(
    surprisal: Tensor, mask: Tensor, config: ReconstructionLossConfig, in_memory: int = IN_MEMORY
) -> SplitReference:
    """Prepare a split of [n, L] positions, as a whole if that is at most `in_memory` positions."""
    if surprisal.numel() <= in_memory:
        whole = prepare_reference(surprisal, mask, config)
        return SplitReference(surprisal, mask, config, whole, whole)
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
    return SplitReference(surprisal, mask, config, None, totals)


def _summed(reference: PreparedReference) -> PreparedReference:
    """A reference of one example with one position, which has the sums of all."""
    weights = reference.weights.sum(2).sum(1, dtype=torch.float64)
    return replace(
        reference, weights=weights[:, None, None], examples=reference.examples.sum(1, keepdim=True, dtype=torch.float64)
    )
