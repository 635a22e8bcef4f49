"""The loss stack as `compute_loss_func` of Hugging Face's Trainer: `ablate run examples/hf_trainer.yaml`.

Correct under gradient accumulation: `labels` are the rows of the examples, one an example, so that the Trainer's
`num_items_in_batch` counts the examples of all micro-batches of a step, and the third term has the data set's
normaliser. Then the loss of a step is the same however it is split (docs/loss_stack.md, identity 7).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from typing import Any

import torch
from motifs import PAD, VOCABULARY, Sequences, held_out_metrics, training_and_held_out
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

from ablate.workloads.contract import Trial, TrialDiverged
from losses import (
    ReconstructionLossConfig,
    example_weight_mean,
    gaussian_kl,
    masked_token_nll_per_position,
    prepare_reference,
    reconstruction_losses,
)

DEFAULTS = {
    "examples": 512,
    "steps": 150,
    "batch_size": 32,
    "gradient_accumulation_steps": 2,
    "learning_rate": 1.0e-2,
    "width": 32,
    "latent_dimensions": 4,
    "beta": 1.0,
    "reconstruction": {
        "raw_weight": 0.5,
        "distribution_normalized_weight": 0.0,
        "example_inverse_surprisal_weight": 0.5,
        "token_weighted_weight": 0.0,
        "normalized_concentration_corrected_token_weighted_weight": 0.0,
        "normalized_inverse_surprisal_token_weighted_weight": 0.0,
        "token_aggregation": "token_sum",
    },
}


class BertGPT2VAE(nn.Module):
    """BERT encoder, q(z|x) = N(mu, diag sigma^2), GPT-2 decoder; both small and from their configurations alone."""

    def __init__(self, width: int, latent_dimensions: int, positions: int) -> None:
        super().__init__()
        encoder = BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=2 * width,
            max_position_embeddings=positions,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        decoder = GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=positions,
            n_embd=width,
            n_layer=1,
            n_head=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
            tie_word_embeddings=False,
        )
        self.encoder = BertModel(encoder, add_pooling_layer=False)
        self.posterior = nn.Linear(width, 2 * latent_dimensions)
        self.latent = nn.Linear(latent_dimensions, width)
        self.decoder = GPT2LMHeadModel(decoder)
        self.token_dropout = nn.Dropout1d(0.5)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, T - 1, V] that score tokens[:, 1:], and KL_b [B] in nats."""
        states = self.encoder(tokens, attention_mask=(tokens != PAD).long()).last_hidden_state
        mu, logvar = self.posterior(states[:, 0]).chunk(2, dim=-1)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        prefix = self.token_dropout(self.decoder.transformer.wte(tokens[:, :-1]))
        logits = self.decoder(inputs_embeds=prefix + self.latent(z)[:, None]).logits
        return logits, gaussian_kl(mu, logvar)


class Rows(Dataset[dict[str, Tensor]]):
    """A row's tokens, and as its label its number: the loss looks up the reference by it."""

    def __init__(self, data: Sequences) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data.tokens)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {"tokens": self.data.tokens[row], "labels": torch.tensor(row)}


class LossStack:
    """J = J_recon + beta L_KL of a micro-batch, as its share of the mean over all examples of the step."""

    def __init__(self, data: Sequences, stack: ReconstructionLossConfig, beta: float) -> None:
        self.data, self.stack, self.beta = data, stack, beta
        self.reference = prepare_reference(data.surprisal, data.mask, stack)
        self.normaliser = example_weight_mean(self.reference, stack)

    def __call__(
        self, outputs: tuple[Tensor, Tensor], labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """The loss that the Trainer adds up over micro-batches; `labels` are rows, their number in all the items."""
        logits, kl = outputs
        mask = self.data.mask[labels]
        nll = masked_token_nll_per_position(logits, self.data.tokens[labels, 1:], mask)
        losses = reconstruction_losses(nll, mask, self.reference[labels], self.stack, self.normaliser)
        examples = len(labels) if num_items_in_batch is None else num_items_in_batch
        return (losses.objective + self.beta * kl.mean()) * (len(labels) / examples)


class ReportToTrial(TrainerCallback):
    """Hands what the Trainer logs, and the held-out metrics, to the trial."""

    def __init__(self, trial: Trial, model: nn.Module, held_out: Sequences) -> None:
        self.trial, self.model, self.held_out = trial, model, held_out
        self.metrics: dict[str, float] = {}

    def on_log(  # noqa: D102 - the Trainer's own
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: Mapping[str, float] | None = None,
        **_others: object,
    ) -> None:
        if logs is not None and "loss" in logs:
            if not math.isfinite(logs["loss"]):
                raise TrialDiverged(f"the objective is {logs['loss']} at step {state.global_step}")
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.trial.stream_seed("evaluation"))
                self.metrics = held_out_metrics(self.model, self.held_out)
            self.trial.report(state.global_step, {"train/objective": logs["loss"], **self.metrics})

    def on_save(  # noqa: D102 - the Trainer's own
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_others: object,
    ) -> None:
        self.trial.checkpointed(state.global_step)


def arguments(config: Mapping[str, Any], trial: Trial, folder: str) -> TrainingArguments:
    """What the Trainer is told; its own random state comes from the trial's seed."""
    return TrainingArguments(
        output_dir=folder,
        max_steps=config["steps"],
        per_device_train_batch_size=config["batch_size"] // config["gradient_accumulation_steps"],
        gradient_accumulation_steps=config["gradient_accumulation_steps"],
        learning_rate=config["learning_rate"],
        lr_scheduler_type="constant",
        seed=trial.stream_seed("training") % 2**32,
        logging_steps=50,
        save_steps=50,
        save_total_limit=1,
        use_cpu=trial.device == "cpu",
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to="none",
    )


def train(config: Mapping[str, Any] = DEFAULTS, trial: Trial | None = None) -> dict[str, float]:
    """Train one trial; goes on from the Trainer's last checkpoint where there is one."""
    trial = trial or Trial(seed=0)
    torch.manual_seed(trial.stream_seed("initialisation"))
    data, held_out = training_and_held_out(config["examples"])
    model = BertGPT2VAE(config["width"], config["latent_dimensions"], data.tokens.shape[1])
    loss = LossStack(data, ReconstructionLossConfig(**config["reconstruction"]), config["beta"])
    report = ReportToTrial(trial, model, held_out)
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(trial.checkpoint_dir or scratch)
        trainer = Trainer(
            model,
            arguments(config, trial, folder),
            train_dataset=Rows(data),
            compute_loss_func=loss,
            callbacks=[report],
        )
        trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
    return report.metrics


if __name__ == "__main__":
    print(train())
