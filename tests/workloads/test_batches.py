"""Examples read for many steps at once are those that each step asks for."""

import dataclasses

import pytest
import torch

from ablate.workloads.contract import Trial
from ablate.workloads.sequence_vae import batches
from ablate.workloads.sequence_vae.reference_table import open_table
from ablate.workloads.sequence_vae.trial_setup import set_up, trial_settings
from ablate.workloads.synthetic_sequences.config import prepared_key
from tests.workloads.conftest import tiny

STEPS = (0, 1, 2, 3, 70, 2)


@pytest.fixture
def setup(shared_dir):
    config = tiny()
    table = open_table(prepared_key(config), shared_dir)
    return set_up(trial_settings(config), table, Trial(seed=0, shared_dir=shared_dir), "cpu")[1]


@pytest.mark.parametrize(("steps", "positions", "asked"), [(32, 2**18, 3 * 32), (3, 2**18, 4 * 3), (32, 1, len(STEPS))])
def test_each_step_has_its_own_rows_in_any_order(setup, monkeypatch, steps, positions, asked):
    monkeypatch.setattr(batches, "STEPS_AT_ONCE", steps)
    monkeypatch.setattr(batches, "POSITIONS_AT_ONCE", positions)
    read = []
    counting = dataclasses.replace(setup, rows=lambda step: read.append(step) or setup.rows(step))
    for step in STEPS:
        tokens, mask, weights = counting.batches(step)
        rows = torch.from_numpy(setup.rows(step))
        assert torch.equal(tokens, setup.train.tokens[rows].long())
        assert torch.equal(mask, setup.train.mask[rows])
        assert torch.equal(weights, setup.weights[rows])
    assert len(read) == asked
