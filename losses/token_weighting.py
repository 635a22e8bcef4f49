"""Token and example weights from a frozen z-free reference, their correction factors and diagnostics.

Everything here is detached, and in float32, or float64 where the surprisal is.
"""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import torch
from torch import Tensor

from losses.config import Number, ReconstructionLossConfig, TokenAggregation, field_problem
from losses.nll import active_only, check_mask, position_divisor

#: Diagnostics take no weight to be smaller than this.
SMALLEST_WEIGHT = 2.0**-23

#: An epsilon is taken to be no smaller, in nats: its reciprocal, summed, stays in float32; and no larger: beside it
#: every surprisal is nothing.
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-20, 1e30


class _SmallUnits(NamedTuple):
    """Units of surprisal in which no number is subnormal.

    Attributes:
        per_nat: how many they are.
        nothing: so many are nothing (2^-60) beside the smallest number that a surprisal can be.
    """

    per_nat: float
    nothing: float


def _small_units(dtype: torch.dtype) -> _SmallUnits:
    numbers = torch.finfo(dtype)
    return _SmallUnits(2.0**68 / numbers.eps, 2.0**8 * numbers.tiny)


_SMALL_UNITS = {dtype: _small_units(dtype) for dtype in (torch.float32, torch.float64)}


def surprisal_share_token_weights(surprisal: Tensor, mask: Tensor, alpha: Number) -> Tensor:
    """Token weights that favour what the reference finds hard: its tempered share of the surprisal.

    w_bt = n_b s_bt^alpha / sum_u s_bu^alpha over the active positions of example b. A surprisal of 0 has
    weight 0 when alpha > 0; uniform where all are 0, and for alpha = 0.

    Args:
        surprisal: [B, L], nats, from the frozen z-free reference. Read only where active, clamped to >= 0.
        mask: [B, L] bool, true where active.
        alpha: 0 is uniform, 1 the plain share (the exponent convention of Schaul et al. 2016).
    Returns: [B, L], mean one over each example's active positions, 0 elsewhere, detached, float32 or wider.
    Raises: ValueError if the shapes differ, the mask is not bool or alpha is outside [0, 100].
    Source: docs/loss_stack.md, section 2.
    """
    _check(surprisal, mask, "token_weight_alpha", alpha)
    s = _clean(surprisal, mask)
    active = mask.to(s.dtype)
    weights, _ = _mean_one(torch.stack([_share(s, _never_zero(s, active), active, alpha), active]))
    return weights[0].detach()


def inverse_surprisal_token_weights(surprisal: Tensor, mask: Tensor, epsilon: Number) -> Tensor:
    """Token weights that favour what the reference finds easy.

    v_bt = n_b (s_bt + eps)^-1 / sum_u (s_bu + eps)^-1 over the active positions of example b.

    Args:
        surprisal: [B, L], nats, from the frozen z-free reference. Read only where active, clamped to >= 0.
        mask: [B, L] bool, true where active.
        epsilon: > 0, nats.
    Returns: [B, L], mean one over each example's active positions, 0 elsewhere, detached, float32 or wider.
    Raises: ValueError if the shapes differ, the mask is not bool or epsilon <= 0.
    Source: docs/loss_stack.md, section 2.
    """
    _check(surprisal, mask, "inverse_surprisal_token_weight_epsilon", epsilon)
    s = _clean(surprisal, mask)
    active = mask.to(s.dtype)
    weights, _ = _mean_one(torch.stack([active / _plus(s, epsilon), active]))
    return weights[0].detach()


class ReferenceWeights(NamedTuple):
    """What the terms' weight matrices are made from; 0 where inactive and where n_b = 0.

    Attributes:
        uniform: [n, L], 1 under token_sum, 1/n_b under token_mean.
        share: [n, L], w_bt times `uniform`.
        inverse: [n, L], v_bt times `uniform`.
        concentration: [n, 1], kappa_b = sum_t w_bt s_bt / sum_t s_bt >= 1; 1 where undefined.
        base_scale: [n, 1], gamma_b = sum_t s_bt / sum_t v_bt s_bt >= 1; 1 where undefined.
        example: [n, 1], max(1, eps) / (S_b + eps), which is e_b up to its mean.
    """

    uniform: Tensor
    share: Tensor
    inverse: Tensor
    concentration: Tensor
    base_scale: Tensor
    example: Tensor


class ExampleStatistics(NamedTuple):
    """What else the reference says of each example; each [n], 0 where n_b = 0, so that a sum is over the others."""

    present: Tensor
    """1 where n_b > 0."""
    token_count: Tensor
    """n_b."""
    reference_loss: Tensor
    """S_b, nats."""
    example_weight: Tensor
    """max(1, eps) / (S_b + eps)."""
    concentration: Tensor
    """kappa_b."""
    base_scale: Tensor
    """gamma_b."""
    share_effective_count: Tensor
    """Kish's (sum_t w)^2 / sum_t w^2."""
    inverse_effective_count: Tensor
    """The same of v."""
    share_max: Tensor
    """Largest w_bt."""
    inverse_max: Tensor
    """Largest v_bt."""
    share_min_reciprocal: Tensor
    """1 / max(min_t w_bt, 2^-23)."""
    inverse_min_reciprocal: Tensor
    """The same of v."""


