"""Held-out evaluation: a whole split, independent of batch size, with the same noise in every arm and at every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ablate.workloads.sequence_vae.data import Array
from ablate.workloads.sequence_vae.disentanglement import mutual_information_gap
from ablate.workloads.sequence_vae.keyed_noise import keyed_noise
from ablate.workloads.sequence_vae.model import SequenceVAE
from ablate.workloads.sequence_vae.objective import Split, read_split
from ablate.workloads.sequence_vae.reference_table import ReferenceTable
from losses import (
    PreparedReference,
    ReconstructionLossConfig,
    masked_token_nll_per_position,
    mean_over_examples,
    prepare_reference,
    reconstruction_losses,
)

BATCH = 512
"""Sequences that are scored at once, or fewer where that would make more than MOST_LOGITS."""

MOST_LOGITS = 2**27
"""512 MiB in float32."""


@dataclass(frozen=True)
class HeldOut:
    """A split made ready for evaluation.

    Attributes:
        reference: of the split.
        noise: [n, Z], the draw of z of each example.
        factors: [n, F], or None where none is known.
        constants: metrics that no model changes.
    """

    split: Split
    reference: PreparedReference
    noise: Tensor
    factors: Array | None
    constants: dict[str, float]

    @property
    def nbytes(self) -> int:
        """Bytes that are this trial's own; the table's are mapped, and shared."""
        return self.reference.weights.nbytes + self.reference.examples.nbytes + self.noise.nbytes


def held_out(
    table: ReferenceTable, name: str, model: SequenceVAE, config: ReconstructionLossConfig, seed: int
) -> HeldOut:
    """The split of that name, with noise keyed by (seed, row of the table)."""
    split, rows = read_split(table, name), table.splits[name]
    constants = {
        "zfree_nll_per_token": table.facts.get(f"{name}_reference_nll_per_token"),
        "zfree_bayes_nll_per_token": table.facts.get(f"{name}_bayes_nll_per_token"),
        "factor_nll_per_token": table.facts.get(f"{name}_factor_nll_per_token"),
    }
    latent = model.latent
    return HeldOut(
        split,
        prepare_reference(split.surprisal, split.mask, config),
        keyed_noise(seed, range(rows.start, rows.stop), (latent.size,), latent.noise_kind),
        np.asarray(table.factors[rows]) if table.factor_names else None,
        {metric: value for metric, value in constants.items() if value is not None},
    )


@torch.no_grad()
def evaluate(
    model: SequenceVAE, data: HeldOut, config: ReconstructionLossConfig, device: str, batch: int = BATCH
) -> dict[str, float]:
    """The metrics of a split, by name without the split's prefix.

    Sums over the split are taken in float64 of what each example gave, so that batches only decide memory.

    Source: docs/loss_stack.md, section 5.
    """
    nll, parameters, wrong = _score(model, data, device, batch)
    mask = data.split.mask
    tokens = max(int(mask.sum()), 1)
    per_sequence = float(mean_over_examples(nll.double().sum(-1), mask))
    kl = float(mean_over_examples(model.latent.kl(parameters).double().sum(-1), mask))
    length = data.split.mean_length
    stack = reconstruction_losses(nll, mask, data.reference, config)
    metrics = {
        "nll_per_token": float(nll.sum(dtype=torch.float64)) / tokens,
        "nll_per_sequence": per_sequence,
        "kl": kl,
        "elbo": -(per_sequence + kl),
        "neg_elbo_per_token": (per_sequence + kl) / length,
        "rate_per_token": kl / length,
        "active_units": float(model.latent.active_units(parameters)),
        "token_accuracy": (int(mask.sum()) - int(wrong.sum())) / tokens,
        "sequence_accuracy": float(mean_over_examples((wrong == 0).double(), mask)),
        **{name: float(value) for name, value in (*stack.terms.items(), *stack.diagnostics.items())},
        **data.constants,
    }
    if data.factors is not None and bool(torch.isfinite(parameters).all()):
        metrics["mig"] = mutual_information_gap(model.latent.codes(parameters).numpy(), data.factors)
    return metrics


@torch.no_grad()
def iwae_nll_per_token(
    model: SequenceVAE, data: HeldOut, seed: int, samples: int, examples: int, device: str, batch: int = BATCH
) -> float:
    """Importance-weighted bound on the NLL over the first examples of the split, nats a token.

    -<log 1/K sum_k p(x | z_k) p(z_k) / q(z_k | x)> / mean length, z_k ~ q from a stream keyed by (seed, example).

    Source: Burda et al. 2016.
    """
    examples = min(examples, len(data.split.tokens))
    latent, first = model.latent, data.split.first_row
    at_once = max(min(batch, _fitting(model, data.split)) // samples, 1)
    bounds, count = [], 0
    for start in range(0, examples, at_once):
        part = slice(start, min(start + at_once, examples))
        noise = keyed_noise(
            seed, range(first + part.start, first + part.stop), (samples, latent.size), latent.noise_kind
        )
        tokens, mask = _batch(data.split, part, device)
        parameters = _encode(model, tokens, mask)[:, None, :]
        z = latent.draw(parameters, noise.to(device))
        nll = _nll(model, tokens, mask, z)
        log_weights = latent.log_weight(parameters, z).double() - nll
        bound = math.log(samples) - torch.logsumexp(log_weights, dim=1)
        bounds.append(bound[mask.any(-1)].cpu())
        count += int(mask.sum())
    return float(torch.cat(bounds).sum()) / max(count, 1)


@torch.no_grad()
def posterior_parameters(model: SequenceVAE, data: HeldOut, rows: slice, device: str, batch: int = BATCH) -> Tensor:
    """Posterior parameters [n, P] of these examples of the split."""
    start, stop, _ = rows.indices(len(data.split.tokens))
    parts = (slice(first, min(first + batch, stop)) for first in range(start, stop, batch))
    return torch.cat([_encode(model, *_batch(data.split, part, device)).cpu() for part in parts])


def _score(model: SequenceVAE, data: HeldOut, device: str, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Token NLL [n, L] and posterior parameters [n, P] of the split, and in each how many tokens weren't likeliest."""
    nlls, posteriors, wrong = [], [], []
    batch = min(batch, _fitting(model, data.split))
    for start in range(0, len(data.split.tokens), batch):
        part = slice(start, start + batch)
        tokens, mask = _batch(data.split, part, device)
        parameters = _encode(model, tokens, mask)
        logits = model.decode(tokens[:, :-1], mask, model.latent.draw(parameters, data.noise[part].to(device)))
        nlls.append(masked_token_nll_per_position(logits, tokens[:, 1:], mask).cpu())
        posteriors.append(parameters.cpu())
        wrong.append(((logits.argmax(-1) != tokens[:, 1:]) & mask).sum(-1).cpu())
    return torch.cat(nlls), torch.cat(posteriors), torch.cat(wrong)


