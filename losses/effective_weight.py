"""What a configuration comes to over a data set: the scale c, mean effective token weights, beta_eff."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from losses.config import ReconstructionLossConfig
from losses.prepared_reference import PreparedReference
from losses.reconstruction import TERMS, term_divisors
from losses.token_weighting import example_weight_unit


def zfree_reference_scale(reference: PreparedReference) -> float:
    """The scale c = <S_b> over the examples of a data set with n_b > 0, under the aggregation of the reference.

    Returns: nats; nan for a data set without an active position.
    Source: docs/loss_stack.md, section 2.
    """
    return _ratio(reference.statistics.reference_loss, reference.statistics.present)


def example_weight_mean(reference: PreparedReference, config: ReconstructionLossConfig) -> float:
    """The data set's <(S + eps)^-1> over the examples with n_b > 0, the normaliser of the third term.

    Returns: per nat; nan for a data set without an active position.
    Raises: ValueError if the reference was prepared with other settings.
    Source: docs/loss_stack.md, section 3, identity 7.
    """
    reference.check_settings(config)
    mean = _ratio(reference.statistics.example_weight, reference.statistics.present)
    return mean / float(example_weight_unit(config))


def mean_token_weights(reference: PreparedReference, config: ReconstructionLossConfig) -> dict[str, float]:
    """Mean effective token weight of each term for lambda_k = 1: N sum_bt W_k,bt / sum_b n_b.

    Args:
        reference: of the data set, whose own <(S + eps)^-1> is used.
        config: its scale c and settings; its six weights are not read.
    Returns: by term name; nan for a data set without an active position.
    Raises: ValueError if the reference was prepared with other settings.
    Source: docs/loss_stack.md, section 5.
    """
    reference.check_settings(config)
    mean = _ratio(reference.statistics.example_weight, reference.statistics.present)
    divisors = term_divisors(config, None, mean)
    totals = dict(zip(reference.weightings, reference.weights.sum(2).sum(1, dtype=torch.float64).tolist(), strict=True))
    tokens = float(reference.statistics.token_count.sum(dtype=torch.float64))
    return {
        name: totals[term.weighting] / float(divisors[term.divided_by]) / tokens if tokens else math.nan
        for name, term in TERMS.items()
    }


def mean_effective_token_weight(mean_weights: Mapping[str, float], config: ReconstructionLossConfig) -> float:
    """Mean effective token weight of the objective: sum_k lambda_k times what `mean_token_weights` has of term k.

    Source: docs/loss_stack.md, section 5.
    """
    return sum(_weighted(mean_weights, config).values())


def term_shares(mean_weights: Mapping[str, float], config: ReconstructionLossConfig) -> dict[str, float]:
    """Each term's share of the mean effective token weight, by term name; nan where that is 0.

    Source: docs/loss_stack.md, section 5.
    """
    total = mean_effective_token_weight(mean_weights, config)
    return {name: part / total if total else math.nan for name, part in _weighted(mean_weights, config).items()}


def effective_coefficient(coefficient: float, mean_weight: float) -> float:
    """beta_eff of beta, or mu_eff of mu: relative to the mean effective token weight.

    beta_eff = beta sum_b n_b / (N sum_bt W_bt) over the training set; 1 is the ELBO.

    Args:
        coefficient: beta or mu.
        mean_weight: what `mean_effective_token_weight` returns.
    Returns: nan where that is 0.
    Source: docs/loss_stack.md, section 5.
    """
    return coefficient / mean_weight if mean_weight else math.nan


def _weighted(mean_weights: Mapping[str, float], config: ReconstructionLossConfig) -> dict[str, float]:
    return {name: float(getattr(config, term.weight_field)) * mean_weights[name] for name, term in TERMS.items()}


def _ratio(numerator: Tensor, denominator: Tensor) -> float:
    total = float(denominator.sum(dtype=torch.float64))
    return float(numerator.sum(dtype=torch.float64)) / total if total else math.nan
