from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from losses import (
    effective_token_weights,
    linear_masked_token_nll,
    linear_nll,
    masked_token_nll_per_position,
    prepare_reference,
    reconstruction_losses,
)
from losses.cross_entropy import LARGEST_FROM_PROBABILITY
from tests.losses.batches import CONFIG, batch, values

WIDTH, VOCABULARY = 6, 11
CHUNKS = pytest.mark.parametrize("chunk", [None, 9])


def setting(dtype=torch.float64, *, bias=True, examples=5, length=7):
    """A batch with hidden states, output matrix and targets; leaves that take gradients."""
    data = batch(examples, length, dtype=dtype)
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(*data.mask.shape, WIDTH, generator=generator, dtype=dtype, requires_grad=True)
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator, dtype=dtype, requires_grad=True)
    offset = torch.randn(VOCABULARY, generator=generator, dtype=dtype, requires_grad=True) if bias else None
    targets = torch.randint(VOCABULARY, data.mask.shape, generator=generator).masked_fill(~data.mask, -100)
    return data, targets, [hidden, weight, offset]


def plain(data, targets, leaves):
    hidden, weight, bias = leaves
    nll = masked_token_nll_per_position(functional.linear(hidden, weight, bias), targets, data.mask)
    losses = reconstruction_losses(nll, data.mask, data.surprisal, CONFIG)
    return nll, losses


def gradients(objective, leaves):
    return torch.autograd.grad(objective, [leaf for leaf in leaves if leaf is not None])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 4, 35, 1000, None])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_it_equals_the_plain_way(bias, chunk, dtype):
    data, targets, leaves = setting(dtype, bias=bias)
    nll, losses = plain(data, targets, leaves)
    hidden, weight, offset = leaves
    weights = losses.effective_token_weights
    linear = linear_masked_token_nll(hidden, weight, targets, data.mask, weights, bias=offset, chunk=chunk)
    assert not linear.nll.requires_grad
    torch.testing.assert_close(linear.nll, nll.detach())
    torch.testing.assert_close(linear.objective, losses.objective)
    for got, exact in zip(
        gradients(3 * linear.objective, leaves), gradients(3 * losses.objective, leaves), strict=True
    ):
        assert (got - exact).abs().max() <= 1e-5 * exact.abs().max()


