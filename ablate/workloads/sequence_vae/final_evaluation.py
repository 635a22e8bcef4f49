"""What is measured once, at the end of a trial, on the first examples of a held-out split."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.workloads.sequence_vae.disentanglement import modularity
from ablate.workloads.sequence_vae.evaluation import HeldOut, iwae_nll_per_token, posterior_parameters
from ablate.workloads.sequence_vae.latent import LatentKind
from ablate.workloads.sequence_vae.model import SequenceVAE
from ablate.workloads.sequence_vae.probes import dci, separated_attribute_predictability

ROWS_AT_ONCE = 1024
"""Rows of the table of log q(z_b|x_c) that are in memory at once."""


@dataclass(frozen=True)
class Effort:
    """How much a final evaluation may cost.

    Attributes:
        examples: it looks at the first so many of the split.
        samples: draws of z for the importance-weighted bound.
    """

    examples: int
    samples: int


@torch.no_grad()
def evaluate_finally(
    model: SequenceVAE, data: HeldOut, effort: Effort, importance_seed: int, device: str
) -> dict[str, float]:
    """The metrics of the end, by name without the split's prefix.

    Source: docs/loss_stack.md, section 5.
    """
    metrics = {
        "iwae_nll_per_token": iwae_nll_per_token(model, data, importance_seed, effort.samples, effort.examples, device)
    }
    part = slice(0, effort.examples)
    present = data.split.mask[part].any(-1)
    parameters = posterior_parameters(model, data, part, device)
    if not bool(torch.isfinite(parameters).all()) or not bool(present.any()):
        return metrics
    information, marginal = posterior_information(
        model.latent, parameters[present].double(), data.noise[part][present].double()
    )
    metrics |= {"mutual_information": information, "aggregate_posterior_kl": marginal}
    if data.factors is not None:
        codes, factors = model.latent.codes(parameters).numpy(), data.factors[part]
        scores = dci(codes, factors)
        metrics |= {f"dci_{name}": value for name, value in scores._asdict().items()}
        metrics["modularity"] = modularity(codes, factors)
        metrics["sap"] = separated_attribute_predictability(codes, factors)
    return metrics


def posterior_information(latent: LatentKind, parameters: Tensor, noise: Tensor) -> tuple[float, float]:
    """I(x; z) and KL(q(z) || p(z)), the two parts of the rate, nats a sequence.

    <KL_b> = I(x; z) + KL(q(z) || p(z)), q(z) = 1/n sum_c q(z | x_c) over the n examples given;
    I(x; z) = <log q(z_b | x_b) - log q(z_b)> with one draw z_b an example. It is at most log n, and so is the estimate;
    that of the second part is the rest of the rate, and can fall below 0 by the noise of the draws.

    Args:
        parameters: [n, P], float64.
        noise: [n, Z].
    Source: Hoffman & Johnson 2016, eq. 8.
    """
    z = latent.draw(parameters, noise)
    size = len(parameters)
    total = 0.0
    for start in range(0, size, ROWS_AT_ONCE):
        rows = torch.arange(start, min(start + ROWS_AT_ONCE, size))
        table = latent.log_density(parameters, z[rows])
        own = table[torch.arange(len(rows)), rows]
        total += float((own - torch.logsumexp(table, dim=1) + math.log(size)).sum())
    information = total / size
    return information, float(latent.kl(parameters).sum(-1).mean()) - information
