"""Train a sequence VAE under a configuration of the loss stack: the trial function of every data source."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ablate.workloads.contract import Trial, TrialDiverged, TrialStopped
from ablate.workloads.sequence_vae import checkpoint
from ablate.workloads.sequence_vae.checkpoint import State
from ablate.workloads.sequence_vae.evaluation import evaluate
from ablate.workloads.sequence_vae.final_evaluation import Effort, evaluate_finally
from ablate.workloads.sequence_vae.gradient_geometry import gradient_cosines
from ablate.workloads.sequence_vae.reference import one_thread
from ablate.workloads.sequence_vae.reference_table import ReferenceTable
from ablate.workloads.sequence_vae.sample_tables import sample_tables
from ablate.workloads.sequence_vae.train_step import Batch, batch_losses, take_step
from ablate.workloads.sequence_vae.trial_setup import Setup, set_up, trial_settings
from losses import beta_at, effective_coefficient, temperature_at

TRAIN_ROWS = 50
"""About how many steps report the training metrics."""

EVALUATION = {"every": 0.1, "iwae_samples": 64, "iwae_examples": 512}
"""The `evaluation` section of a trial that has none."""


def train(config: Mapping[str, Any], table: ReferenceTable, trial: Trial) -> dict[str, float]:
    """Train one trial to its end, from its last checkpoint where it has one.

    Returns: the metrics of the last step.
    Raises: TrialStopped as the trial asks; TrialDiverged once the objective or a held-out score is not finite.
    """
    settings = trial_settings(config)
    device = "cuda" if trial.device == "cuda" and torch.cuda.is_available() else "cpu"
    with one_thread():
        state, setup = set_up(settings, table, trial, device)
        problem = checkpoint.restore(state, trial.checkpoint_dir, device)
        if problem is not None:
            print(f"the checkpoint in {trial.checkpoint_dir} is not used ({problem}): starting anew")  # noqa: T201
            state, setup = set_up(settings, table, trial, device)
        metrics = _train(setup, state, trial)
        shown, seed = setup.held_out["eval"], trial.stream_seed("evaluation")
        for name, text in sample_tables(state.model, shown, table.texts, seed, device).items():
            trial.keep_text(name, text)
        return metrics


def evaluation_steps(steps: int, every: float) -> frozenset[int]:
    """Steps after which the held-out splits are scored: each fraction `every` of all, before the first, the last."""
    count = math.floor(1 / every + 1e-9)
    return frozenset([0, steps, *(round(k * every * steps) for k in range(count + 1))])


def report_steps(steps: int) -> frozenset[int]:
    """Steps after which the training metrics are reported: some TRAIN_ROWS, evenly spaced."""
    rows = min(TRAIN_ROWS, steps)
    return frozenset(round(k * steps / rows) for k in range(1, rows + 1))


def _train(setup: Setup, state: State, trial: Trial) -> dict[str, float]:
    steps, progress = setup.settings.training.steps, state.progress
    evaluation = EVALUATION | dict(trial.evaluation)
    evaluated, reported = evaluation_steps(steps, float(evaluation["every"])), report_steps(steps)
    if progress.step == 0:
        _report(state, trial, _held_out_metrics(setup, state, trial, evaluation))
    elif progress.step == steps:  # the result was not handed over
        trial.report(steps, progress.row)
    spent = 0.0
    while progress.step < steps:
        started = time.perf_counter()
        due = progress.step + 1 in evaluated | reported
        measured = _step(setup, state, measure=due)
        spent += time.perf_counter() - started
        if not due:
            continue
        metrics = measured() | {"time/step_s": spent / progress.counted}
        spent = 0.0
        if progress.step not in evaluated:
            _report(state, trial, metrics)
        else:
            metrics |= _held_out_metrics(setup, state, trial, evaluation)
            _report_and_save(state, trial, metrics)
    return progress.row


def _step(setup: Setup, state: State, *, measure: bool) -> Callable[[], dict[str, float]]:
    """Take one step.

    Returns: a function that reads its metrics, for the steps that are to be reported.
    Raises: TrialDiverged if the objective is not finite.
    """
    progress, objective, clip_norm = state.progress, setup.objective, setup.settings.training.clip_norm
    step = progress.step
    rows = torch.from_numpy(setup.rows(step))
    tokens, mask = (t[rows] for t in (setup.train.tokens, setup.train.mask))
    batch = Batch(tokens.to(setup.device).long(), mask.to(setup.device), setup.reference[rows])
    if setup.settings.training.length_buckets > 1:
        batch = batch.trimmed(int(mask.sum(1).max()))
    loss, parts = batch_losses(state.model, batch, objective, setup.streams, step, measure=measure)
    if not math.isfinite(loss.item()):
        raise TrialDiverged(f"the objective is {loss.item()} at step {step + 1}")
    norm = take_step(state.model, state.optimiser, loss, clip_norm)
    progress.step += 1
    progress.counted += 1
    progress.clipped += int(clip_norm is not None and norm.item() > clip_norm)

    def measured() -> dict[str, float]:
        beta = beta_at(objective.beta, step)
        values = {
            **{name: part.item() for name, part in parts.items()},
            "beta": beta,
            "effective_beta": effective_coefficient(beta, objective.mean_weight),
            "grad_norm": norm.item(),
            "clip_fraction": progress.clipped / progress.counted,
        }
        if setup.settings.latent == "discrete":
            values["temperature"] = temperature_at(objective.temperature, step)
        return {f"train/{name}": value for name, value in values.items()}

    return measured


def _report(state: State, trial: Trial, metrics: dict[str, float]) -> None:
    """Hand the metrics over, and begin the next interval."""
    progress = state.progress
    progress.row, progress.clipped, progress.counted = metrics, 0, 0
    trial.report(progress.step, metrics)


def _report_and_save(state: State, trial: Trial, metrics: dict[str, float]) -> None:
    """Report first: what a checkpoint is past is never reported again."""
    try:
        _report(state, trial, metrics)
    except TrialStopped:
        if trial.checkpoint_dir is not None:
            checkpoint.save(state, trial.checkpoint_dir)
        raise
    if trial.checkpoint_dir is not None:
        checkpoint.save(state, trial.checkpoint_dir)
        trial.checkpointed(state.progress.step)


def _held_out_metrics(setup: Setup, state: State, trial: Trial, evaluation: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of both held-out splits; what costs more at the last step alone.

    Raises: TrialDiverged if the model no longer gives them a finite score.
    """
    metrics: dict[str, float] = {}
    for prefix, data in setup.held_out.items():
        values = evaluate(state.model, data, setup.objective.reconstruction, setup.device)
        if state.progress.step == setup.settings.training.steps:
            effort = Effort(int(evaluation["iwae_examples"]), int(evaluation["iwae_samples"]))
            seed = trial.stream_seed("importance_sampling")
            values |= evaluate_finally(state.model, data, effort, seed, setup.device)
        if not math.isfinite(values["neg_elbo_per_token"]):
            raise TrialDiverged(f"{prefix}/neg_elbo_per_token is {values['neg_elbo_per_token']}")
        metrics |= {f"{prefix}/{name}": value for name, value in values.items()}
    if evaluation.get("gradient_cosines"):
        held_out = setup.held_out["select"]
        metrics |= gradient_cosines(state.model, held_out, setup.objective, state.progress.step, setup.device)
    return metrics
