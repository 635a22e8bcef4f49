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
from ablate.workloads.sequence_vae.checkpoint import Progress, State
from ablate.workloads.sequence_vae.config import Training, TrialSettings
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
    seed = trial.stream_seed("evaluation")
    setup = Setup(
        settings,
        _objective(settings, stack, train),
        train,
        stack.reference.token_weights(stack.config, stack.example_weight_mean),
        _batches(trial.stream_seed("data_order"), settings.training, np.asarray(table.lengths[table.splits["train"]])),
        lambda: {prefix: held_out(table, name, model, stack.config, seed) for prefix, name in HELD_OUT.items()},
        Streams(latent, dropout if drops else None),
        device,
    )
    _note(trial, table, settings, stack)
    identity = hashlib.sha256(f"{table.sha256} {settings.model_dump_json()}".encode()).hexdigest()
    generators = {"latent_sampling": latent, "dropout": dropout}
    return State(model, {}, generators, identity, Progress()), setup


def data_order(seed: int, examples: int, batch_size: int) -> Callable[[int], NDArray[np.int64]]:
    """Step (from 0) -> rows of its batch: consecutive places of one permutation of the examples after another.

    Permutation e depends on (seed, e) alone, so any step can be asked for at any time.
    """

    @functools.lru_cache(maxsize=2)
    def permutation(epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([seed, epoch]).permutation(examples)

    def rows(step: int) -> NDArray[np.int64]:
        places = np.arange(step * batch_size, (step + 1) * batch_size)
        epochs = range(places[0] // examples, places[-1] // examples + 1)
        return np.concatenate([permutation(e)[places[places // examples == e] % examples] for e in epochs])

    return rows


def length_buckets(
    rows: Callable[[int], NDArray[np.int64]], lengths: NDArray[np.integer], batches: int, seed: int
) -> Callable[[int], NDArray[np.int64]]:
    """As `data_order`, the sequences of so many batches in a row regrouped into batches of similar length.

    They stand by length, are cut into batches and these are shuffled: every epoch still sees each example once, and
    the mean of these batches is that of the ones they are made of.
    """

    @functools.lru_cache(maxsize=2)
    def pool(number: int) -> NDArray[np.int64]:
        drawn = np.concatenate([rows(number * batches + place) for place in range(batches)])
        by_length = drawn[np.argsort(lengths[drawn], kind="stable")].reshape(batches, -1)
        return np.asarray(by_length[np.random.default_rng([seed, number, 1]).permutation(batches)])

    return lambda step: pool(step // batches)[step % batches]


def _batches(seed: int, training: Training, lengths: NDArray[np.integer]) -> Callable[[int], NDArray[np.int64]]:
    rows = data_order(seed, len(lengths), training.batch_size)
    return rows if training.length_buckets == 1 else length_buckets(rows, lengths, training.length_buckets, seed)


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
