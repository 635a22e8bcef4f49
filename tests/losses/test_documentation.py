"""docs/loss_stack.md runs, and leaves nothing out."""

import re
from pathlib import Path

import pytest
import torch

import losses
from losses import ReconstructionLossConfig, reconstruction_losses
from losses.auxiliary import AUXILIARY_TERMS
from losses.reconstruction import TERMS
from tests.losses.batches import batch

PAGE = (Path(__file__).parents[2] / "docs" / "loss_stack.md").read_text(encoding="utf-8")
DATA = batch(dtype=torch.float32)
DIAGNOSTICS = reconstruction_losses(DATA.nll, DATA.mask, DATA.surprisal, ReconstructionLossConfig()).diagnostics


def test_its_code_runs():
    generator = torch.Generator().manual_seed(0)
    known = {
        **vars(losses),
        "mask": DATA.mask,
        "surprisal": DATA.surprisal,
        "index": torch.tensor([0, 1, 4]),
        "logits": torch.randn(3, 7, 9, generator=generator, requires_grad=True),
        "hidden": torch.randn(3, 7, 5, generator=generator, requires_grad=True),
        "output_matrix": torch.randn(9, 5, generator=generator, requires_grad=True),
        "targets": torch.randint(9, (3, 7), generator=generator),
    }
    known |= {name: getattr(losses, name) for name in losses.__all__}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, known)
    assert all(known[name].grad is not None for name in ("logits", "hidden", "output_matrix"))


@pytest.mark.parametrize("name", [*TERMS, *AUXILIARY_TERMS, *DIAGNOSTICS, *(t.weight_field for t in TERMS.values())])
def test_every_name_of_a_record_is_on_the_page(name):
    if name.startswith("inverse_token_weighting/"):
        name = "inverse_token_weighting/…"
    assert f"`{name}`" in PAGE
