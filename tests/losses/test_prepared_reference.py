from dataclasses import replace

import numpy as np
import pytest
import torch

from losses import (
    ReconstructionLossConfig,
    concatenate_references,
    effective_token_weight_table,
    prepare_reference,
    reconstruction,
    reconstruction_losses,
    term_weight_matrices,
)
from losses.reconstruction import TERMS
from tests.losses.batches import CONFIG, batch, values


def test_a_batch_of_it_by_any_index():
    data = batch(examples=6)
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    assert len(prepared) == 6
    positions = torch.tensor([1, 2, 3])
    chosen = torch.zeros(6, dtype=torch.bool)
    chosen[1:4] = True
    for index in (positions, positions.int(), slice(1, 4), chosen):
        part = prepared[index]
        assert len(part) == 3
        assert torch.equal(part.weights, prepared.weights[:, 1:4])
        assert torch.equal(part.examples, prepared.examples[:, 1:4])


def test_who_adds_up_diagnostics_leaves_the_reference_alone():
    data = batch()
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    first = reconstruction_losses(data.nll, data.mask, prepared, CONFIG).diagnostics
    before = values(first)
    for value in first.values():
        value += 1.0
    assert values(reconstruction_losses(data.nll, data.mask, prepared, CONFIG).diagnostics) == before


def test_statistics_of_each_example():
    data = batch()
    statistics = prepare_reference(data.surprisal, data.mask, CONFIG).statistics
    active = torch.where(data.mask, data.surprisal, 0.0)
    torch.testing.assert_close(statistics.token_count, data.mask.sum(-1).double())
    torch.testing.assert_close(statistics.present, data.mask.any(-1).double())
    torch.testing.assert_close(statistics.reference_loss, active.sum(-1))
    assert statistics.concentration[data.mask.any(-1)].min() >= 1
    assert statistics.base_scale[data.mask.any(-1)].min() >= 1


@pytest.mark.parametrize("surprisal", [0.1, 1.1, 3.3])
def test_correction_factors_are_not_rounded_below_one(surprisal):
    for length in range(1, 40):
        mask = torch.ones(1, length, dtype=torch.bool)
        statistics = prepare_reference(torch.full((1, length), surprisal), mask, ReconstructionLossConfig()).statistics
        assert min(statistics.concentration, statistics.base_scale) >= 1


def test_parts_join_to_the_whole_from_a_memory_mapped_table(tmp_path):
    data = batch(examples=11, dtype=torch.float32)
    path = tmp_path / "surprisal.npy"
    np.save(path, data.surprisal.numpy())
    table = np.load(path, mmap_mode="c")
    parts = [
        prepare_reference(torch.from_numpy(table[start : start + 4]), data.mask[start : start + 4], CONFIG)
        for start in range(0, 11, 4)
    ]
    whole = prepare_reference(data.surprisal, data.mask, CONFIG)
    joined = concatenate_references(parts)
    assert torch.equal(joined.weights, whole.weights)
    assert torch.equal(joined.examples, whole.examples)


def test_a_large_table_is_gone_through_in_parts(monkeypatch):
    data = batch(examples=11)
    whole = prepare_reference(data.surprisal, data.mask, CONFIG)
    looked_at = []
    made_of = reconstruction.reference_weights
    monkeypatch.setattr(reconstruction, "POSITIONS_AT_ONCE", 30)
    monkeypatch.setattr(
        reconstruction, "reference_weights", lambda s, *others: looked_at.append(len(s)) or made_of(s, *others)
    )
    in_parts = prepare_reference(data.surprisal, data.mask, CONFIG)
    assert looked_at == [4, 4, 3]
    assert torch.equal(in_parts.weights, whole.weights)
    assert torch.equal(in_parts.examples, whole.examples)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (lambda prepared: [], "parts: got none; allowed: one or more"),
        (
            lambda prepared: [prepared, replace(prepared, token_weight_alpha=2.0)],
            "token_weight_alpha: the reference was prepared with 0.7, got 2.0; prepare it again",
        ),
        (
            lambda prepared: [prepared, replace(prepared, weights=prepared.weights[..., :3])],
            "parts: got lengths 3 and 7; allowed: one length",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, message):
    data = batch()
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        concatenate_references(parts(prepared))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("surprisal", "prepared"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
    ],
)
def test_dtype(surprisal, prepared):
    data = batch()
    assert prepare_reference(data.surprisal.to(surprisal), data.mask, CONFIG).weights.dtype == prepared


def test_numbers_that_take_gradients_leave_it_detached():
    data = batch()
    numbers = {
        name: torch.tensor(0.7, requires_grad=True)
        for name in (
            "token_weight_alpha",
            "example_inverse_surprisal_epsilon",
            "inverse_surprisal_token_weight_epsilon",
        )
    }
    prepared = prepare_reference(data.surprisal, data.mask, replace(CONFIG, **numbers))
    assert not prepared.weights.requires_grad
    assert not prepared.examples.requires_grad


def test_terms_with_one_weighting_share_its_matrix():
    data = batch()
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    assert len(prepared.weightings) == len(set(prepared.weightings)) == len(prepared.weights) == 6


def test_to_another_device():
    data = batch()
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    assert prepared.to("meta").weights.device.type == "meta"
    assert torch.equal(prepared.to("cpu").weights, prepared.weights)


def test_weight_matrices_reproduce_the_terms():
    data = batch()
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    losses = reconstruction_losses(data.nll, data.mask, prepared, CONFIG, 0.7)
    matrices = term_weight_matrices(prepared, CONFIG, 0.7)
    present = data.mask.any(-1).sum()
    by_matrix = {name: ((matrix * data.nll).sum() / present).item() for name, matrix in matrices.items()}
    assert list(TERMS) == list(matrices)
    assert pytest.approx(by_matrix) == values(losses.terms)


def test_the_weight_table_of_a_data_set_gives_the_objective_of_any_batch():
    data = batch(examples=9)
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    table = effective_token_weight_table(prepared, CONFIG, 0.7)
    for index in (torch.tensor([4, 2, 0]), torch.tensor([2, 2]), torch.arange(9)):
        mask = data.mask[index]
        losses = reconstruction_losses(data.nll[index], mask, prepared[index], CONFIG, 0.7)
        present = mask.any(-1).sum().clamp(min=1)
        torch.testing.assert_close(table[index] / present, losses.effective_token_weights)
        torch.testing.assert_close((table[index] * data.nll[index]).sum() / present, losses.objective)
    with pytest.raises(ValueError, match=r"token_weight_alpha: .* prepared with 0\.7, got 2\.0"):
        effective_token_weight_table(prepared, replace(CONFIG, token_weight_alpha=2.0), 0.7)
