"""What depends on the frozen reference alone: made once a data set, indexed by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
_FIRST_MAXIMUM = ExampleStatistics._fields.index("share_max")


@dataclass(frozen=True)
class PreparedReference:
    """The weight matrices of the reconstruction terms, and statistics of each example.

    Attributes:
        weights: [R, n, L], a matrix for each of `weightings`; 0 where inactive.
        examples: [12, n], the rows of ExampleStatistics.
        weightings: what made the matrices.
        token_weight_alpha, example_inverse_surprisal_epsilon, inverse_surprisal_token_weight_epsilon,
        token_aggregation: what it was made with; a configuration with others is refused.
    """

    weights: Tensor
    examples: Tensor
    weightings: tuple[Weighting, ...]
    token_weight_alpha: Number
    example_inverse_surprisal_epsilon: Number
    inverse_surprisal_token_weight_epsilon: Number
    token_aggregation: TokenAggregation

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


def batch_means(reference: PreparedReference) -> tuple[Tensor, ExampleStatistics]:
    """How many examples have n_b > 0 (at least 1), and the means over those of the averaged statistics.

    The maxima are over the whole batch. Every value is finite for every batch.
    """
    totals = reference.examples[:_FIRST_MAXIMUM].sum(1)
    maxima = amax(reference.examples[_FIRST_MAXIMUM:])
    count = totals[0].clamp(min=1)
    return count, ExampleStatistics(*(totals / count).unbind(), *maxima.unbind())


def reference_diagnostics(statistics: ExampleStatistics) -> dict[str, Tensor]:
    """The diagnostics of a batch that do not change with the model, by their binding names.

    Args:
        statistics: of the batch, as `batch_means` returns them.
    Returns: detached scalars.
    Source: docs/loss_stack.md, section 4.
    """
    return {
        "token_concentration_factor": statistics.concentration,
        "inverse_token_base_scale_factor": statistics.base_scale,
        "token_weighting/weight_max": statistics.share_max,
        "token_weighting/weight_ratio_max_min": statistics.share_max * statistics.share_min_reciprocal,
        "token_weighting/effective_token_count_mean": statistics.share_effective_count,
        "inverse_token_weighting/weight_max": statistics.inverse_max,
        "inverse_token_weighting/weight_ratio_max_min": statistics.inverse_max * statistics.inverse_min_reciprocal,
        "inverse_token_weighting/effective_token_count_mean": statistics.inverse_effective_count,
    }
