"""Token and example weights from a frozen z-free reference, and all else that depends on it alone.

Everything here is detached, and computed in float64 whatever the surprisal's type: an exponent of 100
would turn a rounding of the logarithm in float32 into an error of 1e-4 in a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from losses.config import Number, ReconstructionLossConfig, TokenAggregation, field_problem
from losses.nll import active_only, check_mask, position_weight


def surprisal_share_token_weights(surprisal: Tensor, mask: Tensor, alpha: Number) -> Tensor:
    """Token weights that favour what the reference finds hard: its tempered share of the surprisal.

    w_bt = n_b s_bt^alpha / sum_u s_bu^alpha over the active positions of example b, computed as
    n_b softmax_t(alpha log s). A surprisal of 0 has weight 0 when alpha > 0; uniform where all are 0.

    Args:
        surprisal: [B, L], nats, from the frozen z-free reference. Read only where active, clamped to >= 0.
        mask: [B, L] bool, true where active.
        alpha: 0 is uniform, 1 the plain share (the exponent convention of Schaul et al. 2016).
    Returns: [B, L], mean one over each example's active positions, 0 elsewhere, detached.
    Raises: ValueError if the shapes differ, the mask is not bool or alpha is outside [0, 100].
    Source: docs/loss_stack.md, section 2.
    """
    _check(surprisal, mask, token_weight_alpha=alpha)
    return _share_weights(_clean(surprisal, mask), mask, alpha).to(_output_dtype(surprisal))


def inverse_surprisal_token_weights(surprisal: Tensor, mask: Tensor, epsilon: Number) -> Tensor:
    """Token weights that favour what the reference finds easy.

    v_bt = n_b (s_bt + eps)^-1 / sum_u (s_bu + eps)^-1 over the active positions of example b.

    Args:
        surprisal: [B, L], nats, from the frozen z-free reference. Read only where active, clamped to >= 0.
        mask: [B, L] bool, true where active.
        epsilon: > 0, nats.
    Returns: [B, L], mean one over each example's active positions, 0 elsewhere, detached.
    Raises: ValueError if the shapes differ, the mask is not bool or epsilon <= 0.
    Source: docs/loss_stack.md, section 2.
    """
    _check(surprisal, mask, inverse_surprisal_token_weight_epsilon=epsilon)
    return _inverse_weights(_clean(surprisal, mask), mask, epsilon).to(_output_dtype(surprisal))


# Columns of PreparedReference.examples. Those before _MAXIMA are averaged over a batch, the others maximised.
_COLUMNS = (
    "present",
    "position_weight",
    "example_weight",
    "reference_loss",
    "token_count",
    "token_concentration",
    "inverse_base_scale",
    "share_effective_count",
    "inverse_effective_count",
    "share_max",
    "share_negated_min",
    "inverse_max",
    "inverse_negated_min",
)
_MAXIMA = _COLUMNS.index("share_max")

_SETTINGS = (
    "token_weight_alpha",
    "example_inverse_surprisal_epsilon",
    "inverse_surprisal_token_weight_epsilon",
    "token_aggregation",
)


@dataclass(frozen=True)
class PreparedReference:
    """What depends on the frozen reference alone: made once a data set, indexed by batch.

    Attributes:
        share: [n, L], w_bt of the surprisal share, 0 where inactive.
        inverse: [n, L], v_bt of the inverse surprisal, 0 where inactive.
        examples: [n, 13], the per-example numbers; read them by the properties.
        token_weight_alpha, example_inverse_surprisal_epsilon, inverse_surprisal_token_weight_epsilon,
        token_aggregation: what it was made with; a configuration with others is refused.
    """

    share: Tensor
    inverse: Tensor
    examples: Tensor
    token_weight_alpha: Number
    example_inverse_surprisal_epsilon: Number
    inverse_surprisal_token_weight_epsilon: Number
    token_aggregation: TokenAggregation

    def __len__(self) -> int:
        return self.examples.shape[0]

    def __getitem__(self, index: Any) -> PreparedReference:
        """The examples of a batch; `index` is a slice or a tensor of indices."""
        return self._map(lambda values: values[index])

    def to(self, *args: Any) -> PreparedReference:
        """The same on another device or in another dtype; arguments as `Tensor.to` takes them."""
        return self._map(lambda values: values.to(*args))

    def _map(self, function: Any) -> PreparedReference:
        return replace(
            self, share=function(self.share), inverse=function(self.inverse), examples=function(self.examples)
        )

    def column(self, name: str) -> Tensor:
        """One of the per-example numbers, [n]."""
        return self.examples[:, _COLUMNS.index(name)]

    @property
    def present(self) -> Tensor:
        """1 where n_b > 0, else 0, [n]."""
        return self.column("present")

    @property
    def position_weight(self) -> Tensor:
        """What aggregation makes of a position's loss: 1 under token_sum, 1/n_b under token_mean, [n]."""
        return self.column("position_weight")

    @property
    def example_weight(self) -> Tensor:
        """max(1, eps) / (S_b + eps), 0 where n_b = 0, [n]: e_b up to the mean; see `example_weight_unit`."""
        return self.column("example_weight")

    @property
    def example_weight_unit(self) -> Number:
        """max(1, eps): in units of its inverse the (S_b + eps)^-1 stay in float32 however large eps is."""
        epsilon = self.example_inverse_surprisal_epsilon
        return epsilon.clamp(min=1) if isinstance(epsilon, Tensor) else max(1.0, epsilon)

    @property
    def reference_loss(self) -> Tensor:
        """S_b, the reference's own loss, nats, 0 where n_b = 0, [n]."""
        return self.column("reference_loss")

    @property
    def token_count(self) -> Tensor:
        """n_b, [n]."""
        return self.column("token_count")

    @property
    def token_concentration(self) -> Tensor:
        """kappa_b = sum_t w_bt s_bt / sum_t s_bt >= 1; 1 where undefined, [n]."""
        return self.column("token_concentration")

    @property
    def inverse_base_scale(self) -> Tensor:
        """gamma_b = sum_t s_bt / sum_t v_bt s_bt >= 1; 1 where undefined, [n]."""
        return self.column("inverse_base_scale")

    def check_settings(self, other: ReconstructionLossConfig | PreparedReference) -> None:
        """Raise ValueError if the other has another alpha, epsilon or aggregation; tensors are not compared."""
        for name in _SETTINGS:
            made, got = getattr(self, name), getattr(other, name)
            if not isinstance(made, Tensor) and not isinstance(got, Tensor) and made != got:
                raise ValueError(f"{name}: the reference was prepared with {made!r}, got {got!r}; prepare it again")


