"""Token negative log-likelihood, scored once, and its aggregations over the positions of an example."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from losses.config import TokenAggregation, nearest
from losses.cross_entropy import cross_entropy


def masked_token_nll_per_position(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Token NLL under the decoder, the one cross entropy of a step.

    x_bt = -log softmax(logits_bt)[targets_bt] where active, exactly 0 elsewhere.

    Logits of all T positions can be scored against shifted targets, the last position masked: a slice
    `logits[:, :-1]` would be copied.

    Args:
        logits: [B, L, V], aligned: logits[b, t] scores targets[b, t]. bf16 and fp16 are scored in float32.
        targets: [B, L] int64. Read only where active; may hold anything elsewhere. x is 0 for the target -100.
        mask: [B, L] bool, true where active. Neither may change before the backward.
    Returns: [B, L], nats, float32 or wider.
    Raises: ValueError if the shapes disagree, the mask is not bool or the targets are not int64; IndexError on the CPU
        for an active target that is neither a class nor -100.
    Source: docs/loss_stack.md, section 1.
    """
    check_mask(mask, targets=targets)
    check_targets(targets)
    if logits.shape[:-1] != mask.shape:
        raise ValueError(f"logits: got shape {tuple(logits.shape)}; allowed: {(*mask.shape, 'V')} as the mask has it")
    return cross_entropy(at_least_float32(logits), targets, mask)


def masked_token_nll_per_example(nll: Tensor, mask: Tensor, aggregation: TokenAggregation) -> Tensor:
    """Loss of each example with uniform token weights, l_b(1).

    l_b(1) = sum_t x_bt under token_sum, sum_t x_bt / n_b under token_mean, over active positions; 0 where n_b = 0.

    Args:
        nll: [B, L], nats. Read only where active.
        mask: [B, L] bool, true where active.
        aggregation: `token_sum` or `token_mean`.
    Returns: [B], nats.
    Raises: ValueError if the shapes disagree, the mask is not bool or the aggregation is unknown.
    Source: docs/loss_stack.md, section 1.
    """
    check_mask(mask, nll=nll)
    return active_only(nll, mask).sum(-1) / position_divisor(mask.sum(-1), aggregation)


def token_weighted_masked_nll_per_example(
    nll: Tensor, mask: Tensor, weights: Tensor, aggregation: TokenAggregation
) -> Tensor:
    """Loss of each example with token weights, l_b(w).

    l_b(w) = sum_t w_bt x_bt under token_sum, sum_t w_bt x_bt / n_b under token_mean, over active positions.

    Args:
        nll: [B, L], nats. Read only where active.
        mask: [B, L] bool, true where active.
        weights: [B, L], mean one over each example's active positions. Read only where active; detached.
        aggregation: `token_sum` or `token_mean`.
    Returns: [B], nats.
    Raises: ValueError if the shapes disagree, the mask is not bool or the aggregation is unknown.
    Source: docs/loss_stack.md, section 1.
    """
    check_mask(mask, nll=nll, weights=weights)
    weighted = active_only(weights.detach(), mask) * active_only(nll, mask)
    return weighted.sum(-1) / position_divisor(mask.sum(-1), aggregation)


def mean_over_examples(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the examples that have an active position, <values_b>; 0 where there is none.

    Args:
        values: [B, ...]. Read only for examples with n_b > 0.
        mask: [B, L] bool, true where active; or [B], true for the examples that take part.
    Returns: [...]
    Raises: ValueError if the batch sizes disagree or the mask is not bool.
    Source: docs/loss_stack.md, section 1.
    """
    if mask.dtype != torch.bool or mask.shape[0] != values.shape[0]:
        raise ValueError(f"mask: got {mask.dtype} {tuple(mask.shape)}; allowed: bool of {values.shape[0]} examples")
    present = mask.flatten(1).any(-1) if mask.dim() > 1 else mask
    count = present.sum().clamp(min=1)
    return active_only(values, present.view(-1, *[1] * (values.dim() - 1))).sum(0) / count


def position_divisor(count: Tensor, aggregation: TokenAggregation) -> Tensor:
    """What a position's loss is divided by, of the shape of `count`, n_b: 1, or under token_mean n_b (at least 1)."""
    if aggregation == "token_sum":
        return torch.ones_like(count)
    if aggregation == "token_mean":
        return count.clamp(min=1)
    raise ValueError(f"token_aggregation: got {aggregation!r}; {nearest(aggregation, get_args(TokenAggregation))}")


def active_only(values: Tensor, mask: Tensor) -> Tensor:
    """The values where active, 0 elsewhere, in float32 or wider; nothing under the mask reaches value or gradient."""
    return torch.where(mask, at_least_float32(values), 0.0)


def at_least_float32(values: Tensor) -> Tensor:
    """The values in float32, or as they are where they are wider."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def check_mask(mask: Tensor, **aligned: Tensor) -> None:
    """Raise ValueError unless the mask is bool and everything aligned to it has its shape."""
    if mask.dtype != torch.bool:
        raise ValueError(f"mask: got dtype {mask.dtype}; allowed: torch.bool (mask.bool())")
    for name, values in aligned.items():
        if values.shape != mask.shape:
            raise ValueError(
                f"{name}: got shape {tuple(values.shape)}; allowed: {tuple(mask.shape)} as the mask has it"
            )


def check_targets(targets: Tensor) -> None:
    """Raise ValueError unless the targets are int64."""
    if targets.dtype != torch.int64:
        raise ValueError(f"targets: got dtype {targets.dtype}; allowed: torch.int64 (targets.long())")
