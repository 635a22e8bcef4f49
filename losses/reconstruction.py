"""The six reconstruction terms: one table, one cross entropy, one weighted sum.

Every term is linear in the token NLL x: L_k = sum_bt W_k,bt x_bt, with a detached weight matrix W_k that the
frozen reference decides. So the objective is one contraction, sum_bt W_bt x_bt with W = sum_k lambda_k W_k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from losses.config import Number, ReconstructionLossConfig
from losses.nll import active_only, check_mask
from losses.prepared_reference import (
    REFERENCE_DIAGNOSTICS,
    PreparedReference,
    Weighting,
    concatenate_references,
)
from losses.token_weighting import (
    ReferenceWeights,
    example_weight_unit,
    reference_weights,
)

#: Positions of a table that `prepare_reference` looks at together.
POSITIONS_AT_ONCE = 2**20

Divisor = Literal["one", "zfree_reference_scale", "example_weight_mean"]


class ReconstructionLosses(NamedTuple):
    """What a batch's token NLL comes to.

    Attributes:
        terms: the six terms by name, scalars that carry gradients.
        diagnostics: the ten diagnostics by name, detached scalars.
        objective: J_recon, a scalar that carries gradients.
        effective_token_weights: [B, L], W, detached: dJ_recon/dx.
    """

    terms: dict[str, Tensor]
    diagnostics: dict[str, Tensor]
    objective: Tensor
    effective_token_weights: Tensor


def uniform(reference: ReferenceWeights) -> Tensor:
    """The weights of l_b(1): every active position counts the same."""
    return reference.uniform


def example_inverse_surprisal(reference: ReferenceWeights) -> Tensor:
    """The weights of e_b l_b(1), e_b = (S_b + eps)^-1 / <(S + eps)^-1>, up to that mean."""
    return reference.uniform * reference.example


def surprisal_share(reference: ReferenceWeights) -> Tensor:
    """The weights of l_b(w)."""
    return reference.share


def concentration_corrected_share(reference: ReferenceWeights) -> Tensor:
    """The weights of l_b(w) / kappa_b."""
    return reference.share / reference.concentration


def inverse_surprisal(reference: ReferenceWeights) -> Tensor:
    """The weights of l_b(v)."""
    return reference.inverse


def scale_corrected_inverse(reference: ReferenceWeights) -> Tensor:
    """The weights of gamma_b l_b(v)."""
    return reference.inverse * reference.base_scale


def prepare_reference(surprisal: Tensor, mask: Tensor, config: ReconstructionLossConfig) -> PreparedReference:
    """All that depends on the frozen reference alone: the terms' weight matrices and statistics of each example.

    A large table is gone through in parts, so that besides the result (six times the table) little is held.

    Args:
        surprisal: [n, L], nats, from the frozen z-free reference. Read only where active, clamped to >= 0.
        mask: [n, L] bool, true where active.
        config: its alpha, epsilons and aggregation are used, and remembered.
    Returns: detached, in float32, or float64 where the surprisal is.
    Raises: ValueError if the shapes differ or the mask is not bool.
    Source: docs/loss_stack.md, sections 2 to 4.
    """
    check_mask(mask, surprisal=surprisal)
    examples, length = mask.shape
    rows = max(1, POSITIONS_AT_ONCE // max(1, length))
    if examples > rows:
        parts = zip(torch.split(surprisal, rows), torch.split(mask, rows), strict=True)
        return concatenate_references([prepare_reference(*part, config) for part in parts])
    weights, statistics = reference_weights(surprisal, mask, config)
    weightings = tuple(dict.fromkeys([*(term.weighting for term in TERMS.values()), inverse_surprisal]))
    return PreparedReference(
        torch.stack([weighting(weights) for weighting in weightings]).detach(),
        statistics.detach(),
        weightings,
        config.token_weight_alpha,
        config.example_inverse_surprisal_epsilon,
        config.inverse_surprisal_token_weight_epsilon,
        config.token_aggregation,
    )


def reconstruction_losses(
    nll: Tensor,
    mask: Tensor,
    reference: Tensor | PreparedReference,
    config: ReconstructionLossConfig,
    example_weight_mean: Number | None = None,
) -> ReconstructionLosses:
    """The six terms, their weighted sum and the ten diagnostics of a batch.

    L_k = sum_bt W_k,bt x_bt and J_recon = sum_k lambda_k L_k, every mean over the examples with n_b > 0.

    Args:
        nll: [B, L], x, nats. Read only where active.
        mask: [B, L] bool, true where active.
        reference: [B, L] surprisal in nats, or what `prepare_reference` made of it under the same mask.
        config: the weights lambda_k and the settings.
        example_weight_mean: the data set's <(S + eps)^-1>, with which the loss of a batch is the mean over its
            micro-batches; None: the batch's own.
    Raises: ValueError if the shapes differ, the mask is not bool, the reference was prepared with other settings,
        or example_weight_mean is a number that is not positive and finite.
    Source: docs/loss_stack.md, sections 3 and 4.
    """
    prepared = prepare_reference(reference, mask, config) if isinstance(reference, Tensor) else reference
    prepared.check_settings(config)
    matrices = prepared.matrices
    check_mask(mask, nll=nll, reference=matrices[uniform])
    x = active_only(nll, mask)
    divisors, count = _divisors(config, example_weight_mean, prepared), prepared.batch.example_count
    totals = (prepared.weights * x).sum((1, 2)) / count
    losses = dict(zip(prepared.weightings, totals.unbind(), strict=True))
    terms = {name: _divided(losses[term.weighting], term.divided_by, divisors) for name, term in TERMS.items()}
    # In memory of their own: whoever adds them up must not change the reference.
    detached = torch.cat([prepared.batch.diagnostics, totals.detach()]).unbind()
    base_losses = dict(zip(prepared.weightings, detached[len(REFERENCE_DIAGNOSTICS) :], strict=True))
    diagnostics = {
        "token_weighted_base_loss": base_losses[surprisal_share],
        "inverse_token_weighted_base_loss": base_losses[inverse_surprisal],
        **dict(zip(REFERENCE_DIAGNOSTICS, detached, strict=False)),
    }
    weights = _weighted_sum(matrices, config, divisors) / count
    return ReconstructionLosses(terms, diagnostics, (weights * x).sum(), weights)


def effective_token_weights(
    reference: PreparedReference, config: ReconstructionLossConfig, example_weight_mean: Number | None = None
) -> Tensor:
    """W = sum_k lambda_k W_k of a batch, known before the model is: J_recon = sum_bt W_bt x_bt.

    Args: as `reconstruction_losses` takes them.
    Returns: [B, L], detached, 0 where inactive.
    Raises: ValueError as `reconstruction_losses`.
    Source: docs/loss_stack.md, section 3.
    """
    reference.check_settings(config)
    divisors = _divisors(config, example_weight_mean, reference)
    return _weighted_sum(reference.matrices, config, divisors) / reference.batch.example_count


def effective_token_weight_table(
    reference: PreparedReference, config: ReconstructionLossConfig, example_weight_mean: Number
) -> Tensor:
    """N W = sum_k lambda_k N W_k of every example of a data set, for training steps that log nothing.

    Whatever examples a batch has, its J_recon is sum_bt (N W)_bt x_bt / N, N of them with n_b > 0: made once, it
    leaves a step one gather and one contraction.

    Args:
        reference: of the data set.
        config: as `reconstruction_losses` takes it.
        example_weight_mean: the data set's <(S + eps)^-1>.
    Returns: [n, L], detached, 0 where inactive.
    Raises: ValueError as `reconstruction_losses`.
    Source: docs/loss_stack.md, section 3.
    """
    reference.check_settings(config)
    return _weighted_sum(reference.matrices, config, term_divisors(config, example_weight_mean))


def term_weight_matrices(
    reference: PreparedReference, config: ReconstructionLossConfig, example_weight_mean: Number | None = None
) -> dict[str, Tensor]:
    """Each term's weight matrix times the number of examples: N W_k with L_k = sum_bt W_k,bt x_bt.

    Args: as `reconstruction_losses` takes them.
    Returns: [n, L] by term name, detached, 0 where inactive.
    Raises: ValueError as `reconstruction_losses`.
    Source: docs/loss_stack.md, section 3.
    """
    reference.check_settings(config)
    matrices = reference.matrices
    divisors = _divisors(config, example_weight_mean, reference)
    return {name: _divided(matrices[term.weighting], term.divided_by, divisors) for name, term in TERMS.items()}


def term_divisors(
    config: ReconstructionLossConfig, example_weight_mean: Number | None, batch_mean: Number = math.nan
) -> dict[Divisor, Number]:
    """What the mean weighted NLL of a term is divided by.

    Args:
        config: its scale c and epsilon are used.
        example_weight_mean: <(S + eps)^-1>, or None.
        batch_mean: what stands for it then, in the units of `ExampleStatistics.example_weight`.
    Raises: ValueError if example_weight_mean is a number that is not positive and finite.
    """
    if example_weight_mean is None:
        mean = batch_mean
    elif isinstance(example_weight_mean, Tensor) or 0 < example_weight_mean < math.inf:
        mean = example_weight_mean * example_weight_unit(config)
    else:
        raise ValueError(f"example_weight_mean: got {example_weight_mean!r}; allowed: a finite number > 0")
    return {"one": 1, "zfree_reference_scale": config.zfree_reference_scale, "example_weight_mean": mean}


def _divisors(
    config: ReconstructionLossConfig, example_weight_mean: Number | None, reference: PreparedReference
) -> dict[Divisor, Number]:
    """The divisors of a batch, whose own mean example weight stands in for the data set's where that is not given."""
    if example_weight_mean is not None:
        return term_divisors(config, example_weight_mean)
    mean = reference.batch.example_weight
    # Not 0 for a batch without an active position.
    return term_divisors(config, None, mean.clamp(min=torch.finfo(mean.dtype).tiny))