def prepare_reference(surprisal: Tensor, mask: Tensor, config: ReconstructionLossConfig) -> PreparedReference:
    """All that depends on the frozen reference alone: weights, factors, S_b, diagnostics of each example.

    Peak memory is some ten float64 copies of the table: hand a large one over in parts and join them with
    `concatenate_references`.

    Args:
        surprisal: [n, L], nats, from the frozen z-free reference. Read only where active, clamped to >= 0.
        mask: [n, L] bool, true where active.
        config: its alpha, epsilons and aggregation are used, and kept for comparison.
    Returns: float32, or float64 where the surprisal is.
    Raises: ValueError if the shapes differ or the mask is not bool.
    Source: docs/loss_stack.md, sections 2 and 4.
    """
    check_mask(mask, surprisal=surprisal)
    s = _clean(surprisal, mask)
    share = _share_weights(s, mask, config.token_weight_alpha)
    inverse = _inverse_weights(s, mask, config.inverse_surprisal_token_weight_epsilon)
    examples = torch.stack(_example_columns(s, mask, share, inverse, config), -1)
    dtype = _output_dtype(surprisal)
    return PreparedReference(
        share.to(dtype),
        inverse.to(dtype),
        examples.to(dtype),
        config.token_weight_alpha,
        config.example_inverse_surprisal_epsilon,
        config.inverse_surprisal_token_weight_epsilon,
        config.token_aggregation,
    )


def concatenate_references(parts: Sequence[PreparedReference]) -> PreparedReference:
    """One reference out of parts that were prepared with the same settings.

    Raises: ValueError if there is none, or the settings differ.
    """
    if not parts:
        raise ValueError("parts: got none; allowed: at least one")
    first = parts[0]
    for part in parts[1:]:
        first.check_settings(part)
    return replace(
        first,
        share=torch.cat([part.share for part in parts]),
        inverse=torch.cat([part.inverse for part in parts]),
        examples=torch.cat([part.examples for part in parts]),
    )


def _example_columns(
    s: Tensor, mask: Tensor, share: Tensor, inverse: Tensor, config: ReconstructionLossConfig
) -> list[Tensor]:
    """The columns of PreparedReference.examples, each [n], in the order of _COLUMNS."""
    token_count = mask.sum(-1).to(s.dtype)
    present = token_count.clamp(max=1)
    aggregation = position_weight(mask, config.token_aggregation, s.dtype)
    total = s.sum(-1)
    reference_loss = aggregation * total
    epsilon = config.example_inverse_surprisal_epsilon
    unit = epsilon.clamp(min=1) if isinstance(epsilon, Tensor) else max(1.0, epsilon)
    return [
        present,
        aggregation,
        present * unit / (reference_loss + epsilon),
        reference_loss,
        token_count,
        _ratio_at_least_one((share * s).sum(-1), total),
        _ratio_at_least_one(total, (inverse * s).sum(-1)),
        _effective_count(share),
        _effective_count(inverse),
        _maximum(share, mask),
        _maximum(-share, mask),
        _maximum(inverse, mask),
        _maximum(-inverse, mask),
    ]


