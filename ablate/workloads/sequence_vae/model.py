"""The sequence VAE, and the decoder that it shares with the z-free reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ablate.workloads.sequence_vae.batched_layers import Embedding, Linear, uniform
from ablate.workloads.sequence_vae.config import Core, Latent, Model
from ablate.workloads.sequence_vae.latent import latent_of
from ablate.workloads.sequence_vae.networks import Generators, build_core


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """PyTorch's initialisers draw from the global CPU stream: give them `seed`, and leave the stream as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class TokenEmbedding(nn.Module):
    """Token plus position, [B, T] -> [B, T, W]."""

    def __init__(self, vocabulary: int, positions: int, width: int) -> None:
        super().__init__()
        self.token, self.position = Embedding(vocabulary, width), Embedding(positions, width)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=width**-0.5)

    def forward(self, tokens: Tensor, keep: Tensor | None = None) -> Tensor:
        """Args:
        tokens: [B, T].
        keep: [B, T], false where the token is hidden (its position is not); None: all are seen.
        """
        embedded = self.token(tokens)
        if keep is not None:
            embedded = embedded * keep[..., None]
        return torch.as_tensor(embedded + self.position.weight[..., None, : tokens.shape[-1], :])


class Decoder(nn.Module):
    """p(next token | prefix, z); z, where there is one, is added at every position."""

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        core: Core,
        *,
        width: int,
        layers: int,
        heads: int,
        dropout: float,
        latent_size: int = 0,
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocabulary, positions, width)
        self.latent = Linear(latent_size, width) if latent_size else None
        self.core = build_core(core, width, layers, heads, dropout, causal=True)
        self.output = Linear(width, vocabulary)

    def forward(
        self,
        prefix: Tensor,
        mask: Tensor,
        z: Tensor | None = None,
        keep: Tensor | None = None,
        generator: Generators | None = None,
    ) -> Tensor:
        """Logits [B, L, V]; those at t score the token after prefix[:, t].

        Args, as states.
        """
        return torch.as_tensor(self.output(self.states(prefix, mask, z, keep, generator)))

    def states(
        self,
        prefix: Tensor,
        mask: Tensor,
        z: Tensor | None = None,
        keep: Tensor | None = None,
        generator: Generators | None = None,
    ) -> Tensor:
        """What the logits are a linear map of, [B, L, W].

        Args:
            prefix: [B, L], tokens without the last column.
            mask: [B, L], true where there is a target.
            z: [B, Z], or None for a decoder without z.
            keep: as TokenEmbedding.
            generator: for dropout, or None.
        """
        x = self.embedding(prefix, keep)
        if self.latent is not None and z is not None:
            x = x + self.latent(z).unsqueeze(-2)
        return torch.as_tensor(self.core(x, mask, generator))


class SequenceVAE(nn.Module):
    """Encoder q(z|x) and decoder p(x|z) over sequences of up to `positions` tokens."""

    def __init__(self, latent: Latent, model: Model, vocabulary: int, positions: int) -> None:
        super().__init__()
        self.latent = latent_of(latent, model)
        width, layers, heads, dropout = model.width, model.layers, model.heads, model.dropout
        self.token_dropout = model.token_dropout
        self.embedding = TokenEmbedding(vocabulary, positions, width)
        self.encoder = build_core(model.encoder, width, layers, heads, dropout, causal=False)
        self.posterior = Linear(width, self.latent.parameters)
        self.decoder = Decoder(
            vocabulary,
            positions,
            model.decoder,
            width=width,
            layers=layers,
            heads=heads,
            dropout=dropout,
            latent_size=self.latent.size,
        )

    def encode(self, tokens: Tensor, real: Tensor, generator: Generators | None = None) -> Tensor:
        """Parameters of q(z|x), [B, P]: the mean of the encoder's states over real tokens, through one linear map.

        Args:
            tokens: [B, T].
            real: [B, T], false at padding.
            generator: for dropout, or None.
        """
        states = self.encoder(self.embedding(tokens), real, generator)
        seen = real[..., None].to(states.dtype)
        return torch.as_tensor(self.posterior((states * seen).sum(-2) / seen.sum(-2).clamp(min=1)))

    def decode(self, prefix: Tensor, mask: Tensor, z: Tensor, generator: Generators | None = None) -> Tensor:
        """Logits [B, L, V]; with a generator, tokens of the prefix are dropped and dropout is on."""
        return torch.as_tensor(self.decoder.output(self.decoder_states(prefix, mask, z, generator)))

    def decoder_states(self, prefix: Tensor, mask: Tensor, z: Tensor, generator: Generators | None = None) -> Tensor:
        """What the logits are a linear map of, [B, L, W]; with a generator as decode."""
        keep = None
        if generator is not None and self.token_dropout:
            keep = (uniform(prefix.shape, generator) >= self.token_dropout).to(prefix.device)
        return self.decoder.states(prefix, mask, z, keep, generator)
