"""What a trial starts from: its objective, data, model, optimiser and random streams."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Generator

from ablate.workloads.contract import Trial
from ablate.workloads.sequence_vae.batches import BatchReader, batch_rows
from ablate.workloads.sequence_vae.checkpoint import Progress, State
from ablate.workloads.sequence_vae.config import TrialSettings
from ablate.workloads.sequence_vae.evaluation import HeldOut, held_out
from ablate.workloads.sequence_vae.model import SequenceVAE, seeded
from ablate.workloads.sequence_vae.objective import (
    ReconstructionObjective,
    Split,
    read_split,
    reconstruction_objective,
)
from ablate.workloads.sequence_vae.reference_table import ReferenceTable
from ablate.workloads.sequence_vae.split_reference import TokenWeights
from ablate.workloads.sequence_vae.train_step import Objective, Streams
from losses import AUXILIARY_TERMS, BetaSchedule, TemperatureSchedule, effective_coefficient

HELD_OUT = {"eval": "report", "select": "select"}
"""The split behind each prefix of held-out metrics."""


@dataclass(frozen=True)
class Setup:
    """What a training reads and does not change.

    Attributes:
        train: the training split.
        weights: of the training split.
        rows: step -> the rows of its batch.
        open_held_out: makes `held_out`, when that is first asked for.
    """

    settings: TrialSettings
    objective: Objective
    train: Split
    weights: TokenWeights
    rows: Callable[[int], NDArray[np.int64]]
    open_held_out: Callable[[], dict[str, HeldOut]]
    streams: Streams
    device: str

    @functools.cached_property
    def held_out(self) -> dict[str, HeldOut]:
        """The evaluated splits by metric prefix."""
        return self.open_held_out()

    @functools.cached_property
    def batches(self) -> BatchReader:
        """What a step's examples are read by."""
        size = self.settings.training.batch_size
        return BatchReader(self.rows, size, self.train, self.weights, self.device)


def trial_settings(config: Mapping[str, Any]) -> TrialSettings:
    """The sections of a configuration that the trainer reads."""
    return TrialSettings.model_validate({name: config[name] for name in TrialSettings.model_fields if name in config})


def set_up(settings: TrialSettings, table: ReferenceTable, trial: Trial, device: str) -> tuple[State, Setup]:
    """The state before the first step, and what the training reads.

    Raises: ValueError where the arm is defined by the baseline and the trial has none.
    """
    train = read_split(table, "train")
    baseline = None if trial.baseline is None else trial_settings(trial.baseline).reconstruction
    stack = reconstruction_objective(settings.reconstruction, table, train, baseline)
    with seeded(trial.stream_seed("initialisation")):
        model = SequenceVAE(settings.latent, settings.model, table.vocabulary, table.tokens.shape[1])
    model.to(device)
    latent, dropout = (Generator().manual_seed(trial.stream_seed(name)) for name in ("latent_sampling", "dropout"))
    drops = settings.model.dropout > 0 or settings.model.token_dropout > 0
    seed, lengths = trial.stream_seed("evaluation"), np.asarray(table.lengths[table.splits["train"]])
    setup = Setup(
        settings,
        _objective(settings, stack, train),
        train,
        stack.reference.token_weights(stack.config, stack.example_weight_mean),
        batch_rows(trial.stream_seed("data_order"), settings.training, lengths),
        lambda: {prefix: held_out(table, name, model, stack.config, seed) for prefix, name in HELD_OUT.items()},
        Streams(latent, dropout if drops else None),
        device,
    )
    _note(trial, table, settings, stack)
    identity = hashlib.sha256(f"{table.sha256} {settings.model_dump_json()}".encode()).hexdigest()
    generators = {"latent_sampling": latent, "dropout": dropout}
    return State(model, {}, generators, identity, Progress()), setup


def _objective(settings: TrialSettings, stack: ReconstructionObjective, train: Split) -> Objective:
    kl = settings.kl.model_dump()
    temperature = settings.temperature.model_dump()
    weights = settings.auxiliary.model_dump()
    return Objective(
        reconstruction=stack.config,
        example_weight_mean=stack.example_weight_mean,
        free_bits=kl.pop("free_bits"),
        beta=BetaSchedule(**kl),
        straight_through=temperature.pop("straight_through"),
        temperature=TemperatureSchedule(**temperature),
        auxiliary={name: weights[name] for name, term in AUXILIARY_TERMS.items() if term.latent == settings.latent},
        training_size=int(train.mask.any(-1).sum()),
        mean_weight=stack.mean_weight,
    )


def _note(trial: Trial, table: ReferenceTable, settings: TrialSettings, stack: ReconstructionObjective) -> None:
    """Keep the numbers that the configuration leaves open, as they were used."""
    trial.note("reference_sha256", table.sha256)
    trial.note("zfree_reference_scale", stack.config.zfree_reference_scale)
    trial.note("mean_effective_token_weight", stack.mean_weight)
    trial.note("term_shares", stack.shares)
    trial.note("effective_beta", effective_coefficient(settings.kl.beta, stack.mean_weight))
    auxiliary = {name: weight for name, weight in settings.auxiliary.model_dump().items() if weight}
    if auxiliary:
        coefficients = {name: effective_coefficient(mu, stack.mean_weight) for name, mu in auxiliary.items()}
        trial.note("effective_auxiliary_weights", coefficients)
    if settings.reconstruction.shares is not None:
        trial.note("weights_of_shares", stack.weights)
    if settings.reconstruction.rescale is not None:
        trial.note("rescaled_by", stack.rescaled_by)
        trial.note("rescaled_weights", stack.weights)
