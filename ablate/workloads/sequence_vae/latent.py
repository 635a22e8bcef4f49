"""The two kinds of latent variable, with one set of methods.

`parameters` [B, P] is what the encoder says of an example; z [B, Z] is what the decoder sees. Noise is drawn
outside and passed in: standard normal for continuous z, standard Gumbel for discrete z.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

from ablate.workloads.sequence_vae.config import Latent, Model


@dataclass(frozen=True)
class ContinuousLatent:
    """q(z|x) = N(mu, diag sigma^2) against N(0, I) over D dimensions; parameters are (mu, log sigma^2)."""

    dimensions: int

    @property
    def parameters(self) -> int:
        """P, numbers the encoder gives."""
        return 2 * self.dimensions

    @property
    def size(self) -> int:
        """Z, numbers the decoder sees; as many numbers of noise make one draw."""
        return self.dimensions

    def split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """The mean mu [B, D] and log sigma^2 [B, D]."""
        mu, logvar = parameters.chunk(2, dim=-1)
        return mu, logvar

    def noise(self, batch: int, generator: Generator) -> Tensor:
        """[B, D] standard normal."""
        return torch.randn(batch, self.dimensions, generator=generator)

    def relaxed(self, parameters: Tensor, noise: Tensor, temperature: Tensor, *, straight_through: bool) -> Tensor:  # noqa: ARG002
        """A draw with a gradient (Kingma & Welling 2014); there is nothing to relax."""
        return self.draw(parameters, noise)

    def draw(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """An exact draw, [..., D]."""
        mu, logvar = self.split(parameters)
        return mu + torch.exp(0.5 * logvar) * noise

    def log_weight(self, parameters: Tensor, z: Tensor) -> Tensor:
        """The log weight log p(z) - log q(z|x), [...]."""
        mu, logvar = self.split(parameters)
        return 0.5 * ((z - mu).square() * torch.exp(-logvar) + logvar - z.square()).sum(-1)

    def active_units(self, parameters: Tensor) -> Tensor:
        """Number of dimensions with Var_b(mu_j) > 0.01 (Burda et al. 2016), over all examples given."""
        mu, _ = self.split(parameters)
        return (mu.var(dim=0, correction=0) > 0.01).sum()

    def codes(self, parameters: Tensor) -> Tensor:
        """[B, D] what each dimension says of an example: mu."""
        return self.split(parameters)[0]


@dataclass(frozen=True)
class DiscreteLatent:
    """q(z|x) = a product of G categoricals of K ways, against uniform ones; parameters are their logits."""

    groups: int
    categories: int

    @property
    def parameters(self) -> int:
        """P, numbers the encoder gives."""
        return self.groups * self.categories

    @property
    def size(self) -> int:
        """Z, numbers the decoder sees; as many numbers of noise make one draw."""
        return self.groups * self.categories

    def split(self, parameters: Tensor) -> Tensor:
        """Logits [..., G, K]."""
        return parameters.view(*parameters.shape[:-1], self.groups, self.categories)

    def noise(self, batch: int, generator: Generator) -> Tensor:
        """[B, G K] standard Gumbel."""
        return -torch.empty(batch, self.size).exponential_(generator=generator).log()

    def relaxed(self, parameters: Tensor, noise: Tensor, temperature: Tensor, *, straight_through: bool) -> Tensor:
        """A Gumbel-softmax draw with a gradient (Jang et al. 2017); straight-through: one-hot, soft gradient."""
        soft = torch.softmax(self.split(parameters + noise) / temperature, dim=-1).flatten(-2)
        return self.draw(parameters, noise) + (soft - soft.detach()) if straight_through else soft

    def draw(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """An exact one-hot draw (Gumbel-max), [..., G K]."""
        chosen = self.split(parameters + noise).argmax(-1)
        return functional.one_hot(chosen, self.categories).flatten(-2).to(parameters.dtype)

    def log_weight(self, parameters: Tensor, z: Tensor) -> Tensor:
        """The log weight log p(z) - log q(z|x), [...]."""
        log_q = (torch.log_softmax(self.split(parameters), -1).flatten(-2) * z).sum(-1)
        return -self.groups * torch.log(torch.tensor(float(self.categories))) - log_q

    def active_units(self, parameters: Tensor) -> Tensor:
        """Number of groups with H(mean_b q_g) - mean_b H(q_g) > 0.01 nats, over all examples given."""
        q = torch.softmax(self.split(parameters), -1)
        information = torch.special.entr(q.mean(0)).sum(-1) - torch.special.entr(q).sum(-1).mean(0)
        return (information > 0.01).sum()

    def codes(self, parameters: Tensor) -> Tensor:
        """[B, G] what each group says of an example: its likeliest category."""
        return self.split(parameters).argmax(-1)


LatentKind = ContinuousLatent | DiscreteLatent


def latent_of(latent: Latent, model: Model) -> LatentKind:
    """The latent variable that the configuration names."""
    match latent:
        case "continuous":
            return ContinuousLatent(model.latent_dimensions)
        case "discrete":
            return DiscreteLatent(model.latent_groups, model.latent_categories)
