"""Sequence cores: a pre-norm transformer and a GRU with one signature.

A core maps [..., B, T, W] to [..., B, T, W]. Dropout draws from a generator that is passed in; without one there is
none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from ablate.workloads.sequence_vae.batched_gru import batched_gru
from ablate.workloads.sequence_vae.batched_layers import LayerNorm, Linear, uniform
from ablate.workloads.sequence_vae.config import Core

Generators = Generator | Sequence[Generator]
"""The stream of a model, or that of each of a pack's."""


def build_core(core: Core, width: int, layers: int, heads: int, dropout: float, *, causal: bool) -> Transformer | GRU:
    """The core of that name."""
    match core:
        case "transformer":
            return Transformer(width, layers, heads, dropout, causal=causal)
        case "gru":
            return GRU(width, layers, dropout)


def drop(x: Tensor, rate: float, generator: Generators | None) -> Tensor:
    """Inverted dropout, drawn on the CPU so that a stream is the same on every device."""
    if generator is None or rate == 0:
        return x
    keep = uniform(x.shape, generator) >= rate
    return x * keep.to(x.device) / (1 - rate)


class Transformer(nn.Module):
    """Pre-norm transformer (Xiong et al. 2020); causal, or attending to every position that `mask` allows."""

    def __init__(self, width: int, layers: int, heads: int, dropout: float, *, causal: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads, dropout, causal=causal) for _ in range(layers))
        self.norm = LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor, generator: Generators | None) -> Tensor:
        """Args:
        x: [..., B, T, W].
        mask: [..., B, T], true at real tokens; a causal core does not need it, since padding stands at the end.
        generator: for dropout, or None.
        """
        for block in self.blocks:
            x = block(x, mask, generator)
        return torch.as_tensor(self.norm(x))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int, dropout: float, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.rate, self.causal = heads, dropout, causal
        self.attention_norm, self.mlp_norm = LayerNorm(width), LayerNorm(width)
        self.qkv, self.out = Linear(width, 3 * width), Linear(width, width)
        self.up, self.down = Linear(width, 4 * width), Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor, generator: Generators | None) -> Tensor:
        """As Transformer.forward."""
        x = x + drop(self.attention(self.attention_norm(x), mask), self.rate, generator)
        return x + drop(self.down(functional.relu(self.up(self.mlp_norm(x)))), self.rate, generator)

    def attention(self, x: Tensor, mask: Tensor) -> Tensor:
        """Multi-head attention, [..., B, T, W]."""
        q, k, v = self.qkv(x).flatten(0, -3).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        allowed = None if self.causal else mask.flatten(0, -2)[:, None, None, :]
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed, is_causal=self.causal)
        return torch.as_tensor(self.out(mixed.transpose(1, 2).reshape(x.shape)))


class GRU(nn.Module):
    """Left-to-right GRU: a state depends on the tokens up to its own position."""

    def __init__(self, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.rate = dropout
        self.cells = nn.GRU(width, width, num_layers=layers, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor, generator: Generators | None) -> Tensor:  # noqa: ARG002
        """As Transformer.forward; the mask is not needed, since padding stands at the end."""
        return batched_gru(drop(x, self.rate, generator), self.cells)