def reference_weights(
    surprisal: Tensor, mask: Tensor, config: ReconstructionLossConfig
) -> tuple[ReferenceWeights, Tensor]:
    """Everything that the frozen reference decides, example by example; and [12, n], the rows of ExampleStatistics.

    Args:
        surprisal: [n, L], nats. Read only where active, clamped to >= 0.
        mask: [n, L] bool, true where active.
        config: its alpha, epsilons and aggregation are used.
    Returns: float32, or float64 where the surprisal is.
    Source: docs/loss_stack.md, sections 2 and 4.
    """
    s = _clean(surprisal, mask)
    active = mask.to(s.dtype)
    never_zero = _never_zero(s, active)
    share = _share(s, never_zero, active, config.token_weight_alpha)
    inverse = active / _plus(s, config.inverse_surprisal_token_weight_epsilon)
    # Share, uniform and inverse weights go through the same steps, as one tensor [3, n, L].
    weights, count = _mean_one(torch.stack([share, active, inverse]))
    # All are the smallest number where there is no position, and their ratio is 1.
    totals = (weights * never_zero).sum(-1, keepdim=True) + torch.finfo(s.dtype).tiny
    # Of neighbours: kappa is share over uniform, gamma uniform over inverse; >= 1 but for rounding.
    factors = (totals[:2] / totals[1:]).clamp(min=1)
    reference_loss = _aggregated(totals[1] / _SMALL_UNITS[s.dtype].per_nat, count, config.token_aggregation)
    present = count.clamp(max=1)
    example = present / _plus(reference_loss, config.example_inverse_surprisal_epsilon)
    unit = example_weight_unit(config)
    if isinstance(unit, Tensor) or unit != 1:
        example = example * _bounded(unit, s.dtype)

    by_family = weights[::2]
    effective_counts = count * count / (by_family * by_family).sum(-1, keepdim=True).clamp(min=1)
    smallest_reciprocal = amax(active / by_family.clamp(min=SMALLEST_WEIGHT))
    of_example = torch.stack([present, count, reference_loss, example])
    statistics = torch.cat([of_example, present * factors, effective_counts, amax(by_family), smallest_reciprocal])
    share, uniform, inverse = _aggregated(weights, count, config.token_aggregation).unbind()
    concentration, base_scale = factors.unbind()
    return ReferenceWeights(uniform, share, inverse, concentration, base_scale, example), statistics.squeeze(-1)


def example_weight_unit(config: ReconstructionLossConfig) -> Number:
    """max(1, eps): in units of its reciprocal, (S_b + eps)^-1 stays in float32 however large eps is."""
    epsilon = config.example_inverse_surprisal_epsilon
    return epsilon.clamp(min=1) if isinstance(epsilon, Tensor) else max(1.0, epsilon)


def _clean(surprisal: Tensor, mask: Tensor) -> Tensor:
    """The surprisal, detached, >= 0, and 0 where inactive whatever stands there."""
    return active_only(surprisal.detach(), mask).clamp(min=0)


def _never_zero(s: Tensor, active: Tensor) -> Tensor:
    """A clean surprisal in small units; where active, it is > 0, and all equal where all are 0."""
    units = _SMALL_UNITS[s.dtype]
    return torch.add(s * units.per_nat, active, alpha=units.nothing)


def _share(s: Tensor, never_zero: Tensor, active: Tensor, alpha: Number) -> Tensor:
    """s^alpha of a clean surprisal, up to a factor for each example; 0 where inactive.

    Relative to the example's largest surprisal no power overflows, 0^0 = 1 makes alpha = 0 uniform, and an
    example whose surprisals are all 0 is taken as one whose surprisals are all equal.
    """
    if not isinstance(alpha, Tensor) and alpha == 1:
        return never_zero
    largest = amax(s)
    # In float32 an exponent of 100 would make an error of 1e-5 out of one rounding.
    return (torch.where(largest > 0, s.double() / largest, 1.0) ** alpha).to(s.dtype) * active


def _plus(nats: Tensor, epsilon: Number) -> Tensor:
    return nats + _bounded(epsilon, nats.dtype)


def _bounded(epsilon: Number, dtype: torch.dtype) -> Number:
    if isinstance(epsilon, Tensor):
        return epsilon.to(dtype).clamp(SMALLEST_EPSILON, LARGEST_EPSILON)
    return min(max(epsilon, SMALLEST_EPSILON), LARGEST_EPSILON)


def _mean_one(weights: Tensor) -> tuple[Tensor, Tensor]:
    """The weights [F, n, L], 0 where inactive, scaled to mean one over the active positions; and n_b [n, 1].

    The second of them is the mask, whose sum is n_b.
    """
    totals = weights.sum(-1, keepdim=True)
    count = totals[1]
    return weights * (count / totals.clamp(min=torch.finfo(weights.dtype).tiny)), count


def _aggregated(sums: Tensor, count: Tensor, aggregation: TokenAggregation) -> Tensor:
    """Sums over the positions of an example as the aggregation has them."""
    return sums if aggregation == "token_sum" else sums / position_divisor(count, aggregation)


def amax(values: Tensor) -> Tensor:
    """Largest along the last dimension, which is kept; 0 where it has no entries."""
    return values.amax(-1, keepdim=True) if values.shape[-1] else values.sum(-1, keepdim=True)


def _check(surprisal: Tensor, mask: Tensor, name: str, value: Number) -> None:
    """Raise ValueError for shapes that differ, or a value that the configuration's field would refuse."""
    check_mask(mask, surprisal=surprisal)
    field = next(f for f in fields(ReconstructionLossConfig) if f.name == name)
    problem = field_problem(value, field.metadata)
    if problem is not None:
        raise ValueError(f"{name}: {problem}")
