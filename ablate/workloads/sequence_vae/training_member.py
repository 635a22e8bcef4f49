"""One trial of a pack in training: what it starts from, what it reports, how it ends."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping

import torch

from ablate.workloads.contract import PackMember, TrialDiverged, TrialStopped
from ablate.workloads.sequence_vae import checkpoint
from ablate.workloads.sequence_vae.evaluation import evaluate
from ablate.workloads.sequence_vae.final_evaluation import Effort, evaluate_finally
from ablate.workloads.sequence_vae.gradient_geometry import gradient_cosines
from ablate.workloads.sequence_vae.model import SequenceVAE
from ablate.workloads.sequence_vae.reference_table import ReferenceTable
from ablate.workloads.sequence_vae.sample_tables import sample_tables
from ablate.workloads.sequence_vae.train_step import MemberStep, parts_of
from ablate.workloads.sequence_vae.training_pack import TakenStep
from ablate.workloads.sequence_vae.trial_setup import set_up, trial_settings
from losses import beta_at, effective_coefficient, temperature_at

TRAIN_ROWS = 50
"""About how many steps report the training metrics."""

EVALUATION = {"every": 0.1, "iwae_samples": 64, "iwae_examples": 512}
"""The `evaluation` section of a trial that has none."""


class TrainingMember:
    """A trial between its first step and its last; `going` until it has ended, however it did."""

    def __init__(self, member: PackMember, table: ReferenceTable) -> None:
        self._member, self._table, self._trial = member, table, member.trial
        self.going = True

    @classmethod
    def begin(cls, member: PackMember, table: ReferenceTable) -> TrainingMember:
        """Set the trial up, from its last checkpoint where it has one, and report where it begins."""
        made = cls(member, table)
        with made._own_turn():
            made._begin()
        return made

    def _begin(self) -> None:
        trial, table = self._trial, self._table
        settings = trial_settings(self._member.config)
        device = "cuda" if trial.device == "cuda" and torch.cuda.is_available() else "cpu"
        self.state, self.setup = set_up(settings, table, trial, device)
        problem = checkpoint.restore(self.state, trial.checkpoint_dir, device)
        if problem is not None:
            print(f"the checkpoint in {trial.checkpoint_dir} is not used ({problem}): starting anew")  # noqa: T201
            self.state, self.setup = set_up(settings, table, trial, device)
        self._steps = settings.training.steps
        self._evaluation = EVALUATION | dict(trial.evaluation)
        self._evaluated = evaluation_steps(self._steps, float(self._evaluation["every"]))
        self._due = self._evaluated | report_steps(self._steps)
        self._spent_s = 0.0
        progress = self.state.progress
        if progress.step == 0:
            self._hand_over(self._held_out_metrics())
        elif progress.step == self._steps:  # the result was not handed over
            trial.report(self._steps, progress.row)
            self._finish()

    @contextlib.contextmanager
    def _own_turn(self) -> Iterator[None]:
        """What happens inside is of this trial alone, and so is what goes wrong."""
        with self._member.turn():
            try:
                yield
            except Exception as error:  # noqa: BLE001 - it ends this trial alone
                self.going = False
                self._member.end(error)

    @property
    def due(self) -> bool:
        """Whether the last step is one to be reported."""
        return self.going and self.state.progress.step in self._due

    def stepped(self, objective: float, norm: float, seconds: float) -> None:
        """Hear of a step that was taken, or not taken because the objective is not finite."""
        progress, clip_norm = self.state.progress, self.setup.settings.training.clip_norm
        if not math.isfinite(objective):
            with self._own_turn():
                raise TrialDiverged(f"the objective is {objective} at step {progress.step + 1}")
        progress.step += 1
        progress.counted += 1
        progress.clipped += int(clip_norm is not None and norm > clip_norm)
        self._norm = norm
        self._spent_s += seconds

    def report(self, model: SequenceVAE, taken: TakenStep, place: int) -> None:
        """Report the step that was taken; evaluate, save and end where it is time.

        Args:
            model: of the whole pack.
            place: this trial's in it.
        """
        with self._own_turn():
            own = taken.members[place]
            rows = torch.from_numpy(self.setup.rows(own.step))
            reference = self.setup.weights.reference(rows).to(self.setup.device)
            parts = parts_of(model, taken.batch, own, taken.losses, place, reference)
            metrics = self._train_metrics(parts, own)
            if self.state.progress.step not in self._evaluated:
                self._hand_over(metrics)
                return
            self._report_and_save(metrics | self._held_out_metrics())
            if self.state.progress.step == self._steps:
                self._finish()

    def _train_metrics(self, parts: Mapping[str, float], own: MemberStep) -> dict[str, float]:
        progress, objective = self.state.progress, own.objective
        beta = beta_at(objective.beta, own.step)
        values = {
            **parts,
            "beta": beta,
            "effective_beta": effective_coefficient(beta, objective.mean_weight),
            "grad_norm": self._norm,
            "clip_fraction": progress.clipped / progress.counted,
        }
        if self.setup.settings.latent == "discrete":
            values["temperature"] = temperature_at(objective.temperature, own.step)
        step_s = self._spent_s / progress.counted
        return {f"train/{name}": value for name, value in values.items()} | {"time/step_s": step_s}

    def _hand_over(self, metrics: dict[str, float]) -> None:
        """Report the metrics, and begin the next interval."""
        progress = self.state.progress
        progress.row, progress.clipped, progress.counted, self._spent_s = metrics, 0, 0, 0.0
        self._trial.report(progress.step, metrics)

    def _report_and_save(self, metrics: dict[str, float]) -> None:
        """Report first: what a checkpoint is past is never reported again."""
        folder = self._trial.checkpoint_dir
        try:
            self._hand_over(metrics)
        except TrialStopped:
            if folder is not None:
                checkpoint.save(self.state, folder)
            raise
        if folder is not None:
            checkpoint.save(self.state, folder)
            self._trial.checkpointed(self.state.progress.step)

    def _finish(self) -> None:
        shown, seed = self.setup.held_out["eval"], self._trial.stream_seed("evaluation")
        tables = sample_tables(self.state.model, shown, self._table.texts, seed, self.setup.device)
        for name, text in tables.items():
            self._trial.keep_text(name, text)
        self.going = False
        self._member.end(self.state.progress.row)

    def _held_out_metrics(self) -> dict[str, float]:
        """The metrics of both held-out splits; what costs more at the last step alone.

        Raises: TrialDiverged if the model no longer gives them a finite score.
        """
        setup, model, step = self.setup, self.state.model, self.state.progress.step
        metrics: dict[str, float] = {}
        for prefix, data in setup.held_out.items():
            values = evaluate(model, data, setup.objective.reconstruction, setup.device)
            if step == self._steps:
                effort = Effort(int(self._evaluation["iwae_examples"]), int(self._evaluation["iwae_samples"]))
                seed = self._trial.stream_seed("importance_sampling")
                values |= evaluate_finally(model, data, effort, seed, setup.device)
            if not math.isfinite(values["neg_elbo_per_token"]):
                raise TrialDiverged(f"{prefix}/neg_elbo_per_token is {values['neg_elbo_per_token']}")
            metrics |= {f"{prefix}/{name}": value for name, value in values.items()}
        if self._evaluation.get("gradient_cosines"):
            metrics |= gradient_cosines(model, setup.held_out["select"], setup.objective, step, setup.device)
        return metrics


def evaluation_steps(steps: int, every: float) -> frozenset[int]:
    """Steps after which the held-out splits are scored: each fraction `every` of all, before the first, the last."""
    count = math.floor(1 / every + 1e-9)
    return frozenset([0, steps, *(round(k * every * steps) for k in range(count + 1))])


def report_steps(steps: int) -> frozenset[int]:
    """Steps after which the training metrics are reported: some TRAIN_ROWS, evenly spaced."""
    rows = min(TRAIN_ROWS, steps)
    return frozenset(round(k * steps / rows) for k in range(1, rows + 1))
