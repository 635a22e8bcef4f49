"""What the examples of the loss stack train on: sequences of one repeated motif, a z-free reference, a small VAE.

A sequence is BOS, one of five motifs of three symbols repeated for 4 to 9 tokens, EOS, then padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from losses import gaussian_kl, masked_token_nll_per_position, mean_over_examples

PAD, BOS, EOS = 0, 1, 2
MOTIFS = ((3, 4, 5), (3, 5, 6), (6, 4, 3), (7, 8, 3), (5, 7, 8))
VOCABULARY, LONGEST = 9, 9


@dataclass(frozen=True)
class Sequences:
    """N sequences, and what the reference thinks of them.

    Attributes:
        tokens: [N, T].
        mask: [N, T - 1], true where position t has a target, tokens[:, t + 1].
        surprisal: [N, T - 1], nats, of the z-free reference.
    """

    tokens: Tensor
    mask: Tensor
    surprisal: Tensor


def training_and_held_out(examples: int) -> tuple[Sequences, Sequences]:
    """A training split, and a held-out one of a quarter of its size; the reference knows the first alone."""
    tokens = draw(examples + examples // 4)
    mask = tokens[:, 1:] != PAD
    log_p = bigram_log_probabilities(tokens[:examples], mask[:examples])
    surprisal = -log_p[tokens[:, :-1], tokens[:, 1:]] * mask
    return (
        Sequences(tokens[:examples], mask[:examples], surprisal[:examples]),
        Sequences(tokens[examples:], mask[examples:], surprisal[examples:]),
    )


def draw(count: int) -> Tensor:
    """[count, LONGEST + 2] tokens, the same in every trial: a study's seeds vary the training, not the data."""
    generator = torch.Generator().manual_seed(0)
    motif = torch.tensor(MOTIFS)[torch.randint(len(MOTIFS), (count,), generator=generator)]
    length = torch.randint(4, LONGEST + 1, (count, 1), generator=generator)
    place = torch.arange(LONGEST)
    content = torch.where(place < length, motif[:, place % 3], PAD)
    end = torch.full((count, 1), PAD)
    return torch.cat([torch.full((count, 1), BOS), content, end], dim=1).scatter(1, length + 1, EOS)


def bigram_log_probabilities(tokens: Tensor, mask: Tensor) -> Tensor:
    """[V, V], log p(next | token) of counts with one half added: a z-free reference that needs no training."""
    counts = torch.full((VOCABULARY, VOCABULARY), 0.5)
    pairs = (tokens[:, :-1][mask], tokens[:, 1:][mask])
    counts = counts.index_put(pairs, torch.ones(len(pairs[0])), accumulate=True)
    return (counts / counts.sum(1, keepdim=True)).log()


class MotifVAE(nn.Module):
    """GRU encoder, q(z|x) = N(mu, diag sigma^2), and a GRU decoder that sees z at every position.

    In training the decoder misses half of the prefix's tokens, so that z is worth its rate (Bowman et al. 2016).
    """

    def __init__(self, width: int, latent_dimensions: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width, padding_idx=PAD)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.posterior = nn.Linear(width, 2 * latent_dimensions)
        self.latent = nn.Linear(latent_dimensions, width)
        self.token_dropout = nn.Dropout1d(0.5)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.output = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, T - 1, V] that score tokens[:, 1:], and KL_b [B] in nats."""
        states, _ = self.encoder(self.embedding(tokens))
        mu, logvar = self.posterior(states.mean(1)).chunk(2, dim=-1)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        prefix = self.token_dropout(self.embedding(tokens[:, :-1]))
        hidden, _ = self.decoder(prefix + self.latent(z)[:, None])
        return self.output(hidden), gaussian_kl(mu, logvar)


@torch.no_grad()
def held_out_metrics(model: nn.Module, data: Sequences) -> dict[str, float]:
    """Metrics that can be compared between arms, whatever the weights of the objective are."""
    was_training = model.training
    logits, kl = model.eval()(data.tokens)
    model.train(was_training)
    nll = masked_token_nll_per_position(logits, data.tokens[:, 1:], data.mask)
    length = data.mask.sum() / len(data.mask)
    distortion, rate = mean_over_examples(nll.sum(1), data.mask) / length, mean_over_examples(kl, data.mask) / length
    return {
        "eval/neg_elbo_per_token": float(distortion + rate),
        "eval/nll_per_token": float(distortion),
        "eval/rate_per_token": float(rate),
        "eval/zfree_nll_per_token": float(data.surprisal.sum() / data.mask.sum()),
    }
