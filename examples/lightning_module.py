"""The loss stack in a LightningModule: `ablate run examples/lightning_module.yaml`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from motifs import MotifVAE, Sequences, held_out_metrics, training_and_held_out
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from ablate.workloads.contract import Trial, TrialDiverged
from losses import (
    ReconstructionLossConfig,
    example_weight_mean,
    masked_token_nll_per_position,
    prepare_reference,
    reconstruction_losses,
)

DEFAULTS = {
    "examples": 512,
    "steps": 200,
    "batch_size": 32,
    "learning_rate": 1.0e-2,
    "width": 24,
    "latent_dimensions": 4,
    "beta": 1.0,
    "reconstruction": {
        "raw_weight": 0.5,
        "distribution_normalized_weight": 0.0,
        "example_inverse_surprisal_weight": 0.0,
        "token_weighted_weight": 0.5,
        "normalized_concentration_corrected_token_weighted_weight": 0.0,
        "normalized_inverse_surprisal_token_weighted_weight": 0.0,
        "token_aggregation": "token_sum",
    },
}


class MotifModule(LightningModule):
    """J = J_recon + beta L_KL over batches of row numbers."""

    def __init__(self, config: Mapping[str, Any], data: Sequences) -> None:
        super().__init__()
        self.model = MotifVAE(config["width"], config["latent_dimensions"])
        self.data, self.beta, self.learning_rate = data, config["beta"], config["learning_rate"]
        self.stack = ReconstructionLossConfig(**config["reconstruction"])
        self.reference = prepare_reference(data.surprisal, data.mask, self.stack)
        self.normaliser = example_weight_mean(self.reference, self.stack)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:  # noqa: ARG002, D102 - Lightning's own
        [rows] = batch
        logits, kl = self.model(self.data.tokens[rows])
        nll = masked_token_nll_per_position(logits, self.data.tokens[rows, 1:], self.data.mask[rows])
        losses = reconstruction_losses(nll, self.data.mask[rows], self.reference[rows], self.stack, self.normaliser)
        objective = losses.objective + self.beta * kl.mean()
        if not math.isfinite(objective.item()):
            raise TrialDiverged(f"the objective is {objective.item()} at step {self.global_step}")
        return objective

    def configure_optimizers(self) -> torch.optim.Optimizer:  # noqa: D102 - Lightning's own
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)


class ReportToTrial(Callback):
    """Every 50 steps and at the end: the held-out metrics, and a checkpoint."""

    def __init__(self, trial: Trial, held_out: Sequences) -> None:
        self.trial, self.held_out = trial, held_out
        self.metrics: dict[str, float] = {}

    def on_train_batch_end(  # noqa: D102 - Lightning's own
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        del batch, batch_idx
        step = trainer.global_step
        if step % 50 and step != trainer.max_steps:
            return
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.trial.stream_seed("evaluation"))
            self.metrics = held_out_metrics(pl_module.model, self.held_out)
        self.trial.report(step, {"train/objective": float(outputs["loss"]), **self.metrics})
        if self.trial.checkpoint_dir is not None:
            draft = self.trial.checkpoint_dir / "draft.ckpt"
            trainer.save_checkpoint(draft)
            draft.replace(self.trial.checkpoint_dir / "last.ckpt")
            self.trial.checkpointed(step)


def train(config: Mapping[str, Any] = DEFAULTS, trial: Trial | None = None) -> dict[str, float]:
    """Train one trial; goes on from its checkpoint where there is one."""
    trial = trial or Trial(seed=0)
    torch.manual_seed(trial.stream_seed("initialisation"))
    data, held_out = training_and_held_out(config["examples"])
    module = MotifModule(config, data)
    report = ReportToTrial(trial, held_out)
    rows = TensorDataset(torch.arange(len(data.tokens)))
    torch.manual_seed(trial.stream_seed("training"))
    trainer = Trainer(
        accelerator="cpu" if trial.device == "cpu" else "gpu",
        devices=1,
        max_steps=config["steps"],
        callbacks=[report],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = None if trial.checkpoint_dir is None else trial.checkpoint_dir / "last.ckpt"
    batches = DataLoader(rows, config["batch_size"], shuffle=True, drop_last=True)
    trainer.fit(module, batches, ckpt_path=last if last is not None and last.exists() else None)
    return report.metrics


if __name__ == "__main__":
    print(train())
