"""What the trainer needs of a data source: token sequences, their splits, and what is known about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAD, BOS, EOS = 0, 1, 2
"""Tokens that every vocabulary begins with: padding, beginning and end of a sequence."""

SPLITS = ("train", "select", "report")

Array = NDArray[Any]


@dataclass(frozen=True)
class SequenceData:
    """N padded sequences of up to T tokens. The arrays may be memory-mapped.

    Attributes:
        tokens: [N, T] integers; each row BOS, its content, EOS, then PAD; a row that was cut has no EOS.
        lengths: [N] tokens of each row without the padding; lengths - 1 target positions are active.
        splits: for each of SPLITS the rows that belong to it.
        vocabulary: number of distinct tokens, PAD, BOS and EOS among them.
        factors: [N] integers for each known generative factor, by name; empty where none is known.
        units: [N] 64-bit hash of what a row is told apart by (its group, or its content), so that rows that belong
            together stay together; None: the hash of its tokens.
        optimal_nll: [N] nats, -log p(x) of the true distribution, or None where it is not known.
        factor_nll: [N] nats, -log p(x | true factors), or None.
    """

    tokens: Array
    lengths: Array
    splits: dict[str, Array]
    vocabulary: int
    factors: dict[str, Array] = field(default_factory=dict)
    units: Array | None = None
    optimal_nll: Array | None = None
    factor_nll: Array | None = None


def target_mask(lengths: Array, positions: int) -> NDArray[np.bool_]:
    """[N, L], true where position t has a target: t < length - 1."""
    mask: NDArray[np.bool_] = np.arange(positions)[None, :] < (np.asarray(lengths)[:, None] - 1)
    return mask
