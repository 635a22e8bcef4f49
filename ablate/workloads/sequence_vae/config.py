"""Settings of the sequence VAE and of its z-free reference, shared by all data sources. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Latent = Literal["continuous", "discrete"]
Core = Literal["transformer", "gru"]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Weight = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
DropRate = Annotated[float, Field(ge=0, lt=1)]
Epsilon = Annotated[float, Field(gt=0)]

WEIGHT_FIELDS = (
    "raw_weight",
    "distribution_normalized_weight",
    "example_inverse_surprisal_weight",
    "token_weighted_weight",
    "normalized_concentration_corrected_token_weighted_weight",
    "normalized_inverse_surprisal_token_weighted_weight",
)
"""Weight fields of the six reconstruction terms, in the order of the terms."""


class Section(BaseModel):
    """A section of the configuration: unknown keys are refused, values keep their type and stay finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Reference(Section):
    """The z-free reference: a decoder without z, trained with plain NLL until its `select` loss stops falling.

    Attributes:
        steps: the most steps it takes.
        patience: evaluations without a better `select` loss before it stops; the best weights are kept.
        evaluate_every: steps between evaluations.
    """

    seed: Seed = 0
    decoder: Core = "transformer"
    width: Annotated[int, Field(ge=2, le=4096)] = 64
    layers: Annotated[int, Field(ge=1, le=64)] = 2
    heads: Annotated[int, Field(ge=1, le=64)] = 4
    dropout: DropRate = 0.0
    steps: Count = 2000
    batch_size: Count = 64
    learning_rate: Positive = 3.0e-3
    weight_decay: Weight = 0.01
    patience: Count = 4
    evaluate_every: Count = 100

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Reference:
        if self.decoder == "transformer" and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self


class Reconstruction(Section):
    """The reconstruction stack: weights of the six terms, and what their token weights are made from.

    Attributes:
        zfree_reference_scale: c > 0 in nats, or `auto`: measured in the reference pass for the mode in use.
        rescale: `baseline` multiplies the six weights by the one factor that gives the mean effective
            token weight of the baseline.
    """

    raw_weight: Weight = 1.0
    distribution_normalized_weight: Weight = 1.0
    example_inverse_surprisal_weight: Weight = 1.0
    token_weighted_weight: Weight = 1.0
    normalized_concentration_corrected_token_weighted_weight: Weight = 1.0
    normalized_inverse_surprisal_token_weighted_weight: Weight = 1.0
    token_weight_alpha: Annotated[float, Field(ge=0, le=100)] = 1.0
    example_inverse_surprisal_epsilon: Epsilon = 0.1
    inverse_surprisal_token_weight_epsilon: Epsilon = 0.1
    zfree_reference_scale: Literal["auto"] | Positive = "auto"
    token_aggregation: Literal["token_sum", "token_mean"] = "token_sum"  # noqa: S105
    rescale: Literal["baseline"] | None = None

    @model_validator(mode="after")
    def _some_term_is_on(self) -> Reconstruction:
        if not any(getattr(self, name) for name in WEIGHT_FIELDS):
            raise ValueError(f"no reconstruction term is on; at least one is above 0 of: {', '.join(WEIGHT_FIELDS)}")
        return self


class KL(Section):
    """The KL term: its weight, the schedule of that weight in steps, free bits in nats.

    Attributes:
        warmup_steps: steps of the linear rise from 0 to beta, for `linear_warmup`.
        cycle_steps: length of one cycle, for `cyclical`.
        cycle_ramp: share of a cycle in which beta rises; it stays at its full value in the rest.
        free_bits: lambda_fb of sum_j max(mean_b KL_bj, lambda_fb), in nats a dimension or group.
    """

    beta: Weight = 1.0
    schedule: Literal["constant", "linear_warmup", "cyclical"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 200
    cycle_steps: Count = 250
    cycle_ramp: Annotated[float, Field(gt=0, le=1)] = 0.5
    free_bits: Weight = 0.0


class Auxiliary(Section):
    """Weights of the other terms of the objective; a term that the latent type does not have stays 0."""

    total_correlation_weight: Weight = 0.0
    dip_vae_i_weight: Weight = 0.0
    code_usage_weight: Weight = 0.0


class Model(Section):
    """The sequence VAE.

    Attributes:
        width, layers, heads: of both cores.
        dropout: in the transformers, and on the inputs of a gru.
        token_dropout: probability that the decoder, in training, does not see a token of the prefix
            (word dropout, Bowman et al. 2016): what it cannot read it must learn from z.
        latent_dimensions: of z, where it is continuous.
        latent_groups, latent_categories: z is so many categoricals of so many ways, where it is discrete.
    """

    encoder: Core = "transformer"
    decoder: Core = "transformer"
    width: Annotated[int, Field(ge=2, le=4096)] = 32
    layers: Annotated[int, Field(ge=1, le=64)] = 1
    heads: Annotated[int, Field(ge=1, le=64)] = 2
    dropout: DropRate = 0.0
    token_dropout: DropRate = 0.0
    latent_dimensions: Annotated[int, Field(ge=1, le=4096)] = 8
    latent_groups: Annotated[int, Field(ge=1, le=4096)] = 4
    latent_categories: Annotated[int, Field(ge=2, le=65536)] = 8

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Model:
        if "transformer" in (self.encoder, self.decoder) and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self


class Temperature(Section):
    """Temperature of the Gumbel-softmax relaxation of discrete latents, in steps.

    `exponential` falls from `start` to `end` by a constant factor a step over `steps`, then stays; `linear` by a
    constant difference; `constant` stays at `start`. `straight_through` makes the forward pass hard.
    """

    schedule: Literal["constant", "linear", "exponential"] = "exponential"
    start: Positive = 1.0
    end: Positive = 0.5
    steps: Count = 500
    straight_through: bool = False


class Training(Section):
    """Optimisation of a trial: Adam with decoupled weight decay; the norm of the gradient is clipped.

    `clip_norm` null does not clip.
    """

    steps: Count = 1000
    batch_size: Count = 64
    learning_rate: Positive = 3.0e-3
    weight_decay: Weight = 0.0
    clip_norm: Positive | None = 5.0
