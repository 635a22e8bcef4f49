"""The two kinds of latent variable, with one set of methods.

`parameters` [B, P] is what the encoder says of an example, z [B, Z] what the decoder sees of it. `relaxed` and `draw`
take any dimensions in front of these. Noise [B, Z] is drawn outside and passed in: standard normal for a continuous z,
standard Gumbel for a discrete one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional

from ablate.workloads.sequence_vae.config import Latent, Model
from ablate.workloads.sequence_vae.keyed_noise import NoiseKind
from losses import CategoricalPosterior, GaussianPosterior, categorical_kl_per_group, gaussian_kl_per_dimension

ACTIVE = 0.01
"""Threshold of an active unit: variance of mu, or nats of information."""


Temperature = float | Tensor
"""Of the relaxation of a discrete z; a tensor broadcasts over [..., G, K]."""


@dataclass(frozen=True)
class ContinuousLatent:
    """q(z|x) = N(mu, diag sigma^2) against N(0, I) over D dimensions; parameters are (mu, log sigma^2)."""

    dimensions: int
    noise_kind: ClassVar[NoiseKind] = "normal"

    @property
    def parameters(self) -> int:
        """P, numbers the encoder gives."""
        return 2 * self.dimensions

    @property
    def size(self) -> int:
        """Z, numbers the decoder sees."""
        return self.dimensions

    def noise(self, batch: int, generator: Generator) -> Tensor:
        """[B, D] standard normal."""
        return torch.randn(batch, self.dimensions, generator=generator)

    def relaxed(self, parameters: Tensor, noise: Tensor, temperature: Temperature, *, straight_through: bool) -> Tensor:
        """A draw with a gradient (Kingma & Welling 2014); it is exact, there is nothing to relax."""
        del temperature, straight_through
        return self.draw(parameters, noise)

    def draw(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """An exact draw, [..., D]."""
        mu, logvar = parameters.chunk(2, dim=-1)
        return mu + torch.exp(0.5 * logvar) * noise

    def kl(self, parameters: Tensor) -> Tensor:
        """KL_bj, [B, D] nats."""
        mu, logvar = parameters.chunk(2, dim=-1)
        return gaussian_kl_per_dimension(mu, logvar)

    def posterior(self, parameters: Tensor, z: Tensor) -> GaussianPosterior:
        """As the auxiliary terms take it."""
        mu, logvar = parameters.chunk(2, dim=-1)
        return GaussianPosterior(mu, logvar, z)

    def log_weight(self, parameters: Tensor, z: Tensor) -> Tensor:
        """The log of p(z) / q(z|x), [...]."""
        mu, logvar = parameters.chunk(2, dim=-1)
        return 0.5 * ((z - mu).square() * torch.exp(-logvar) + logvar - z.square()).sum(-1)

    def log_density(self, parameters: Tensor, z: Tensor) -> Tensor:
        """The log of q(z_b|x_c) for every b and c, [b, c] nats."""
        mu, logvar = parameters.chunk(2, dim=-1)
        precision = torch.exp(-logvar)
        deviation = z.square() @ precision.T - 2 * z @ (mu * precision).T + (mu.square() * precision).sum(-1)
        return -0.5 * (deviation + logvar.sum(-1) + self.dimensions * math.log(2 * math.pi))

    def active_units(self, parameters: Tensor) -> Tensor:
        """Number of dimensions with Var_b(mu_j) > 0.01 over all examples given (Burda et al. 2016)."""
        mu, _ = parameters.chunk(2, dim=-1)
        return (mu.var(dim=0, correction=0) > ACTIVE).sum()

    def codes(self, parameters: Tensor) -> Tensor:
        """[B, D] what each dimension says of an example: mu."""
        return parameters.chunk(2, dim=-1)[0]


@dataclass(frozen=True)
class DiscreteLatent:
    """q(z|x) = a product of G categoricals of K ways, against uniform ones; parameters are their logits."""

    groups: int
    categories: int
    noise_kind: ClassVar[NoiseKind] = "gumbel"

    @property
    def parameters(self) -> int:
        """P, numbers the encoder gives."""
        return self.groups * self.categories

    @property
    def size(self) -> int:
        """Z, numbers the decoder sees."""
        return self.groups * self.categories

    def noise(self, batch: int, generator: Generator) -> Tensor:
        """[B, G K] standard Gumbel."""
        return -torch.empty(batch, self.size).exponential_(generator=generator).log()

    def relaxed(self, parameters: Tensor, noise: Tensor, temperature: Temperature, *, straight_through: bool) -> Tensor:
        """A Gumbel-softmax draw with a gradient (Jang et al. 2017); straight-through: one-hot, soft gradient."""
        soft = torch.softmax(self._by_group(parameters + noise) / temperature, dim=-1).flatten(-2)
        return self.draw(parameters, noise) + (soft - soft.detach()) if straight_through else soft

    def draw(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """An exact one-hot draw (Gumbel-max), [..., G K]."""
        chosen = self._by_group(parameters + noise).argmax(-1)
        one_hot: Tensor = functional.one_hot(chosen, self.categories).flatten(-2)
        return one_hot.to(parameters.dtype)

    def kl(self, parameters: Tensor) -> Tensor:
        """KL_bg, [B, G] nats."""
        return categorical_kl_per_group(self._by_group(parameters))

    def posterior(self, parameters: Tensor, z: Tensor) -> CategoricalPosterior:
        """As the auxiliary terms take it."""
        del z
        return CategoricalPosterior(self._by_group(parameters))

    def log_weight(self, parameters: Tensor, z: Tensor) -> Tensor:
        """The log of p(z) / q(z|x), [...]."""
        log_q = torch.log_softmax(self._by_group(parameters), dim=-1).flatten(-2)
        return -self.groups * math.log(self.categories) - (log_q * z).sum(-1)

    def log_density(self, parameters: Tensor, z: Tensor) -> Tensor:
        """The log of q(z_b|x_c) for every b and c, [b, c] nats."""
        return z @ torch.log_softmax(self._by_group(parameters), dim=-1).flatten(-2).T

    def active_units(self, parameters: Tensor) -> Tensor:
        """Number of groups with H(mean_b q_g) - mean_b H(q_g) > 0.01 nats over all examples given."""
        q = torch.softmax(self._by_group(parameters), dim=-1)
        information: Tensor = torch.special.entr(q.mean(0)).sum(-1) - torch.special.entr(q).sum(-1).mean(0)
        return (information > ACTIVE).sum()

    def codes(self, parameters: Tensor) -> Tensor:
        """[B, G] what each group says of an example: its likeliest category."""
        return self._by_group(parameters).argmax(-1)

    def _by_group(self, values: Tensor) -> Tensor:
        return values.view(*values.shape[:-1], self.groups, self.categories)


LatentKind = ContinuousLatent | DiscreteLatent


def latent_of(latent: Latent, model: Model) -> LatentKind:
    """The latent variable that the configuration names."""
    match latent:
        case "continuous":
            return ContinuousLatent(model.latent_dimensions)
        case "discrete":
            return DiscreteLatent(model.latent_groups, model.latent_categories)
