"""What depends on the frozen reference alone: made once a data set, indexed by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from losses.config import Number, ReconstructionLossConfig, TokenAggregation
from losses.token_weighting import ExampleStatistics, ReferenceWeights, amax

Weighting = Callable[[ReferenceWeights], Tensor]
"""Makes a weight matrix [n, L] of the reference's weights: how much each position's NLL counts."""

_SETTINGS = (
    "token_weight_alpha",
    "example_inverse_surprisal_epsilon",
    "inverse_surprisal_token_weight_epsilon",
    "token_aggregation",
)
_EXAMPLE_WEIGHT, _FIRST_DIAGNOSTIC, _FIRST_MAXIMUM = map(
    ExampleStatistics._fields.index, ("example_weight", "concentration", "share_max")
)
_FAMILIES = 2

#: The diagnostics of a batch that the reference alone decides: means over examples, largest weights, their ratios.
REFERENCE_DIAGNOSTICS = (
    "token_concentration_factor",
    "inverse_token_base_scale_factor",
    "token_weighting/effective_token_count_mean",
    "inverse_token_weighting/effective_token_count_mean",
    "token_weighting/weight_max",
    "inverse_token_weighting/weight_max",
    "token_weighting/weight_ratio_max_min",
    "inverse_token_weighting/weight_ratio_max_min",
)


class BatchStatistics(NamedTuple):
    """What the reference says of some examples as one batch; every value is finite for every batch.

    Attributes:
        example_count: how many examples have n_b > 0, at least 1.
        example_weight: mean of `ExampleStatistics.example_weight` over those.
        diagnostics: [8], those that do not change with the model, in the order of REFERENCE_DIAGNOSTICS.
    """

    example_count: Tensor
    example_weight: Tensor
    diagnostics: Tensor


@dataclass(frozen=True)
class PreparedReference:
    """The weight matrices of the reconstruction terms, and statistics of each example and of all as one batch.

    Attributes:
        weights: [R, n, L], a matrix for each of `weightings`; 0 where inactive.
        examples: [12, n], the rows of ExampleStatistics.
        weightings: what made the matrices.
        token_weight_alpha, example_inverse_surprisal_epsilon, inverse_surprisal_token_weight_epsilon,
        token_aggregation: what it was made with; a configuration with others is refused.
        batch: of the examples it has.
    """

    weights: Tensor
    examples: Tensor
    weightings: tuple[Weighting, ...]
    token_weight_alpha: Number
    example_inverse_surprisal_epsilon: Number
    inverse_surprisal_token_weight_epsilon: Number
    token_aggregation: TokenAggregation
    batch: BatchStatistics = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", _batch_statistics(self.examples))

    def __len__(self) -> int:
        return self.examples.shape[1]

    def __getitem__(self, index: Tensor | slice) -> PreparedReference:
        """The examples of a batch, by their positions in the data set."""
        if isinstance(index, Tensor) and index.dim() == 1 and index.dtype == torch.int64:
            weights, examples = self.weights.index_select(1, index), self.examples.index_select(1, index)
        else:
            weights, examples = self.weights[:, index], self.examples[:, index]
        return self._with(weights, examples)

    def to(self, device: torch.device | str) -> PreparedReference:
        """The same on another device."""
        return self._with(self.weights.to(device), self.examples.to(device))

    def _with(self, weights: Tensor, examples: Tensor) -> PreparedReference:
        """Other tables under the same settings; `dataclasses.replace` takes as long as gathering a small batch."""
        return PreparedReference(
            weights,
            examples,
            self.weightings,
            self.token_weight_alpha,
            self.example_inverse_surprisal_epsilon,
            self.inverse_surprisal_token_weight_epsilon,
            self.token_aggregation,
        )

    @property
    def matrices(self) -> dict[Weighting, Tensor]:
        """The weight matrices [n, L] by what made them."""
        return dict(zip(self.weightings, self.weights.unbind(), strict=True))

    @property
    def statistics(self) -> ExampleStatistics:
        """The statistics of each example, by name."""
        return ExampleStatistics(*self.examples.unbind())

    def check_settings(self, other: ReconstructionLossConfig | PreparedReference) -> None:
        """Raise ValueError if the other has another alpha, epsilon or aggregation; tensors are not compared."""
        for name in _SETTINGS:
            made, got = getattr(self, name), getattr(other, name)
            if not isinstance(made, Tensor) and not isinstance(got, Tensor) and made != got:
                raise ValueError(f"{name}: the reference was prepared with {made!r}, got {got!r}; prepare it again")


def concatenate_references(parts: Sequence[PreparedReference]) -> PreparedReference:
    """One reference out of parts of a data set, prepared one by one with the same settings.

    Raises: ValueError if there are none, or the settings or lengths differ.
    """
    if not parts:
        raise ValueError("parts: got none; allowed: one or more")
    for part in parts:
        parts[0].check_settings(part)
        if part.weights.shape[-1] != parts[0].weights.shape[-1]:
            raise ValueError(
                f"parts: got lengths {part.weights.shape[-1]} and {parts[0].weights.shape[-1]}; allowed: one length"
            )
    return replace(
        parts[0],
        weights=torch.cat([part.weights for part in parts], 1),
        examples=torch.cat([part.examples for part in parts], 1),
    )


def _batch_statistics(examples: Tensor) -> BatchStatistics:
    """Of the rows of ExampleStatistics: means over the examples with n_b > 0, maxima over all.

    Source: docs/loss_stack.md, section 4.
    """
    totals = examples[:_FIRST_MAXIMUM].sum(1)
    maxima = amax(examples[_FIRST_MAXIMUM:]).squeeze(-1)
    count = totals[0].clamp(min=1)
    means, largest = totals / count, maxima[:_FAMILIES]
    diagnostics = torch.cat([means[_FIRST_DIAGNOSTIC:], largest, largest * maxima[_FAMILIES:]])
    return BatchStatistics(count, means[_EXAMPLE_WEIGHT], diagnostics)
