"""The six reconstruction terms: one table, one cross entropy, one weighted sum.

Every term is linear in the token NLL x: L_k = sum_bt W_k,bt x_bt with a detached weight matrix W_k that the
frozen reference decides. So the objective is one contraction, sum_bt W_bt x_bt with W = sum_k lambda_k W_k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from losses.config import Number, ReconstructionLossConfig
from losses.nll import active_only, check_mask
from losses.token_weighting import PreparedReference, prepare_reference, reference_diagnostics


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


class TermContext(NamedTuple):
    """What a term's weights are made from.

    Attributes:
        reference: of the batch, or of the data set.
        uniform: [B, L], the uniform token weights under the aggregation: 1 or 1/n_b where active, else 0.
        scale: c, `zfree_reference_scale`.
        example_weight_mean: <(S + eps)^-1>, in the units of `reference.example_weight`.
    """

    reference: PreparedReference
    uniform: Tensor
    scale: Number
    example_weight_mean: Number


def uniform_weights(context: TermContext) -> Tensor:
    """<l_b(1)>: every active position counts the same, [B, L]."""
    return context.uniform


def distribution_normalized_weights(context: TermContext) -> Tensor:
    """<l_b(1)> / c, [B, L]."""
    return context.uniform / context.scale


def example_inverse_surprisal_weights(context: TermContext) -> Tensor:
    """<e_b l_b(1)> with e_b = (S_b + eps)^-1 / <(S + eps)^-1>, [B, L]."""
    return context.uniform * (context.reference.example_weight / context.example_weight_mean).unsqueeze(-1)


def surprisal_share_weights(context: TermContext) -> Tensor:
    """<l_b(w)>, [B, L]."""
    reference = context.reference
    return reference.share * reference.position_weight.unsqueeze(-1)


def concentration_corrected_weights(context: TermContext) -> Tensor:
    """<l_b(w) / kappa_b> / c, [B, L]."""
    reference = context.reference
    return reference.share * (reference.position_weight / (reference.token_concentration * context.scale)).unsqueeze(-1)


def scale_corrected_inverse_weights(context: TermContext) -> Tensor:
    """<gamma_b l_b(v)> / c, [B, L]."""
    reference = context.reference
    return reference.inverse * (reference.position_weight * reference.inverse_base_scale / context.scale).unsqueeze(-1)


def inverse_base_weights(context: TermContext) -> Tensor:
    """<l_b(v)>, before the correction, [B, L]: a diagnostic."""
    reference = context.reference
    return reference.inverse * reference.position_weight.unsqueeze(-1)


def reconstruction_losses(
    nll: Tensor,
    mask: Tensor,
    reference: Tensor | PreparedReference,
    config: ReconstructionLossConfig,
    example_weight_mean: Number | None = None,
) -> ReconstructionLosses:
    """The six terms, their weighted sum and the ten diagnostics of a batch.

    L_k = sum_bt W_k,bt x_bt and J_recon = sum_k lambda_k L_k, every <.> over the examples with n_b > 0.

    Args:
        nll: [B, L], x, nats. Read only where active.
        mask: [B, L] bool, true where active.
        reference: [B, L] surprisal in nats, or what `prepare_reference` made of it under the same mask.
        config: the weights lambda_k and settings.
        example_weight_mean: the data set's <(S + eps)^-1>, which makes the loss of a batch the mean over its
            micro-batches; None: the batch's own.
    Returns: see ReconstructionLosses.
    Raises: ValueError if the shapes differ, the mask is not bool, or the reference was prepared with other settings.
    Source: docs/loss_stack.md, sections 3 and 4.
    """
    check_mask(mask, nll=nll)
    prepared = _prepared(reference, mask, config)
    x = active_only(nll, mask)
    with torch.no_grad():
        count = prepared.present.sum().clamp(min=1)
        context = _context(prepared, mask, config, example_weight_mean, count)
        matrices = [term.weights(context) for term in TERMS.values()]
        weights = torch.stack([*matrices, inverse_base_weights(context)]) / count
        effective = _weighted_sum(weights[:-1].unbind(), config)
        diagnostics = reference_diagnostics(prepared)
    values = (weights * x).sum((-2, -1)).unbind()
    terms = dict(zip(TERMS, values[:-1], strict=True))
    diagnostics["token_weighted_base_loss"] = terms["token_weighted_reconstruction_loss"].detach()
    diagnostics["inverse_token_weighted_base_loss"] = values[-1].detach()
    return ReconstructionLosses(terms, diagnostics, (effective * x).sum(), effective)


def term_weight_matrices(
    reference: PreparedReference,
    mask: Tensor,
    config: ReconstructionLossConfig,
    example_weight_mean: Number | None = None,
) -> dict[str, Tensor]:
    """Each term's weight matrix W_k for lambda_k = 1, times the number of examples with n_b > 0.

    L_k = sum_bt W_k,bt x_bt, and these are N W_k, so that they do not depend on how many examples are looked at.

    Args: as `reconstruction_losses` takes them.
    Returns: [n, L] by term name, detached, 0 where inactive.
    Raises: as `reconstruction_losses`.
    Source: docs/loss_stack.md, section 3.
    """
    prepared = _prepared(reference, mask, config)
    count = prepared.present.sum().clamp(min=1)
    context = _context(prepared, mask, config, example_weight_mean, count)
    return {name: term.weights(context) for name, term in TERMS.items()}


def _prepared(
    reference: Tensor | PreparedReference, mask: Tensor, config: ReconstructionLossConfig
) -> PreparedReference:
    if isinstance(reference, Tensor):
        return prepare_reference(reference, mask, config)
    reference.check_settings(config)
    check_mask(mask, reference=reference.share)
    return reference


def _context(
    reference: PreparedReference,
    mask: Tensor,
    config: ReconstructionLossConfig,
    example_weight_mean: Number | None,
    count: Tensor,
) -> TermContext:
    uniform = reference.position_weight.unsqueeze(-1) * mask
    if example_weight_mean is None:
        mean: Number = (reference.example_weight.sum() / count).clamp(min=torch.finfo(uniform.dtype).tiny)
    else:
        mean = example_weight_mean * reference.example_weight_unit
    return TermContext(reference, uniform, config.zfree_reference_scale, mean)


def _weighted_sum(matrices: Sequence[Tensor], config: ReconstructionLossConfig) -> Tensor:
    """W = sum_k lambda_k W_k over the terms, in the order of the table."""
    total = torch.zeros_like(matrices[0])
    for term, matrix in zip(TERMS.values(), matrices, strict=True):
        total = total + getattr(config, term.weight_field) * matrix
    return total


@dataclass(frozen=True)
class Term:
    """A reconstruction term.

    Attributes:
        weight_field: the field of ReconstructionLossConfig that holds lambda_k.
        weights: makes N W_k, [B, L], from what the reference says; 0 where inactive, detached.
    """

    weight_field: str
    weights: Callable[[TermContext], Tensor]


#: The terms by name. To add one: a function above, a line here, a weight field in ReconstructionLossConfig.
TERMS: dict[str, Term] = {
    "reconstruction_loss": Term("raw_weight", uniform_weights),
    "distribution_normalized_reconstruction_loss": Term(
        "distribution_normalized_weight", distribution_normalized_weights
    ),
    "example_inverse_surprisal_weighted_reconstruction_loss": Term(
        "example_inverse_surprisal_weight", example_inverse_surprisal_weights
    ),
    "token_weighted_reconstruction_loss": Term("token_weighted_weight", surprisal_share_weights),
    "normalized_concentration_corrected_token_weighted_reconstruction_loss": Term(
        "normalized_concentration_corrected_token_weighted_weight", concentration_corrected_weights
    ),
    "normalized_inverse_surprisal_token_weighted_reconstruction_loss": Term(
        "normalized_inverse_surprisal_token_weighted_weight", scale_corrected_inverse_weights
    ),
}
