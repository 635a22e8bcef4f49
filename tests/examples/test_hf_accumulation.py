"""The Trainer's loss and gradient do not depend on how a batch is split (docs/loss_stack.md, identity 7)."""

from pathlib import Path

import pytest
import torch
from transformers import Trainer, TrainerCallback

from ablate.workloads import import_path
from ablate.workloads.contract import Trial
from losses import ReconstructionLossConfig

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ALL_TERMS = ReconstructionLossConfig(token_weight_alpha=1.5)


class Gradient(TrainerCallback):
    """Keeps the gradient of the first step."""

    def on_pre_optimizer_step(self, args, state, control, model=None, **others):
        self.value = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone()


@pytest.fixture
def one_step(tmp_path, monkeypatch):
    """accumulation -> (loss that the Trainer logs, gradient) of one step over eleven examples."""
    with import_path(EXAMPLES):
        import hf_trainer
        from motifs import training_and_held_out
    # the same z of an example in every split
    monkeypatch.setattr(hf_trainer.torch, "randn_like", torch.zeros_like)
    data, _ = training_and_held_out(11)

    def run(accumulation, loss=None):
        torch.manual_seed(0)
        model = hf_trainer.BertGPT2VAE(16, 2, data.tokens.shape[1])
        model.token_dropout.p = 0.0
        config = hf_trainer.DEFAULTS | {"steps": 1, "batch_size": 12, "gradient_accumulation_steps": accumulation}
        arguments = hf_trainer.arguments(config, Trial(seed=0), str(tmp_path))
        arguments.logging_steps, arguments.max_grad_norm = 1, 0.0
        gradient = Gradient()
        stack = (loss or hf_trainer.LossStack)(data, ALL_TERMS, 0.7)
        trainer = Trainer(
            model, arguments, train_dataset=hf_trainer.Rows(data), compute_loss_func=stack, callbacks=[gradient]
        )
        trainer.train()
        return trainer.state.log_history[0]["loss"], gradient.value

    return run


def test_accumulation_changes_neither_loss_nor_gradient(one_step):
    loss, gradient = one_step(1)
    # four micro-batches of 3, 3, 3 and 2 examples
    parts_loss, parts_gradient = one_step(4)
    assert parts_loss == pytest.approx(loss, rel=1e-5)
    torch.testing.assert_close(parts_gradient, gradient, rtol=1e-4, atol=1e-6)


def test_the_batchs_own_normaliser_would_not_do(one_step):
    import hf_trainer

    class OwnNormaliser(hf_trainer.LossStack):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.normaliser = None

    losses = [one_step(accumulation, loss=OwnNormaliser)[0] for accumulation in (1, 4)]
    assert losses[1] != pytest.approx(losses[0], rel=1e-4)