def _divided(value: Tensor, by: Divisor, divisors: dict[Divisor, Number]) -> Tensor:
    return value if by == "one" else value / divisors[by]


def _weighted_sum(
    matrices: dict[Weighting, Tensor], config: ReconstructionLossConfig, divisors: dict[Divisor, Number]
) -> Tensor:
    """N W = sum_k lambda_k N W_k, [B, L]. Terms that share a weighting are added up before they meet its matrix."""
    coefficients: dict[Weighting, Number] = {}
    for term in TERMS.values():
        coefficient = getattr(config, term.weight_field) / divisors[term.divided_by]
        coefficients[term.weighting] = coefficients.get(term.weighting, 0.0) + coefficient
    used = {key: value for key, value in coefficients.items() if isinstance(value, Tensor) or value != 0}
    first, *others = (used or coefficients).items()
    total = matrices[first[0]] * first[1]
    for weighting, coefficient in others:
        if isinstance(coefficient, Tensor):
            total = total + coefficient * matrices[weighting]
        else:  # one operation where the other takes two
            total = torch.add(total, matrices[weighting], alpha=coefficient)
    return total.detach()


@dataclass(frozen=True)
class Term:
    """A reconstruction term.

    Attributes:
        weight_field: the field of ReconstructionLossConfig that holds lambda_k.
        weighting: makes its weight matrix [n, L] from what the reference says, up to the divisor; 0 where inactive.
        divided_by: what the weighted NLL, averaged over the examples with n_b > 0, is divided by.
    """

    weight_field: str
    weighting: Weighting
    divided_by: Divisor = "one"


#: The terms by name. To add one: a function above, a line here, and its weight in ReconstructionLossConfig.
TERMS: dict[str, Term] = {
    "reconstruction_loss": Term("raw_weight", uniform),
    "distribution_normalized_reconstruction_loss": Term(
        "distribution_normalized_weight", uniform, "zfree_reference_scale"
    ),
    "example_inverse_surprisal_weighted_reconstruction_loss": Term(
        "example_inverse_surprisal_weight", example_inverse_surprisal, "example_weight_mean"
    ),
    "token_weighted_reconstruction_loss": Term("token_weighted_weight", surprisal_share),
    "normalized_concentration_corrected_token_weighted_reconstruction_loss": Term(
        "normalized_concentration_corrected_token_weighted_weight",
        concentration_corrected_share,
        "zfree_reference_scale",
    ),
    "normalized_inverse_surprisal_token_weighted_reconstruction_loss": Term(
        "normalized_inverse_surprisal_token_weighted_weight", scale_corrected_inverse, "zfree_reference_scale"
    ),
}
