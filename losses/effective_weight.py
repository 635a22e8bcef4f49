"""What a configuration's weights come to over a data set: the scale c, mean token weights, beta_eff."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from losses.config import ReconstructionLossConfig
from losses.reconstruction import TERMS, term_weight_matrices
from losses.token_weighting import PreparedReference


def zfree_reference_scale(reference: PreparedReference) -> float:
    """The scale c = <S_b> over the examples of a data set with n_b > 0, under the aggregation it was prepared with.

    Returns: nats; nan for a data set without an active position.
    Source: docs/loss_stack.md, section 2.
    """
    return _mean(reference.reference_loss, reference)


def example_weight_mean(reference: PreparedReference) -> float:
    """<(S + eps)^-1> over the examples of a data set with n_b > 0: the normaliser of the third term.

    Returns: per nat; nan for a data set without an active position.
    Source: docs/loss_stack.md, section 3, identity 7.
    """
    return _mean(reference.example_weight, reference) / float(reference.example_weight_unit)


def mean_token_weights(
    reference: PreparedReference, mask: Tensor, config: ReconstructionLossConfig, chunk: int = 4096
) -> dict[str, float]:
    """Mean effective token weight of each term for lambda_k = 1: N sum_bt W_k,bt / sum_b n_b.

    Made with the data set's own normaliser of the third term.

    Args:
        reference: of the data set, n examples.
        mask: [n, L] bool, true where active.
        config: its scale c and settings; its six weights are not read.
        chunk: how many examples are looked at at once.
    Returns: by term name; nan for a data set without an active position.
    Raises: as `reconstruction_losses`.
    Source: docs/loss_stack.md, section 5.
    """
    mean = example_weight_mean(reference)
    totals = dict.fromkeys(TERMS, 0.0)
    for start in range(0, len(reference), chunk):
        part = slice(start, start + chunk)
        for name, weights in term_weight_matrices(reference[part], mask[part], config, mean).items():
            totals[name] += float(weights.sum(dtype=torch.float64))
    tokens = float(reference.token_count.sum(dtype=torch.float64))
    return {name: total / tokens if tokens else math.nan for name, total in totals.items()}


def mean_effective_token_weight(mean_weights: Mapping[str, float], config: ReconstructionLossConfig) -> float:
    """W-bar = sum_k lambda_k W-bar_k, of what `mean_token_weights` returns.

    Source: docs/loss_stack.md, section 5.
    """
    return sum(float(getattr(config, term.weight_field)) * mean_weights[name] for name, term in TERMS.items())


def term_shares(mean_weights: Mapping[str, float], config: ReconstructionLossConfig) -> dict[str, float]:
    """Each term's share of the mean effective token weight, lambda_k W-bar_k / W-bar; nan where that is 0.

    Source: docs/loss_stack.md, section 5.
    """
    total = mean_effective_token_weight(mean_weights, config)
    return {
        name: float(getattr(config, term.weight_field)) * mean_weights[name] / total if total else math.nan
        for name, term in TERMS.items()
    }


def effective_coefficient(coefficient: float, mean_weight: float) -> float:
    """beta_eff of beta, or mu_eff of mu: the coefficient relative to the mean effective token weight.

    beta_eff = beta sum_b n_b / (N sum_bt W_bt) = beta / W-bar; nan where W-bar is 0. 1 is the ELBO.

    Source: docs/loss_stack.md, section 5.
    """
    return coefficient / mean_weight if mean_weight else math.nan


def _mean(values: Tensor, reference: PreparedReference) -> float:
    count = float(reference.present.sum(dtype=torch.float64))
    return float((values * reference.present).sum(dtype=torch.float64)) / count if count else math.nan
