"""One's own training loop with the loss stack: `ablate run examples/plain_pytorch.yaml`.

Alone, without any runner: `python examples/plain_pytorch.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from motifs import MotifVAE, held_out_metrics, training_and_held_out

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
        "token_weight_alpha": 1.0,
        "token_aggregation": "token_sum",
    },
}


def train(config: Mapping[str, Any] = DEFAULTS, trial: Trial | None = None) -> dict[str, float]:
    """Train one trial; goes on from its checkpoint where there is one."""
    trial = trial or Trial(seed=0)
    torch.manual_seed(trial.stream_seed("initialisation"))
    data, held_out = training_and_held_out(config["examples"])
    model = MotifVAE(config["width"], config["latent_dimensions"])
    optimiser = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
    # What depends on the frozen reference alone is made once, and indexed by batch.
    stack = ReconstructionLossConfig(**config["reconstruction"])
    reference = prepare_reference(data.surprisal, data.mask, stack)
    normaliser = example_weight_mean(reference, stack)

    first = restored(trial, model, optimiser)
    for step in range(first, config["steps"] + 1):
        rows = torch.from_numpy(trial.rng(f"batch {step}").choice(len(data.tokens), config["batch_size"]))
        torch.manual_seed(trial.stream_seed(f"latent {step}"))
        logits, kl = model(data.tokens[rows])
        nll = masked_token_nll_per_position(logits, data.tokens[rows, 1:], data.mask[rows])
        losses = reconstruction_losses(nll, data.mask[rows], reference[rows], stack, normaliser)
        objective = losses.objective + config["beta"] * kl.mean()
        if not math.isfinite(objective.item()):
            raise TrialDiverged(f"the objective is {objective.item()} at step {step}")
        optimiser.zero_grad()
        objective.backward()
        optimiser.step()
        if step % 50 == 0 or step == config["steps"]:
            torch.manual_seed(trial.stream_seed("evaluation"))
            trial.report(step, {"train/objective": objective.item(), **held_out_metrics(model, held_out)})
            keep(trial, step, model, optimiser)
    torch.manual_seed(trial.stream_seed("evaluation"))
    return held_out_metrics(model, held_out)


def restored(trial: Trial, model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> int:
    """The step to go on with, after the last checkpoint is loaded; 1 without one."""
    if trial.checkpoint_dir is None or not (trial.checkpoint_dir / "state.pt").exists():
        return 1
    state = torch.load(trial.checkpoint_dir / "state.pt")
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    return int(state["step"]) + 1


def keep(trial: Trial, step: int, model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Write the checkpoint whole or not at all, and say that it is there."""
    if trial.checkpoint_dir is not None:
        draft = trial.checkpoint_dir / "state.draft"
        torch.save({"step": step, "model": model.state_dict(), "optimiser": optimiser.state_dict()}, draft)
        draft.replace(trial.checkpoint_dir / "state.pt")
        trial.checkpointed(step)


if __name__ == "__main__":
    print(train())
