"""Values computed apart from this code (see `computed_by` in the file)."""

import json
from pathlib import Path

import pytest
import torch

from losses import ReconstructionLossConfig, masked_token_nll_per_position, reconstruction_losses
from tests.losses.batches import values

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "loss_stack.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_golden_values(case):
    mask = torch.tensor(case["mask"], dtype=torch.bool)
    logits = torch.tensor(case["logits"], dtype=torch.float64)
    nll = masked_token_nll_per_position(logits, torch.tensor(case["targets"]), mask)
    torch.testing.assert_close(nll, torch.tensor(case["nll"], dtype=torch.float64))
    surprisal = torch.tensor(case["surprisal"], dtype=torch.float64)
    losses = reconstruction_losses(nll, mask, surprisal, ReconstructionLossConfig(**case["config"]))
    assert pytest.approx(case["terms"], rel=1e-12) == values(losses.terms)
    assert pytest.approx(case["diagnostics"], rel=1e-12) == values(losses.diagnostics)
    assert pytest.approx(case["objective"], rel=1e-12) == losses.objective.item()