def _nll(model: SequenceVAE, tokens: Tensor, mask: Tensor, z: Tensor) -> Tensor:
    """NLL of each sequence under each of its draws of z [B, K, Z], [B, K] float64."""
    samples = z.shape[1]
    repeated, active = tokens.repeat_interleave(samples, dim=0), mask.repeat_interleave(samples, dim=0)
    logits = model.decode(repeated[:, :-1], active, z.flatten(0, 1))
    nll = masked_token_nll_per_position(logits, repeated[:, 1:], active)
    return nll.sum(-1, dtype=torch.float64).view(-1, samples)


def _fitting(model: SequenceVAE, split: Split) -> int:
    """How many sequences have no more than MOST_LOGITS; at least one."""
    return max(MOST_LOGITS // (split.mask.shape[1] * model.embedding.token.num_embeddings), 1)


def _encode(model: SequenceVAE, tokens: Tensor, mask: Tensor) -> Tensor:
    return model.encode(tokens, real_tokens(mask))


def _batch(split: Split, part: slice, device: str) -> tuple[Tensor, Tensor]:
    return split.tokens[part].to(device, torch.int64), split.mask[part].to(device)


def real_tokens(mask: Tensor) -> Tensor:
    """[..., T], true at real tokens, of the mask [..., L] of targets: the first token, and each target."""
    return torch.cat([torch.ones_like(mask[..., :1]), mask], dim=-1)
