"""The objective of a trial as the reference table makes it: c, the data-set normaliser, mean weights, beta_eff."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ablate.workloads.contract import ArmScale
from ablate.workloads.sequence_vae.config import WEIGHT_FIELDS, Reconstruction, TrialSettings
from ablate.workloads.sequence_vae.reference_table import ReferenceTable
from ablate.workloads.sequence_vae.split_reference import SplitReference, split_reference
from losses import (
    TERMS,
    ReconstructionLossConfig,
    effective_coefficient,
    example_weight_mean,
    mean_effective_token_weight,
    mean_token_weights,
    term_shares,
)


@dataclass(frozen=True)
class Split:
    """The rows of one split.

    Attributes:
        first_row: number of its first row in the table.
        tokens: [n, T] integers.
        mask: [n, L] bool, true where there is a target.
        surprisal: [n, L] nats.
    """

    first_row: int
    tokens: Tensor
    mask: Tensor
    surprisal: Tensor

    @property
    def mean_length(self) -> float:
        """Targets an example, over the examples that have one."""
        return float(self.mask.sum()) / max(int(self.mask.any(-1).sum()), 1)


@dataclass(frozen=True)
class ReconstructionObjective:
    """The reconstruction stack of an arm, its numbers filled in.

    Attributes:
        config: with c, and with the six weights as they are used.
        reference: of the training split.
        example_weight_mean: <(S + eps)^-1> over the training split.
        mean_weight: mean effective token weight over the training split.
        shares: each term's share of it.
        rescaled_by: what the six weights were multiplied by.
    """

    config: ReconstructionLossConfig
    reference: SplitReference
    example_weight_mean: float
    mean_weight: float
    shares: dict[str, float]
    rescaled_by: float

    @property
    def weights(self) -> dict[str, float]:
        """The six weights as they are used, by field."""
        return {name: float(getattr(self.config, name)) for name in WEIGHT_FIELDS}


def read_split(table: ReferenceTable, name: str) -> Split:
    """A split of the table as tensors over the mapped memory."""
    rows = table.splits[name]
    tokens, mask, surprisal = (torch.from_numpy(array[rows]) for array in (table.tokens, table.mask, table.surprisal))
    return Split(rows.start, tokens, mask, surprisal)


def loss_config(section: Reconstruction, table: ReferenceTable) -> ReconstructionLossConfig:
    """The loss stack's settings, with c as measured where the section says `auto`."""
    values = section.model_dump(exclude={"rescale", "shares"})
    if section.zfree_reference_scale == "auto":
        values["zfree_reference_scale"] = table.facts[f"zfree_reference_scale_{section.token_aggregation}"]
    return ReconstructionLossConfig(**values)


def reconstruction_objective(
    section: Reconstruction, table: ReferenceTable, train: Split, baseline: Reconstruction | None
) -> ReconstructionObjective:
    """The stack of an arm over its training split.

    Args:
        baseline: the baseline's section; needed where `section.rescale` is `baseline`, or it has `shares`. Both are
            measured on the arm's own table.
    Raises: ValueError where it is needed and absent, or a term with a share has no weight on this data.
    """
    config = loss_config(section, table)
    reference = split_reference(train.surprisal, train.mask, config)
    weights = mean_token_weights(reference.totals, config)
    factor = 1.0
    if section.rescale is not None or section.shares is not None:
        if baseline is None:
            raise ValueError("reconstruction.rescale and .shares need the baseline's configuration (Trial.baseline)")
        target = _mean_weight(baseline, table, train)
    if section.shares is not None:
        config = dataclasses.replace(config, **_weights_of(section.shares, weights, target))
    elif section.rescale is not None:
        factor = target / mean_effective_token_weight(weights, config)
        config = dataclasses.replace(config, **{name: factor * getattr(config, name) for name in WEIGHT_FIELDS})
    return ReconstructionObjective(
        config,
        reference,
        example_weight_mean(reference.totals, config),
        mean_effective_token_weight(weights, config),
        term_shares(weights, config),
        factor,
    )


def arm_scale(arm: TrialSettings, table: ReferenceTable, baseline: TrialSettings) -> ArmScale:
    """What the table says of an arm before it trains."""
    made = reconstruction_objective(arm.reconstruction, table, read_split(table, "train"), baseline.reconstruction)
    return ArmScale(effective_coefficient(arm.kl.beta, made.mean_weight), made.mean_weight, made.shares)


def _weights_of(shares: Mapping[str, float], mean_weights: Mapping[str, float], target: float) -> dict[str, Any]:
    """lambda_k = s_k W / W_k by weight field; 0 without a share."""
    found = dict.fromkeys(WEIGHT_FIELDS, 0.0)
    for name, term in TERMS.items():
        share = shares.get(term.weight_field, 0.0)
        if share and not mean_weights[name] > 0:
            raise ValueError(f"{term.weight_field} has a share of {share:g}, but this term weighs nothing on this data")
        found[term.weight_field] = share * target / mean_weights[name] if share else 0.0
    return found


def _mean_weight(section: Reconstruction, table: ReferenceTable, train: Split) -> float:
    config = loss_config(section, table)
    totals = split_reference(train.surprisal, train.mask, config).totals
    weight = mean_effective_token_weight(mean_token_weights(totals, config), config)
    return weight if weight else math.nan
