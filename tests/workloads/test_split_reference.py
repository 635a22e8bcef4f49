"""A split that is too large for memory is prepared a batch at a time, and comes to the same."""

import numpy as np
import pytest
import torch

from ablate.workloads.sequence_vae.objective import read_split
from ablate.workloads.sequence_vae.split_reference import split_reference
from losses import (
    TERMS,
    ReconstructionLossConfig,
    effective_token_weights,
    example_weight_mean,
    mean_token_weights,
    zfree_reference_scale,
)


@pytest.mark.parametrize("mode", ["token_sum", "token_mean"])
def test_batches_and_totals_are_those_of_the_whole(table, mode, monkeypatch):
    train = read_split(table, "train")
    config = ReconstructionLossConfig(token_aggregation=mode, zfree_reference_scale=7.0)
    whole = split_reference(train.surprisal, train.mask, config)
    monkeypatch.setattr("ablate.workloads.sequence_vae.split_reference.PART", 5 * train.mask.shape[1])
    parts = split_reference(train.surprisal, train.mask, config, in_memory=0)
    assert (whole.prepared is None, parts.prepared is None) == (False, True)

    assert example_weight_mean(parts.totals, config) == pytest.approx(example_weight_mean(whole.totals, config))
    assert zfree_reference_scale(parts.totals) == pytest.approx(zfree_reference_scale(whole.totals))
    weights = mean_token_weights(whole.totals, config)
    assert mean_token_weights(parts.totals, config) == pytest.approx(weights, rel=1e-6)
    assert set(weights) == set(TERMS)

    rows = torch.tensor([3, 40, 7, 3])
    mean = example_weight_mean(whole.totals, config)
    one, other = (reference.token_weights(config, mean) for reference in (whole, parts))
    assert (one.whole is None, other.whole is None) == (False, True)
    assert torch.equal(one[rows], other[rows])
    expected = effective_token_weights(one.reference(rows), config, mean)
    torch.testing.assert_close(one[rows] / len(rows), expected)


def test_the_mask_of_a_table_is_where_its_targets_are(table):
    assert np.array_equal(table.mask.sum(1), np.asarray(table.lengths) - 1)
