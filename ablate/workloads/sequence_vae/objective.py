"""The objective of a trial as the reference table makes it: c, the data-set normaliser, mean weights, beta_eff."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.workloads.contract import ArmScale
from ablate.workloads.sequence_vae.config import WEIGHT_FIELDS, Reconstruction, TrialSettings
from ablate.workloads.sequence_vae.data import target_mask
from ablate.workloads.sequence_vae.reference_table import ReferenceTable
from losses import (
    PreparedReference,
    ReconstructionLossConfig,
    effective_coefficient,
    example_weight_mean,
    mean_effective_token_weight,
    mean_token_weights,
    prepare_reference,
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
    reference: PreparedReference
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
    surprisal = torch.from_numpy(table.surprisal[rows])
    mask = torch.from_numpy(target_mask(table.lengths[rows], surprisal.shape[1]))
    return Split(rows.start, torch.from_numpy(table.tokens[rows]), mask, surprisal)


def loss_config(section: Reconstruction, table: ReferenceTable) -> ReconstructionLossConfig:
    """The loss stack's settings, with c as measured where the section says `auto`."""
    values = section.model_dump(exclude={"rescale"})
    if section.zfree_reference_scale == "auto":
        values["zfree_reference_scale"] = table.facts[f"zfree_reference_scale_{section.token_aggregation}"]
    return ReconstructionLossConfig(**values)


def reconstruction_objective(
    section: Reconstruction, table: ReferenceTable, train: Split, baseline: Reconstruction | None
) -> ReconstructionObjective:
    """The stack of an arm over its training split.

    Args:
        baseline: the baseline's section; needed where `section.rescale` is `baseline`. Both are measured on the
            arm's own table.
    Raises: ValueError where it is needed and absent.
    """
    config = loss_config(section, table)
    reference = prepare_reference(train.surprisal, train.mask, config)
    weights = mean_token_weights(reference, config)
    factor = 1.0
    if section.rescale is not None:
        if baseline is None:
            raise ValueError("reconstruction.rescale: baseline needs the baseline's configuration (Trial.baseline)")
        target = _mean_weight(baseline, table, train)
        factor = target / mean_effective_token_weight(weights, config)
        config = dataclasses.replace(config, **{name: factor * getattr(config, name) for name in WEIGHT_FIELDS})
    return ReconstructionObjective(
        config,
        reference,
        example_weight_mean(reference, config),
        mean_effective_token_weight(weights, config),
        term_shares(weights, config),
        factor,
    )


def arm_scale(arm: TrialSettings, table: ReferenceTable, baseline: TrialSettings) -> ArmScale:
    """What the table says of an arm before it trains."""
    made = reconstruction_objective(arm.reconstruction, table, read_split(table, "train"), baseline.reconstruction)
    return ArmScale(effective_coefficient(arm.kl.beta, made.mean_weight), made.mean_weight, made.shares)


def _mean_weight(section: Reconstruction, table: ReferenceTable, train: Split) -> float:
    config = loss_config(section, table)
    reference = prepare_reference(train.surprisal, train.mask, config)
    weight = mean_effective_token_weight(mean_token_weights(reference, config), config)
    return weight if weight else math.nan
