"""Settings of the sequence VAE and of its z-free reference, shared by all data sources. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from losses.config import (
    BetaSchedule,
    BetaScheduleKind,
    ReconstructionLossConfig,
    TemperatureSchedule,
    TokenAggregation,
)

Latent = Literal["continuous", "discrete"]
Core = Literal["transformer", "gru"]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Weight = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
DropRate = Annotated[float, Field(ge=0, lt=1)]

WEIGHT_FIELDS = (
    "raw_weight",
    "distribution_normalized_weight",
    "example_inverse_surprisal_weight",
    "token_weighted_weight",
    "normalized_concentration_corrected_token_weighted_weight",
    "normalized_inverse_surprisal_token_weighted_weight",
)
"""Weight fields of the six reconstruction terms, in the order of the terms."""


# The defaults are those of the loss stack.
_STACK: dict[str, Any] = asdict(ReconstructionLossConfig())
_BETA: dict[str, Any] = asdict(BetaSchedule())
_TEMPERATURE: dict[str, Any] = asdict(TemperatureSchedule())


class Section(BaseModel):
    """A section of the configuration: unknown keys are refused, values keep their type and stay finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Reference(Section):
    """The z-free reference: a decoder without z, trained with plain NLL until its `select` loss stops falling.

    Attributes:
        decoder, width, layers, heads, dropout: its own architecture, whatever that of the arm's model.
        steps: the most steps it takes.
        averaging: decay of the running average of the weights, the weights that are evaluated and kept.
        evaluate_every: steps between evaluations.
        patience: evaluations without a better `select` loss before it stops; the best weights are kept.
        cross_fit: the training split's surprisals are out of fold: of so many references, each trained on the other
            folds; 0: of the one reference, which has seen them.
    """

    seed: Seed = 0
    decoder: Core = "transformer"
    width: Annotated[int, Field(ge=2, le=4096)] = 32
    layers: Annotated[int, Field(ge=1, le=64)] = 2
    heads: Annotated[int, Field(ge=1, le=64)] = 2
    dropout: DropRate = 0.1
    steps: Count = 2000
    batch_size: Count = 64
    learning_rate: Positive = 5.0e-3
    weight_decay: Weight = 0.01
    averaging: DropRate = 0.99
    evaluate_every: Count = 100
    patience: Count = 2
    cross_fit: Annotated[int, Field(ge=0, le=100)] = 0

    @model_validator(mode="after")
    def _folds_are_several(self) -> Reference:
        if self.cross_fit == 1:
            raise ValueError("cross_fit 1 leaves nothing to train on; 0 is off, and 2 the fewest folds")
        return self

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Reference:
        if self.decoder == "transformer" and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self


class Reconstruction(Section):
    """The reconstruction stack: the fields of ReconstructionLossConfig, and two ways to leave a number open.

    Attributes:
        zfree_reference_scale: c > 0 in nats, or `auto`: measured in the reference pass for the mode in use.
        rescale: `baseline` multiplies the six weights by the one factor that gives the mean effective
            token weight of the baseline.
        shares: share s_k of the effective token weight by weight field, instead of the six weights:
            lambda_k = s_k W / W_k with W the baseline's mean effective token weight and W_k that of term k for
            lambda_k = 1, so that beta_eff is the baseline's. A term without a share is off.
    """

    raw_weight: Weight = _STACK["raw_weight"]
    distribution_normalized_weight: Weight = _STACK["distribution_normalized_weight"]
    example_inverse_surprisal_weight: Weight = _STACK["example_inverse_surprisal_weight"]
    token_weighted_weight: Weight = _STACK["token_weighted_weight"]
    normalized_concentration_corrected_token_weighted_weight: Weight = _STACK[
        "normalized_concentration_corrected_token_weighted_weight"
    ]
    normalized_inverse_surprisal_token_weighted_weight: Weight = _STACK[
        "normalized_inverse_surprisal_token_weighted_weight"
    ]
    token_weight_alpha: Annotated[float, Field(ge=0, le=100)] = _STACK["token_weight_alpha"]
    example_inverse_surprisal_epsilon: Positive = _STACK["example_inverse_surprisal_epsilon"]
    inverse_surprisal_token_weight_epsilon: Positive = _STACK["inverse_surprisal_token_weight_epsilon"]
    zfree_reference_scale: Literal["auto"] | Positive = "auto"
    token_aggregation: TokenAggregation = _STACK["token_aggregation"]
    rescale: Literal["baseline"] | None = None
    shares: dict[str, Annotated[float, Field(ge=0, le=1)]] | None = None

    @model_validator(mode="after")
    def _shares_make_a_whole(self) -> Reconstruction:
        if self.shares is None:
            return self
        unknown = sorted(self.shares.keys() - set(WEIGHT_FIELDS))
        if unknown:
            raise ValueError(f"shares of {', '.join(unknown)}; a share belongs to one of: {', '.join(WEIGHT_FIELDS)}")
        if abs(sum(self.shares.values()) - 1) > 1e-6:
            raise ValueError(f"shares add up to {sum(self.shares.values()):g}; they make 1")
        if self.rescale is not None:
            raise ValueError("shares and rescale exclude each other: shares are at the baseline's scale already")
        return self

    @model_validator(mode="after")
    def _some_term_is_on(self) -> Reconstruction:
        if not any(getattr(self, name) for name in WEIGHT_FIELDS):
            raise ValueError(f"no reconstruction term is on; at least one is above 0 of: {', '.join(WEIGHT_FIELDS)}")
        return self


