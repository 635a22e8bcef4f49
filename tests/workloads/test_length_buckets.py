"""Batches of similar length: every example as often as before, less padding, the same loss."""

import numpy as np
import pytest
import torch

from ablate.workloads import find_workload
from ablate.workloads.contract import Trial
from ablate.workloads.sequence_vae.batches import data_order, length_buckets
from ablate.workloads.sequence_vae.train_step import Batch
from ablate.workloads.synthetic_sequences.workload import train
from tests.workloads.conftest import EVALUATION, tiny

EXAMPLES, BATCH, BUCKETS = 50, 4, 5


def test_an_epoch_holds_each_example_once_and_any_step_can_be_asked_for():
    lengths = np.random.default_rng(0).integers(2, 40, EXAMPLES)
    plain = data_order(7, EXAMPLES, BATCH)
    bucketed = length_buckets(plain, lengths, BUCKETS, 7)
    steps = EXAMPLES * 2 // BATCH  # two epochs, and whole pools
    batches = [bucketed(step) for step in range(steps)]
    assert np.array_equal(np.bincount(np.concatenate(batches)), np.full(EXAMPLES, 2))
    again = length_buckets(plain, lengths, BUCKETS, 7)
    assert np.array_equal(again(17), batches[17])

    def padding(of):
        return sum(int((lengths[rows].max() - lengths[rows]).sum()) for rows in of)

    assert padding(batches) < padding(plain(step) for step in range(steps)) / 3
    means = [lengths[rows].mean() for rows in batches[:BUCKETS]]
    assert means != sorted(means)  # not from short to long


def test_a_trimmed_batch_has_the_same_loss():
    mask = torch.arange(9) < torch.tensor([[4], [2], [5]])
    weights = torch.rand(3, 9, generator=torch.Generator().manual_seed(1)) * mask
    tokens = torch.ones(3, 10, dtype=torch.int64)
    whole = Batch(tokens[None], mask[None], weights[None])
    trimmed = whole.trimmed()
    assert (trimmed.tokens.shape, trimmed.mask.shape) == ((1, 3, 6), (1, 3, 5))
    assert trimmed.mask.sum() == mask.sum()
    assert trimmed.weights.sum().item() == pytest.approx(whole.weights.sum().item())


def test_a_trial_trains_on_them(shared_dir):
    final = train(tiny(training={"length_buckets": 4}), Trial(seed=0, shared_dir=shared_dir, evaluation=EVALUATION))
    plain = train(tiny(), Trial(seed=0, shared_dir=shared_dir, evaluation=EVALUATION))
    assert final["eval/neg_elbo_per_token"] != plain["eval/neg_elbo_per_token"]
    assert final["eval/zfree_nll_per_token"] == plain["eval/zfree_nll_per_token"]


def test_without_them_the_identity_is_what_it_was():
    for name in ("synthetic_sequences", "sequence_file"):
        workload = find_workload(name)
        default = workload.config_type().model_dump(mode="json")
        assert workload.later["training.length_buckets"] == default["training"]["length_buckets"] == 1
