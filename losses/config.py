"""Settings of the objective as frozen values. Imports no torch, so that a study can be read without it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from torch import Tensor

    Number = float | Tensor
else:
    # Readers of these types at run time (pydantic) see what a file can hold: a tensor cannot stand in one.
    Number = float

TokenAggregation = Literal["token_sum", "token_mean"]
BetaScheduleKind = Literal["constant", "linear_warmup", "cyclical"]


# What a field may hold, named as pydantic's `Field` names it.
_WEIGHT = {"ge": 0}
_EXPONENT = {"ge": 0, "le": 100}
_POSITIVE = {"gt": 0}
_SHARE = {"gt": 0, "le": 1}
_COUNT = {"ge": 1}


@dataclass(frozen=True)
class ReconstructionLossConfig:
    """Weights and settings of the six reconstruction terms.

    J_recon = sum_k lambda_k L_k; a weight of 0 takes a term out of the objective and out of nothing else.
    A number may be given as a tensor (to map over many settings at once); its value is then not checked.

    Attributes:
        raw_weight: of `reconstruction_loss`.
        distribution_normalized_weight: of `distribution_normalized_reconstruction_loss`.
        example_inverse_surprisal_weight: of `example_inverse_surprisal_weighted_reconstruction_loss`.
        token_weighted_weight: of `token_weighted_reconstruction_loss`.
        normalized_concentration_corrected_token_weighted_weight: of the term of that name.
        normalized_inverse_surprisal_token_weighted_weight: of the term of that name.
        token_weight_alpha: exponent of the surprisal share; 0 is uniform, 1 the plain share.
        example_inverse_surprisal_epsilon: nats; keeps the inverse of an example's surprisal finite.
        inverse_surprisal_token_weight_epsilon: nats; keeps the inverse of a token's surprisal finite.
        zfree_reference_scale: c, the training mean of the reference's loss per example.
        token_aggregation: `token_sum` or `token_mean` over the active positions of an example.

    Raises: ValueError that names every field out of its range.
    Source: docs/loss_stack.md, sections 2 and 3.
    """

    raw_weight: Number = field(default=1.0, metadata=_WEIGHT)
    distribution_normalized_weight: Number = field(default=1.0, metadata=_WEIGHT)
    example_inverse_surprisal_weight: Number = field(default=1.0, metadata=_WEIGHT)
    token_weighted_weight: Number = field(default=1.0, metadata=_WEIGHT)
    normalized_concentration_corrected_token_weighted_weight: Number = field(default=1.0, metadata=_WEIGHT)
    normalized_inverse_surprisal_token_weighted_weight: Number = field(default=1.0, metadata=_WEIGHT)
    token_weight_alpha: Number = field(default=1.0, metadata=_EXPONENT)
    example_inverse_surprisal_epsilon: Number = field(default=0.1, metadata=_POSITIVE)
    inverse_surprisal_token_weight_epsilon: Number = field(default=0.1, metadata=_POSITIVE)
    zfree_reference_scale: Number = field(default=1.0, metadata=_POSITIVE)
    token_aggregation: TokenAggregation = field(default="token_sum", metadata={"choices": get_args(TokenAggregation)})

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclass(frozen=True)
class BetaSchedule:
    """The KL weight as a function of the step; `losses.kl.beta_at` evaluates it.

    Attributes:
        beta: the weight once it is fully on.
        schedule: `constant`; `linear_warmup` from 0 over `warmup_steps`; `cyclical`: every `cycle_steps`
            it rises from 0 over the first `cycle_ramp` of the cycle and stays (Fu et al. 2019).

    Raises: ValueError that names every field out of its range.
    Source: docs/loss_stack.md, section 5.
    """

    beta: float = field(default=1.0, metadata=_WEIGHT)
    schedule: BetaScheduleKind = field(default="constant", metadata={"choices": get_args(BetaScheduleKind)})
    warmup_steps: int = field(default=1000, metadata=_COUNT)
    cycle_steps: int = field(default=1000, metadata=_COUNT)
    cycle_ramp: float = field(default=0.5, metadata=_SHARE)

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclass(frozen=True)
class TemperatureSchedule:
    """Temperature of the Gumbel-softmax, falling exponentially (Jang et al. 2017); see `losses.kl.temperature_at`.

    Attributes:
        initial: at step 0.
        minimum: never below.
        anneal_rate: r of exp(-r step), per step; 0 keeps it constant.

    Raises: ValueError that names every field out of its range.
    Source: docs/loss_stack.md, section 5.
    """

    initial: float = field(default=1.0, metadata=_POSITIVE)
    minimum: float = field(default=0.5, metadata=_POSITIVE)
    anneal_rate: float = field(default=1e-4, metadata=_WEIGHT)

    def __post_init__(self) -> None:
        _check_fields(self)


def nearest(name: object, known: tuple[str, ...]) -> str:
    """The end of a message about an unknown name: what is allowed, and the nearest of it."""
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"allowed: {', '.join(sorted(known))}{hint}"


def field_problem(value: object, metadata: Mapping[str, Any]) -> str | None:
    """What is wrong with a field's value, or None. `metadata` is the field's own (bounds or choices)."""
    if "choices" in metadata:
        known = metadata["choices"]
        return None if value in known else f"got {value!r}; {nearest(value, known)}"
    if hasattr(value, "requires_grad"):  # a tensor, told without importing torch
        return None
    bounds = " and ".join(f"{sign} {metadata[key]:g}" for key, sign in _SIGNS.items() if key in metadata)
    allowed = f"a finite number {bounds}".rstrip()
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        return f"got {value!r}; allowed: {allowed}"
    holds = (
        value >= metadata.get("ge", -math.inf)
        and value > metadata.get("gt", -math.inf)
        and value <= metadata.get("le", math.inf)
    )
    return None if holds else f"got {value!r}; allowed: {allowed}"


_SIGNS = {"ge": ">=", "gt": ">", "le": "<="}


def _check_fields(config: Any) -> None:
    problems = [
        f"{f.name}: {problem}"
        for f in fields(config)
        if (problem := field_problem(getattr(config, f.name), f.metadata)) is not None
    ]
    if problems:
        raise ValueError(f"{type(config).__name__}: " + "\n".join(problems))