class KL(Section):
    """The KL term: beta and its schedule in steps as BetaSchedule has them, and free bits.

    `free_bits`: lambda_fb of sum_j max(mean_b KL_bj, lambda_fb), in nats a dimension or group.
    """

    beta: Weight = _BETA["beta"]
    schedule: BetaScheduleKind = _BETA["schedule"]
    warmup_steps: Count = _BETA["warmup_steps"]
    cycle_steps: Count = _BETA["cycle_steps"]
    cycle_ramp: Annotated[float, Field(gt=0, le=1)] = _BETA["cycle_ramp"]
    free_bits: Weight = 0.0


class Auxiliary(Section):
    """Weights of the other terms of the objective; a term that the latent type does not have stays 0."""

    total_correlation: Weight = 0.0
    dip_vae_i: Weight = 0.0
    code_usage: Weight = 0.0


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
    """Temperature of the Gumbel-softmax relaxation of discrete latents, as TemperatureSchedule has it.

    `straight_through` makes the forward pass hard.
    """

    initial: Positive = _TEMPERATURE["initial"]
    minimum: Positive = _TEMPERATURE["minimum"]
    anneal_rate: Weight = _TEMPERATURE["anneal_rate"]
    straight_through: bool = False


class Training(Section):
    """Optimisation of a trial: Adam with decoupled weight decay; the norm of the gradient is clipped.

    Attributes:
        length_buckets: the sequences of so many batches are sorted by length and cut into as many batches of similar
            length, which then hold little padding; 1: as they are drawn.
        clip_norm: null does not clip.
    """

    steps: Count = 1000
    batch_size: Count = 64
    length_buckets: Annotated[int, Field(ge=1, le=4096)] = 1
    learning_rate: Positive = 3.0e-3
    weight_decay: Weight = 0.0
    clip_norm: Positive | None = 100.0


LATER: dict[str, Any] = {"reference.cross_fit": 0, "training.length_buckets": 1, "reconstruction.shares": None}
"""Paths that came later, by the value that means what was before: `Workload.later` of every data source."""


PACKED_APART = ("reconstruction", "kl", "auxiliary")
"""Sections in which trials that train together may differ, beside the seed and PACKED_TRAINING."""

PACKED_TRAINING = ("learning_rate", "weight_decay", "clip_norm")
"""Keys of `training` of which the same is true."""


def pack_key(config: Mapping[str, Any]) -> str | None:
    """What trials that train together have in common: everything but objective, optimiser settings and seed.

    Returns: None for batches of similar length: those of several trials differ in length.
    """
    training = Training.model_validate(config.get("training", {}))
    if training.length_buckets > 1:
        return None
    common = {name: value for name, value in config.items() if name not in PACKED_APART}
    common["training"] = training.model_dump(exclude=set(PACKED_TRAINING))
    return json.dumps(common, sort_keys=True)


def training_steps(config: Mapping[str, Any]) -> int:
    """How many steps a trial takes."""
    return Training.model_validate(config.get("training", {})).steps


class TrialSettings(Section):
    """What a trial reads of its configuration, whatever the data source: all sections but `data` and `reference`."""

    latent: Latent = "continuous"
    reconstruction: Reconstruction = Reconstruction()
    kl: KL = KL()
    auxiliary: Auxiliary = Auxiliary()
    model: Model = Model()
    temperature: Temperature = Temperature()
    training: Training = Training()