@CHUNKS
@pytest.mark.parametrize("scale", [40.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_nll_of_next_to_no_probability_is_exact(chunk, scale, dtype, monkeypatch):
    monkeypatch.setattr(linear_nll, "FEWEST_LOGITS", 0)
    data, targets, (hidden, *matrix) = setting(dtype)
    leaves = [(scale * hidden).detach().requires_grad_(), *matrix]
    nll, losses = plain(data, targets, leaves)
    assert (nll > LARGEST_FROM_PROBABILITY.active).sum() > 9
    weights = losses.effective_token_weights
    linear = linear_masked_token_nll(*leaves[:2], targets, data.mask, weights, bias=leaves[2], chunk=chunk)
    torch.testing.assert_close(linear.nll, nll.detach())
    for got, exact in zip(gradients(linear.objective, leaves), gradients(losses.objective, leaves), strict=True):
        torch.testing.assert_close(got, exact)


def test_without_values_to_look_at():
    with FakeTensorMode():
        hidden, weight, nothing = torch.empty(3, 4, WIDTH), torch.empty(VOCABULARY, WIDTH), torch.empty(3, 4)
        linear = linear_masked_token_nll(hidden, weight, nothing.long(), nothing.bool(), nothing, chunk=3)
    assert linear.nll.shape == (3, 4)


@CHUNKS
def test_a_target_that_is_no_class_is_refused(chunk):
    data, targets, (hidden, weight, offset) = setting()
    targets = targets.masked_fill(data.mask, VOCABULARY)
    with pytest.raises(IndexError, match=f"targets: got {VOCABULARY} where the mask is on"):
        linear_masked_token_nll(hidden, weight, targets, data.mask, torch.ones_like(data.nll), bias=offset, chunk=chunk)


@pytest.mark.parametrize("fewest", [0, linear_nll.FEWEST_LOGITS])
def test_a_batch_without_examples(fewest, monkeypatch):
    monkeypatch.setattr(linear_nll, "FEWEST_LOGITS", fewest)
    hidden, weight = torch.empty(0, 7, WIDTH, requires_grad=True), torch.ones(VOCABULARY, WIDTH, requires_grad=True)
    nothing = torch.empty(0, 7)
    linear = linear_masked_token_nll(hidden, weight, nothing.long(), nothing.bool(), nothing)
    linear.objective.backward()
    assert linear.nll.shape == (0, 7)
    assert not weight.grad.any()


def test_the_terms_to_log_are_the_same():
    data, targets, leaves = setting()
    _, losses = plain(data, targets, leaves)
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    weights = effective_token_weights(prepared, CONFIG)
    torch.testing.assert_close(weights, losses.effective_token_weights)
    linear = linear_masked_token_nll(*leaves[:2], targets, data.mask, weights, bias=leaves[2])
    logged = reconstruction_losses(linear.nll, data.mask, prepared, CONFIG)
    assert pytest.approx(values(losses.terms)) == values(logged.terms)
    assert pytest.approx(logged.objective.item()) == linear.objective.item()


def test_gradcheck():
    data, targets, leaves = setting(examples=3, length=3)
    weights = effective_token_weights(prepare_reference(data.surprisal, data.mask, CONFIG), CONFIG)

    def objective(hidden, weight, bias):
        return linear_masked_token_nll(hidden, weight, targets, data.mask, weights, bias=bias, chunk=4).objective

    assert torch.autograd.gradcheck(objective, leaves)


@CHUNKS
@pytest.mark.parametrize("many", [False, True])
def test_a_second_backward_gives_the_same_bits(chunk, many):
    data, targets, leaves = setting(torch.float32)
    objective = linear_masked_token_nll(
        *leaves[:2], targets, data.mask, torch.rand(5, 7), bias=leaves[2], chunk=chunk
    ).objective
    slope = torch.tensor([3.0, 5.0]) if many else torch.tensor(3.0)

    def found(*, keep):
        made = torch.autograd.grad(objective, leaves, slope, retain_graph=keep, is_grads_batched=many)
        return [gradient.clone() for gradient in made]

    first, again, last = found(keep=True), found(keep=True), found(keep=False)
    for one, two, three in zip(first, again, last, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)
    with pytest.raises(RuntimeError, match="second time"):
        objective.backward()


@CHUNKS
def test_a_gradient_that_was_differentiated_outlives_the_backward(chunk):
    data, targets, leaves = setting()
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    objective = linear_masked_token_nll(
        *leaves[:2], targets, data.mask, torch.ones_like(data.nll), bias=leaves[2], chunk=chunk
    ).objective
    (gradient,) = torch.autograd.grad(scale * objective, leaves[:1], create_graph=True)
    expected = gradient.square().sum().item()
    (7 * objective).backward()
    (found,) = torch.autograd.grad(gradient.square().sum(), scale)
    assert found.item() == pytest.approx(expected)  # 2 scale |g|^2, and the scale is 2


def test_the_backward_makes_no_tensor_of_the_size_of_a_gradient():
    data, targets, (hidden, weight, _) = setting(examples=40)
    weights = torch.ones_like(data.nll)
    objective = linear_masked_token_nll(hidden, weight, targets, data.mask, weights, chunk=9).objective
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        torch.autograd.grad(3 * objective, [hidden, weight])
    made = [event.nbytes() for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert made
    assert max(made) < weight.nbytes


@CHUNKS
def test_a_leaf_that_takes_no_gradient_gets_none(chunk):
    data, targets, (hidden, weight, _) = setting()
    frozen = weight.detach()
    linear = linear_masked_token_nll(hidden, frozen, targets, data.mask, torch.ones_like(data.nll), chunk=chunk)
    linear.objective.backward()
    assert hidden.grad is not None
    assert frozen.grad is None


@CHUNKS
def test_without_gradients_it_is_the_value_alone(chunk):
    data, targets, leaves = setting()
    with torch.no_grad():
        linear = linear_masked_token_nll(*leaves[:2], targets, data.mask, torch.ones_like(data.nll), chunk=chunk)
    assert not linear.objective.requires_grad
    assert not linear.nll.requires_grad
    torch.testing.assert_close(linear.objective, linear.nll.sum())


@CHUNKS
def test_nothing_under_the_mask_is_read(chunk):
    data, targets, leaves = setting()
    weights = effective_token_weights(prepare_reference(data.surprisal, data.mask, CONFIG), CONFIG)
    hidden, weight, bias = leaves
    expected = linear_masked_token_nll(hidden, weight, targets, data.mask, weights, bias=bias, chunk=chunk)
    exact = gradients(expected.objective, leaves)
    off = ~data.mask
    targets, weights = targets.masked_fill(off, 10**6), weights.masked_fill(off, torch.nan)
    for anything in (1e3, torch.nan, torch.inf):
        broken = hidden.detach().masked_fill(off.unsqueeze(-1), anything).requires_grad_()
        got = linear_masked_token_nll(broken, weight, targets, data.mask, weights, bias=bias, chunk=chunk)
        assert torch.equal(got.nll, expected.nll)
        assert torch.equal(got.objective, expected.objective)
        if anything == 1e3:
            for one, other in zip(gradients(got.objective, [broken, weight, bias]), exact, strict=True):
                assert torch.equal(one, other)


@CHUNKS
def test_a_batch_without_active_positions(chunk):
    data, targets, leaves = setting()
    nothing = torch.zeros_like(data.mask)
    linear = linear_masked_token_nll(*leaves[:2], targets, nothing, torch.ones_like(data.nll), chunk=chunk)
    assert linear.objective.item() == 0
    assert not any(gradient.any() for gradient in gradients(linear.objective, leaves[:2]))


@CHUNKS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(dtype, chunk):
    data, targets, leaves = setting(torch.float32)
    weights = effective_token_weights(prepare_reference(data.surprisal, data.mask, CONFIG), CONFIG)
    halves = [leaf.detach().to(dtype).requires_grad_() for leaf in leaves]
    wider = [leaf.detach().double().requires_grad_() for leaf in halves]
    _, exact = plain(data, targets, wider)
    linear = linear_masked_token_nll(*halves[:2], targets, data.mask, weights, bias=halves[2], chunk=chunk)
    assert linear.objective.dtype == torch.float32
    assert pytest.approx(exact.objective.item(), rel=0.02) == linear.objective.item()
    for got, expected in zip(gradients(linear.objective, halves), gradients(exact.objective, wider), strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), expected, rtol=0.05, atol=0.05)
    with torch.autocast("cpu", dtype):
        cast = linear_masked_token_nll(*leaves[:2], targets, data.mask, weights, bias=leaves[2], chunk=chunk)
    assert cast.nll.dtype == torch.float32
    assert pytest.approx(exact.objective.item(), rel=0.02) == cast.objective.item()
    assert {gradient.dtype for gradient in gradients(cast.objective, leaves)} == {torch.float32}


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, while it traces
def test_compiles_as_one_graph():
    data, targets, leaves = setting(torch.float32)
    weights = torch.rand(data.mask.shape)

    def step(hidden, weight, bias):
        return linear_masked_token_nll(hidden, weight, targets, data.mask, weights, bias=bias, chunk=9).objective

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for got, exact in zip(gradients(compiled(*leaves), leaves), gradients(step(*leaves), leaves), strict=True):
        torch.testing.assert_close(got, exact)


def test_vmap_over_models():
    data, targets, leaves = setting()
    weights = torch.rand(3, *data.mask.shape, dtype=torch.float64)
    stacked = [torch.stack([leaf, 2 * leaf, -leaf]).detach() for leaf in leaves]

    def objective(hidden, weight, bias, weights):
        return linear_masked_token_nll(hidden, weight, targets, data.mask, weights, bias=bias, chunk=9).objective

    together = torch.func.vmap(torch.func.grad(objective, argnums=(0, 1, 2)))(*stacked, weights)
    for trial in range(3):
        alone = torch.func.grad(objective, argnums=(0, 1, 2))(*(t[trial] for t in stacked), weights[trial])
        for one, other in zip(together, alone, strict=True):
            torch.testing.assert_close(one[trial], other)


@CHUNKS
def test_the_ignored_target_is_ignored_where_active_too(chunk):
    data, targets, leaves = setting()
    targets = targets.masked_fill(torch.arange(7) % 3 == 0, -100)
    weights = torch.rand(data.mask.shape, dtype=torch.float64)
    linear = linear_masked_token_nll(*leaves[:2], targets, data.mask, weights, bias=leaves[2], chunk=chunk)
    assert not linear.nll[targets == -100].any()
    nll, _ = plain(data, targets, leaves)
    objective = (torch.where(data.mask, weights, 0.0) * nll).sum()
    torch.testing.assert_close(linear.objective, objective)
    for got, exact in zip(gradients(linear.objective, leaves), gradients(objective, leaves), strict=True):
        torch.testing.assert_close(got, exact)


@CHUNKS
def test_token_weights_of_another_type(chunk):
    data, targets, leaves = setting(torch.float32)
    weights = torch.rand(data.mask.shape, dtype=torch.float64)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        cast = weights.to(torch.bfloat16).to(dtype)
        linear = linear_masked_token_nll(*leaves[:2], targets, data.mask, cast, bias=leaves[2], chunk=chunk)
        nll, _ = plain(data, targets, leaves)
        objective = (cast.double() * nll.double()).sum()
        assert pytest.approx(objective.item(), rel=1e-5) == linear.objective.item()
        for got, exact in zip(gradients(linear.objective, leaves), gradients(objective, leaves), strict=True):
            torch.testing.assert_close(got, exact)


@pytest.mark.parametrize(("fewest", "cross_entropies"), [(5 * 7 * 11 + 1, 1), (5 * 7 * 11, 0)])
def test_few_logits_are_made_in_one_piece(monkeypatch, fewest, cross_entropies):
    calls = []
    in_one_piece = linear_nll.masked_token_nll_per_position
    monkeypatch.setattr(linear_nll, in_one_piece.__name__, lambda *given: calls.append(1) or in_one_piece(*given))
    monkeypatch.setattr(linear_nll, "FEWEST_LOGITS", fewest)
    data, targets, leaves = setting()
    linear_masked_token_nll(*leaves[:2], targets, data.mask, torch.ones_like(data.nll)).objective.backward()
    assert len(calls) == cross_entropies


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": torch.ones(5, 7, 3)}, "hidden: got shape (5, 7, 3); allowed: (5, 7, 6) as mask and weight have it"),
        ({"token_weights": torch.ones(5)}, "token_weights: got shape (5,); allowed: (5, 7) as the mask has it"),
        (
            {"targets": torch.ones(5, 7).int()},
            "targets: got dtype torch.int32; allowed: torch.int64 (targets.long())",
        ),
        ({"bias": torch.ones(3)}, "bias: got shape (3,); allowed: (11,) as weight has it"),
        ({"chunk": 0}, "chunk: got 0; allowed: a whole number >= 1"),
    ],
)
def test_a_wrong_argument_is_named(change, message):
    data, targets, (hidden, weight, _) = setting()
    arguments = {"hidden": hidden, "weight": weight, "targets": targets, "mask": data.mask}
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        linear_masked_token_nll(**{**arguments, "token_weights": torch.ones(5, 7), **change})
    assert str(caught.value) == message


def test_the_reference_must_be_prepared_with_the_settings():
    data, *_ = setting()
    prepared = prepare_reference(data.surprisal, data.mask, CONFIG)
    with pytest.raises(ValueError, match=r"token_weight_alpha: .* prepared with 0\.7, got 2\.0"):
        effective_token_weights(prepared, replace(CONFIG, token_weight_alpha=2.0))
