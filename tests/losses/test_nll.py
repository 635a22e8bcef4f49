import pytest
import torch

from losses import (
    masked_token_nll_per_example,
    masked_token_nll_per_position,
    mean_over_examples,
    token_weighted_masked_nll_per_example,
)
from tests.losses import oracle

MASK = torch.tensor([[True, True, True], [True, False, True], [False, False, False]])
NLL = torch.tensor([[1.0, 2.0, 3.0], [4.0, torch.nan, 6.0], [torch.inf, torch.nan, -1.0]], dtype=torch.float64)
WEIGHTS = torch.tensor([[0.5, 1.0, 1.5], [0.5, torch.nan, 1.5], [torch.nan] * 3], dtype=torch.float64)


def logits_and_targets(dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(3, 3, 5, generator=generator, dtype=torch.float64)
    targets = torch.randint(5, (3, 3), generator=generator).masked_fill(~MASK, -100)
    return logits.to(dtype), targets


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
def test_position_nll_equals_the_oracle(scale):
    logits, targets = logits_and_targets(scale=scale)
    nll = masked_token_nll_per_position(logits, targets, MASK)
    for b, t in MASK.nonzero().tolist():
        assert pytest.approx(oracle.token_nll(logits[b, t].tolist(), targets[b, t].item())) == nll[b, t].item()
    assert torch.equal(nll[~MASK], torch.zeros(6 - 2, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("vocabulary", [5, 4096])
def test_position_nll_is_scored_in_float32(dtype, scale, vocabulary):
    generator = torch.Generator().manual_seed(1)
    logits = (scale * (2 * torch.rand(2, 3, vocabulary, generator=generator) - 1)).to(dtype)
    targets = torch.randint(vocabulary, (2, 3), generator=generator)
    targets[0, 0] = logits[0, 0].argmax()
    mask = torch.ones(2, 3, dtype=torch.bool)
    nll = masked_token_nll_per_position(logits, targets, mask)
    assert nll.dtype == torch.float32
    exact = masked_token_nll_per_position(logits.double(), targets, mask)
    assert (nll - exact).abs().le(torch.maximum(1e-5 * exact.abs(), torch.tensor(1e-6))).all()


def test_a_mask_that_is_off_hides_targets_and_extreme_logits():
    logits, targets = logits_and_targets()
    logits = logits.masked_fill(~MASK.unsqueeze(-1), 1e30)
    values = []
    for anything in (-100, 0, 10**9, -1):
        leaf = logits.clone().requires_grad_()
        nll = masked_token_nll_per_position(leaf, targets.masked_fill(~MASK, anything), MASK)
        nll.sum().backward()
        assert torch.equal(leaf.grad[~MASK], torch.zeros_like(leaf.grad[~MASK]))
        values.append(nll)
    assert all(torch.equal(values[0], other) for other in values)


def test_logits_that_are_not_numbers_leave_values_right_under_the_mask():
    logits, targets = logits_and_targets()
    expected = masked_token_nll_per_position(logits, targets, MASK)
    for anything in (torch.nan, torch.inf, -torch.inf):
        broken = logits.masked_fill(~MASK.unsqueeze(-1), anything)
        assert torch.equal(expected, masked_token_nll_per_position(broken, targets, MASK))


def test_shifted_targets_score_all_positions_without_a_copy():
    """logits[:, :-1] against tokens[:, 1:] equals all logits against targets whose last position is masked."""
    logits, _ = logits_and_targets()
    tokens = torch.tensor([[0, 1, 2], [3, 4, 0], [1, 2, 3]])
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    short = masked_token_nll_per_position(logits[:, :-1], tokens[:, 1:], mask)
    shifted, longer = tokens.roll(-1, 1), torch.nn.functional.pad(mask, (0, 1))
    torch.testing.assert_close(short, masked_token_nll_per_position(logits, shifted, longer)[:, :-1])


def test_per_example_sum_and_mean():
    assert masked_token_nll_per_example(NLL, MASK, "token_sum").tolist() == [6.0, 10.0, 0.0]
    assert masked_token_nll_per_example(NLL, MASK, "token_mean").tolist() == [2.0, 5.0, 0.0]


def test_per_example_with_token_weights():
    assert token_weighted_masked_nll_per_example(NLL, MASK, WEIGHTS, "token_sum").tolist() == [7.0, 11.0, 0.0]
    by_mean = token_weighted_masked_nll_per_example(NLL, MASK, WEIGHTS, "token_mean")
    torch.testing.assert_close(by_mean, torch.tensor([7 / 3, 5.5, 0.0], dtype=torch.float64))


def test_per_example_gradients_stop_at_mask_and_weights():
    nll, weights = NLL.clone().requires_grad_(), WEIGHTS.clone().requires_grad_()
    token_weighted_masked_nll_per_example(nll, MASK, weights, "token_sum").sum().backward()
    assert weights.grad is None
    assert nll.grad.tolist() == [[0.5, 1.0, 1.5], [0.5, 0.0, 1.5], [0.0, 0.0, 0.0]]


def test_lengths_give_three_named_means():
    """Lengths 10 and 1000 with losses 2 and 1: token mean over all, mean of sequence means, mean of sums."""
    mask = torch.arange(1000) < torch.tensor([[10], [1000]])
    nll = torch.tensor([[2.0], [1.0]], dtype=torch.float64).expand(2, 1000)
    per_sum = masked_token_nll_per_example(nll, mask, "token_sum")
    assert pytest.approx((20 + 1000) / 1010) == (per_sum.sum() / mask.sum()).item()
    assert masked_token_nll_per_example(nll, mask, "token_mean").mean().item() == 1.5
    assert per_sum.mean().item() == 510.0


def test_mean_over_examples_leaves_out_the_empty():
    values = torch.tensor([1.0, 3.0, torch.nan], requires_grad=True)
    mean = mean_over_examples(values, MASK)
    mean.backward()
    assert mean.item() == 2.0
    assert values.grad.tolist() == [0.5, 0.5, 0.0]
    assert mean_over_examples(torch.ones(3, 2), torch.zeros(3, dtype=torch.bool)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: masked_token_nll_per_position(torch.ones(3, 2, 5), torch.ones(3, 3).long(), MASK),
            "logits: got shape (3, 2, 5); allowed: (3, 3, 'V') as the mask has it",
        ),
        (
            lambda: masked_token_nll_per_position(torch.ones(3, 3, 5), torch.ones(3, 2).long(), MASK),
            "targets: got shape (3, 2); allowed: (3, 3) as the mask has it",
        ),
        (
            lambda: masked_token_nll_per_position(
                torch.ones(3, 3, 5, requires_grad=True), torch.ones(3, 3).int(), MASK
            ),
            "targets: got dtype torch.int32; allowed: torch.int64 (targets.long())",
        ),
        (
            lambda: masked_token_nll_per_example(NLL, MASK.long(), "token_sum"),
            "mask: got dtype torch.int64; allowed: torch.bool (mask.bool())",
        ),
        (
            lambda: masked_token_nll_per_example(NLL, MASK, "sum"),
            "token_aggregation: got 'sum'; allowed: token_mean, token_sum",
        ),
        (
            lambda: mean_over_examples(torch.ones(2), MASK),
            "mask: got torch.bool (3, 3); allowed: bool of 2 examples",
        ),
    ],
)
def test_a_wrong_argument_is_named(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        call()
    assert str(caught.value) == message