def reference_diagnostics(reference: PreparedReference) -> dict[str, Tensor]:
    """The diagnostics of a batch that do not change with the model, by their binding names.

    Args:
        reference: of the batch; means are over its examples with n_b > 0, maxima over all of it.
    Returns: detached scalars, finite for every batch.
    Source: docs/loss_stack.md, section 4.
    """
    count = reference.present.sum().clamp(min=1)
    averaged = reference.examples[:, :_MAXIMA] * reference.present.unsqueeze(-1)
    means = dict(zip(_COLUMNS, (averaged.sum(0) / count).unbind(), strict=False))
    maxima = dict(zip(_COLUMNS[_MAXIMA:], _amax(reference.examples[:, _MAXIMA:], 0).unbind(), strict=True))
    diagnostics = {
        "token_concentration_factor": means["token_concentration"],
        "inverse_token_base_scale_factor": means["inverse_base_scale"],
    }
    for family, weights in (("token_weighting", "share"), ("inverse_token_weighting", "inverse")):
        largest = maxima[f"{weights}_max"].clamp(min=0)
        smallest = (-maxima[f"{weights}_negated_min"]).clamp(min=2.0**-23)
        diagnostics[f"{family}/weight_max"] = largest
        diagnostics[f"{family}/weight_ratio_max_min"] = largest / smallest
        diagnostics[f"{family}/effective_token_count_mean"] = means[f"{weights}_effective_count"]
    return diagnostics


def _clean(surprisal: Tensor, mask: Tensor) -> Tensor:
    """The surprisal in float64, >= 0, and 0 where inactive whatever stands there."""
    return active_only(surprisal.detach(), mask).double().clamp(min=0)


def _share_weights(s: Tensor, mask: Tensor, alpha: Number) -> Tensor:
    """Weights w of a clean surprisal, float64."""
    positive = s > 0
    weighted = mask & (positive | (alpha == 0))
    weighted = torch.where(weighted.any(-1, keepdim=True), weighted, mask)
    return _mean_one_softmax(alpha * s.masked_fill(~positive, 1.0).log(), weighted, mask)


def _inverse_weights(s: Tensor, mask: Tensor, epsilon: Number) -> Tensor:
    """Weights v of a clean surprisal, float64."""
    return _mean_one_softmax(-(s + epsilon).log(), mask, mask)


def _mean_one_softmax(score: Tensor, weighted: Tensor, mask: Tensor) -> Tensor:
    """n_b softmax of the score over the weighted positions, 0 elsewhere; finite where there are none."""
    lowest = torch.finfo(score.dtype).min
    share = score.masked_fill(~weighted, lowest).softmax(-1).masked_fill(~weighted, 0.0)
    return mask.sum(-1, keepdim=True) * share


def _ratio_at_least_one(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The ratio, which is >= 1 but for rounding; 1 where the denominator is 0."""
    defined = denominator > 0
    return torch.where(defined, numerator / denominator.masked_fill(~defined, 1.0), 1.0).clamp(min=1)


def _effective_count(weights: Tensor) -> Tensor:
    """Kish's effective count (sum_t w)^2 / sum_t w^2 of each example; 0 where n_b = 0."""
    squares = weights.square().sum(-1)
    return weights.sum(-1).square() / squares.masked_fill(squares == 0, 1.0)


def _maximum(values: Tensor, mask: Tensor) -> Tensor:
    """Largest value over each example's active positions; -inf where n_b = 0."""
    return _amax(values.masked_fill(~mask, -torch.inf), -1)


def _amax(values: Tensor, dim: int) -> Tensor:
    """Largest value along a dimension; -inf where that dimension has no entries."""
    return values.amax(dim) if values.shape[dim] else values.sum(dim) - torch.inf


def _output_dtype(surprisal: Tensor) -> torch.dtype:
    return torch.promote_types(surprisal.dtype, torch.float32)


def _check(surprisal: Tensor, mask: Tensor, **numbers: Number) -> None:
    """Raise ValueError for shapes that differ or a number out of the range its configuration field has."""
    check_mask(mask, surprisal=surprisal)
    bounds = {f.name: f.metadata for f in fields(ReconstructionLossConfig)}
    for name, value in numbers.items():
        problem = field_problem(value, bounds[name])
        if problem is not None:
            raise ValueError(f"{name}: {problem}")
