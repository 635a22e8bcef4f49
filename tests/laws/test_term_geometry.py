"""The geometry of the terms against loops in float64, in closed form, and where it is degenerate."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.plan.canonical import CanonicalFrame
from ablate.workloads.collinearity import (
    collinear_groups,
    cosine_matrix,
    effective_rank,
    singular_values,
    term_geometry,
    variance_inflation,
)
from ablate.workloads.sequence_vae import term_geometry as gram_pass
from ablate.workloads.sequence_vae.term_geometry import weight_gram
from ablate.workloads.weight_gram import SETTING_FIELDS, WeightGram
from losses import ReconstructionLossConfig
from losses.reconstruction import TERMS, Term
from tests.losses import oracle
from tests.losses.batches import NO_WEIGHTS, batch

RAW, NORMALIZED, EXAMPLE, SHARE, CORRECTED, INVERSE = range(6)
DEFAULT = (1.0, 0.1, 0.1, "token_sum")
SCALES = {"token_sum": 2.5, "token_mean": 0.5}
law = settings(derandomize=True, deadline=None, max_examples=25)


def measured(surprisal, mask=None, *points) -> WeightGram:
    surprisal = torch.as_tensor(surprisal, dtype=torch.float64)
    mask = torch.ones(surprisal.shape, dtype=torch.bool) if mask is None else torch.as_tensor(mask)
    return weight_gram(surprisal, mask, points or (DEFAULT,), SCALES)


def oracle_matrices(surprisal, mask, setting) -> np.ndarray:
    """[K, n L], N W_k for c = 1, each the effective weight of an objective of one term, by loops."""
    present = sum(any(row) for row in mask)
    zero = [[0.0] * len(row) for row in mask]
    rows = []
    for field in oracle.SIX_TERMS.values():
        config = NO_WEIGHTS | {field: 1.0, "zfree_reference_scale": 1.0}
        config |= dict(zip(SETTING_FIELDS, setting, strict=True))
        rows.append(np.ravel(oracle.reconstruction(zero, mask, surprisal, config).weights) * present)
    return np.array(rows)


def section(setting=DEFAULT, **weights) -> dict:
    values = asdict(ReconstructionLossConfig()) | NO_WEIGHTS | {"zfree_reference_scale": "auto"}
    return values | dict(zip(SETTING_FIELDS, setting, strict=True)) | weights


SETTINGS = [DEFAULT, (0.5, 0.3, 2.0, "token_mean"), (3.0, 1e-3, 1e-2, "token_sum")]


# --- the pass ------------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [1, 150, 2**22], ids=["row by row", "in parts", "at once"])
def test_inner_products_are_those_of_loops(monkeypatch, entries):
    monkeypatch.setattr(gram_pass, "MATRIX_ENTRIES", entries)
    data = batch(9, 6)
    found = measured(data.surprisal, data.mask, *SETTINGS)
    every = [oracle_matrices(data.surprisal.tolist(), data.mask.tolist(), setting) for setting in SETTINGS]
    matrices = np.concatenate(every)
    np.testing.assert_allclose(found.gram, matrices @ matrices.T, rtol=1e-12)
    np.testing.assert_allclose(found.sums, matrices.sum(1), rtol=1e-12)
    assert (found.tokens, found.examples) == (int(data.mask.sum()), int(data.mask.any(-1).sum()))


def test_what_is_inactive_decides_nothing():
    data = batch(6, 5)
    spoilt = data.surprisal.masked_fill(~data.mask, float("nan"))
    assert (measured(spoilt, data.mask).gram == measured(data.surprisal, data.mask).gram).all()


def test_it_is_kept_as_text_without_loss():
    data = batch(4, 5)
    found = measured(data.surprisal, data.mask, *SETTINGS)
    again = WeightGram.from_json(found.to_json())
    assert (again.gram == found.gram).all()
    assert (again.sums == found.sums).all()
    assert replace(again, gram=found.gram, sums=found.sums) == found


def test_a_term_of_ones_own_takes_part(monkeypatch):
    monkeypatch.setitem(TERMS, "my_loss", Term("my_weight", lambda reference: reference.share.square()))
    data = batch(5, 5)
    found = measured(data.surprisal, data.mask)
    assert found.names[-1] == "my_loss"
    assert found.weight_fields[-1] == "my_weight"
    share = oracle_matrices(data.surprisal.tolist(), data.mask.tolist(), DEFAULT)[SHARE]
    np.testing.assert_allclose(found.gram[-1], [*(found_row @ share**2 for found_row in oracle_matrices(
        data.surprisal.tolist(), data.mask.tolist(), DEFAULT)), share**2 @ share**2], rtol=1e-12)  # fmt: skip
    assert len(term_geometry(found, 0).variance_inflation) == 7


# --- laws ----------------------------------------------------------------------------------------


@st.composite
def tables(draw):
    examples, length = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    numbers = st.one_of(st.just(0.0), st.floats(1e-3, 20))
    row = st.lists(numbers, min_size=length, max_size=length)
    surprisal = draw(st.lists(row, min_size=examples, max_size=examples))
    lengths = draw(st.lists(st.integers(1, length), min_size=examples, max_size=examples))
    return surprisal, [[t < n for t in range(length)] for n in lengths]


@law
@given(tables(), st.floats(0, 4), st.floats(1e-2, 10), st.sampled_from(["token_sum", "token_mean"]))
def test_raw_and_distribution_normalized_are_one_direction(table, alpha, epsilon, mode):
    cosines = term_geometry(measured(*table, (alpha, epsilon, epsilon, mode)), 0).cosines
    assert cosines[RAW, NORMALIZED] == pytest.approx(1, abs=1e-14)


@law
@given(tables(), st.sampled_from(["token_sum", "token_mean"]))
def test_alpha_0_makes_token_weighted_raw(table, mode):
    found = measured(*table, (0.0, 0.1, 0.1, mode)).at(0)
    for term in (SHARE, CORRECTED):
        np.testing.assert_allclose(found[term], found[RAW], rtol=1e-12)


@law
@given(tables(), st.sampled_from(["token_sum", "token_mean"]))
def test_epsilon_to_infinity_makes_inverse_raw(table, mode):
    found = measured(*table, (1.0, 1e12, 1e12, mode)).at(0)
    for term in (EXAMPLE, INVERSE):
        np.testing.assert_allclose(found[term], found[RAW], rtol=1e-9)


@law
@given(tables(), st.integers(2, 5))
def test_singular_values_and_inflation_are_those_of_the_matrices(table, seed):
    matrices = oracle_matrices(*table, DEFAULT)
    found = term_geometry(measured(*table), 0)
    unit = matrices / np.linalg.norm(matrices, axis=1, keepdims=True)
    expected = np.zeros(6)
    values = np.linalg.svd(unit, compute_uv=False)
    expected[: len(values)] = values
    np.testing.assert_allclose(found.singular_values, expected, atol=2e-7)
    assert 1 - 1e-9 <= found.effective_rank <= min(unit.shape) + 1e-9
    for term, inflation in enumerate(found.variance_inflation):
        others = np.delete(unit, term, 0)
        residual = unit[term] - np.linalg.lstsq(others.T, unit[term], rcond=1e-9)[0] @ others
        if residual @ residual > 1e-6:
            assert inflation == pytest.approx(1 / (residual @ residual), rel=1e-3)
        elif residual @ residual < 1e-12:
            assert inflation > 1e6


# --- closed forms --------------------------------------------------------------------------------


def test_a_constructed_gram():
    """Surprisals 1 and 3 in one example: w = (1/2, 3/2), kappa = 5/4; eps = 1: v = (4/3, 2/3), gamma = 6/5."""
    found = measured([[1.0, 3.0]], None, (1.0, 1.0, 1.0, "token_sum")).at(0)
    ones, share, inverse = np.ones(2), np.array([0.5, 1.5]), 1.2 * np.array([4 / 3, 2 / 3])
    matrices = np.array([ones, ones, ones, share, share / 1.25, inverse])
    np.testing.assert_allclose(found, matrices @ matrices.T, rtol=1e-14)
    cosines = cosine_matrix(found)
    assert cosines[RAW, SHARE] == pytest.approx(2 / math.sqrt(2 * 2.5))
    assert cosines[SHARE, INVERSE] == pytest.approx((2 / 3 + 1) / math.sqrt(2.5 * 20 / 9))


def test_orthogonal_and_identical_matrices():
    assert effective_rank(singular_values(np.eye(5))) == pytest.approx(5)
    assert effective_rank(singular_values(np.ones((5, 5)))) == pytest.approx(1)
    assert variance_inflation(np.eye(3)).tolist() == [1, 1, 1]
    assert variance_inflation(np.array([[1, 0.8], [0.8, 1]])) == pytest.approx([1 / 0.36] * 2)
    assert variance_inflation(np.ones((2, 2))).tolist() == [np.inf, np.inf]
    assert variance_inflation(np.ones((1, 1))).tolist() == [1]


def test_every_cosine_in_a_group_reaches_the_threshold():
    chain = np.array([[1, 0.96, 0.5], [0.96, 1, 0.955], [0.5, 0.955, 1]])
    assert collinear_groups(chain, 0.95) == ((0, 1), (2,))
    assert collinear_groups(chain, 0.97) == ((0,), (1,), (2,))
    assert collinear_groups(chain, 0.5) == ((0, 1, 2),)
    assert collinear_groups(np.array([[1.0, 0.95], [0.95, 1.0]]), 0.95) == ((0, 1),)


def test_a_matrix_without_length_is_no_direction():
    gram = np.array([[2.0, 0.0, 2.0], [0.0, 0.0, 0.0], [2.0, 0.0, 2.0]])
    cosines = cosine_matrix(gram)
    assert np.isnan(cosines[1]).all()
    assert collinear_groups(cosines, 0.9) == ((0, 2), (1,))
    assert effective_rank(singular_values(cosines)) == pytest.approx(1)
    assert np.isnan(variance_inflation(cosines)[1])
    assert np.isnan(effective_rank(singular_values(np.full((2, 2), np.nan))))


# --- degenerate data -----------------------------------------------------------------------------


def test_one_active_position_an_example_leaves_one_direction_but_for_the_examples_own():
    found = term_geometry(measured([[1.0], [3.0]]), 0)
    others = [RAW, NORMALIZED, SHARE, CORRECTED, INVERSE]
    np.testing.assert_allclose(found.cosines[np.ix_(others, others)], 1, rtol=1e-14)
    one, three = 1 / 1.1, 1 / 3.1
    assert found.cosines[RAW, EXAMPLE] == pytest.approx((one + three) / math.sqrt(2 * (one**2 + three**2)))
    np.testing.assert_allclose(term_geometry(measured([[2.0], [2.0]]), 0).cosines, 1, rtol=1e-14)


def test_a_single_example_has_no_example_weight():
    found = term_geometry(measured([[1.0, 2.0, 4.0]]), 0)
    assert found.cosines[RAW, EXAMPLE] == pytest.approx(1)
    assert found.groups[0][:3] == (RAW, NORMALIZED, EXAMPLE)


def test_a_constant_surprisal_leaves_one_direction():
    found = term_geometry(measured(np.full((3, 4), 2.0)), 0)
    np.testing.assert_allclose(found.cosines, 1, rtol=1e-14)
    assert found.effective_rank == pytest.approx(1)
    assert found.groups == (tuple(range(6)),)
    assert np.isinf(found.variance_inflation).all()


def test_no_active_position_gives_nothing_and_no_warning():
    found = measured([[1.0, 2.0]], [[False, False]])
    assert (found.tokens, found.examples, found.gram.any()) == (0, 0, False)
    assert np.isnan(term_geometry(found, 0).effective_rank)


# --- arms ----------------------------------------------------------------------------------------


def test_canonical_coordinates_are_those_of_w():
    data = batch(8, 6)
    other = (2.0, 0.1, 0.1, "token_mean")
    gram = measured(data.surprisal, data.mask, DEFAULT, other)
    arms = [
        section(raw_weight=1.0, token_weighted_weight=0.5),
        section(raw_weight=0.2, distribution_normalized_weight=1.0, example_inverse_surprisal_weight=3.0),
        section(other, token_weighted_weight=1.0, normalized_inverse_surprisal_token_weighted_weight=2.0),
    ]
    frame = CanonicalFrame(gram, {"reconstruction": arms[0]})
    tokens, active = gram.tokens, np.ravel(data.mask.numpy())
    directions = []
    for arm in arms:
        values = arm | {"zfree_reference_scale": SCALES[arm["token_aggregation"]]}
        found = oracle.reconstruction(data.surprisal.tolist(), data.mask.tolist(), data.surprisal.tolist(), values)
        w = np.ravel(found.weights)[active] * gram.examples
        directions.append(w / w.mean())
        of = frame.of({"reconstruction": arm, "kl": {"beta": 0.7}, "auxiliary": {"dip_vae_i": 0.3, "code_usage": 0}})
        assert of.scale == pytest.approx(w.mean(), rel=1e-12)
        assert of.beta_eff == pytest.approx(0.7 / w.mean(), rel=1e-12)
        assert of.auxiliary_eff == {"dip_vae_i": pytest.approx(0.3 / w.mean(), rel=1e-12)}
        assert of.effective_token_count == pytest.approx(w.sum() ** 2 / (w @ w), rel=1e-12)
        gap = directions[-1] - directions[0]
        assert of.distance == pytest.approx(math.sqrt(gap @ gap / tokens), rel=1e-9)
        square = np.sum(np.square(of.direction)) + of.outside**2
        assert square == pytest.approx(directions[-1] @ directions[-1] / tokens, rel=1e-9)
    assert frame.of({"reconstruction": arms[0]}).outside == 0
    places = frame.embedding([{"reconstruction": arm} for arm in arms])
    for one in range(3):
        for two in range(3):
            apart = np.linalg.norm(directions[one] - directions[two]) / math.sqrt(tokens)
            assert np.linalg.norm(places[one] - places[two]) == pytest.approx(apart, abs=1e-7)


def test_other_weights_of_the_same_training_have_the_same_coordinates():
    """Raw and distribution-normalized are one term up to 1/c, here 1/2.5; all weights and beta doubled."""
    gram = measured(batch(8, 6).surprisal, batch(8, 6).mask)
    one = {"reconstruction": section(raw_weight=1.0, token_weighted_weight=1.0), "kl": {"beta": 1.0}}
    two = {
        "reconstruction": section(raw_weight=1.0, distribution_normalized_weight=2.5, token_weighted_weight=2.0),
        "kl": {"beta": 2.0},
    }
    frame = CanonicalFrame(gram, one)
    first, second = frame.of(one), frame.of(two)
    assert second.scale == pytest.approx(2 * first.scale)
    assert second.distance == 0
    for name, value in first.columns().items():
        if name != "scale":
            assert second.columns()[name] == pytest.approx(value, abs=1e-7)


def test_a_rescaled_twin_keeps_its_direction_and_has_the_scale_of_the_baseline():
    gram = measured(batch(8, 6).surprisal, batch(8, 6).mask)
    base = {"reconstruction": section(raw_weight=2.0, token_weighted_weight=1.0), "kl": {"beta": 1.0}}
    arm = section(raw_weight=2.0)
    frame = CanonicalFrame(gram, base)
    plain, twin = (frame.of({"reconstruction": s, "kl": {"beta": 1.0}}) for s in (arm, arm | {"rescale": "baseline"}))
    assert twin.direction == plain.direction
    assert (twin.scale, twin.beta_eff) == (frame.of(base).scale, frame.of(base).beta_eff)


def test_shares_are_of_the_effective_token_weight():
    gram = measured(batch(8, 6).surprisal, batch(8, 6).mask)
    base = {"reconstruction": section(raw_weight=2.0), "kl": {"beta": 1.0}}
    shares = {"raw_weight": 0.25, "normalized_inverse_surprisal_token_weighted_weight": 0.75}
    found = CanonicalFrame(gram, base).of({"reconstruction": section() | {"shares": shares}, "kl": {"beta": 1.0}})
    means = gram.mean_weights(0)
    weights = {name: share / means[gram.weight_fields.index(name)] for name, share in shares.items()}
    same = CanonicalFrame(gram, base).of({"reconstruction": section(**weights), "kl": {"beta": 0.5}})
    assert found.direction == pytest.approx(same.direction)
    assert (found.scale, found.beta_eff) == (pytest.approx(2), pytest.approx(same.beta_eff))


def test_weights_of_zero_have_no_direction():
    gram = measured(batch(4, 4).surprisal, batch(4, 4).mask)
    frame = CanonicalFrame(gram, {"reconstruction": section(raw_weight=1.0)})
    nothing = frame.of({"reconstruction": section(), "kl": {"beta": 1.0}})
    assert nothing.scale == 0
    assert math.isnan(nothing.distance)
    assert math.isnan(nothing.beta_eff)
