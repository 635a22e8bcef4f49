import math

import pytest
import torch

from losses import inverse_surprisal_token_weights, surprisal_share_token_weights
from tests.losses import oracle

MASK = torch.tensor([[True, True, True, False], [True, False, True, True], [False] * 4, [True] * 4])
SURPRISAL = torch.tensor(
    [[1.0, 2.0, 5.0, torch.nan], [0.0, torch.inf, 3.0, 0.5], [torch.nan, 1.0, -1.0, 0.0], [0.0, 0.0, -0.1, 0.0]],
    dtype=torch.float64,
)


def assert_each_example_equals(weights, function):
    """`function` is the oracle of one example."""
    assert torch.equal(weights[~MASK], torch.zeros_like(weights[~MASK]))
    for b in (0, 1, 3):
        expected = function(SURPRISAL[b][MASK[b]].tolist())
        assert pytest.approx(expected, rel=1e-12, abs=1e-300) == weights[b][MASK[b]].tolist()


@pytest.mark.parametrize("alpha", [0, 1e-6, 0.5, 1.0, 2.0, 17.5, 100.0])
def test_share_equals_the_oracle(alpha):
    weights = surprisal_share_token_weights(SURPRISAL, MASK, alpha)
    assert_each_example_equals(weights, lambda surprisals: oracle.share_weights(surprisals, alpha))


@pytest.mark.parametrize("epsilon", [1e-12, 0.01, 1.0, 1e12])
def test_inverse_equals_the_oracle(epsilon):
    weights = inverse_surprisal_token_weights(SURPRISAL, MASK, epsilon)
    assert_each_example_equals(weights, lambda surprisals: oracle.inverse_weights(surprisals, epsilon))


def test_known_values():
    share = surprisal_share_token_weights(SURPRISAL, MASK, 1.0)
    assert pytest.approx([3 / 8, 6 / 8, 15 / 8, 0.0]) == share[0].tolist()
    assert share[3].tolist() == [1.0] * 4
    inverse = inverse_surprisal_token_weights(SURPRISAL, MASK, 1.0)
    assert pytest.approx([3 * 3 / 6, 2 * 3 / 6, 1 * 3 / 6, 0.0]) == inverse[0].tolist()


@pytest.mark.parametrize("function", [surprisal_share_token_weights, inverse_surprisal_token_weights])
def test_weights_are_detached_and_mean_one(function):
    surprisal = SURPRISAL.clone().requires_grad_()
    weights = function(surprisal, MASK, 0.7)
    assert not weights.requires_grad
    torch.testing.assert_close(weights.sum(-1), MASK.sum(-1).double())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", [surprisal_share_token_weights, inverse_surprisal_token_weights])
def test_dtype_is_the_surprisals_or_float32(function, dtype):
    wider = torch.promote_types(dtype, torch.float32)
    assert function(SURPRISAL.to(dtype), MASK, 1.0).dtype == wider


@pytest.mark.parametrize("function", [surprisal_share_token_weights, inverse_surprisal_token_weights])
def test_weights_are_detached_from_their_setting(function):
    assert not function(SURPRISAL, MASK, torch.tensor(0.7, requires_grad=True)).requires_grad


EPSILONS = [5e-324, 1e-300, 1e-30, 1e300]
TENSORS = [torch.tensor(1e300, dtype=torch.float64), torch.tensor(1e38), torch.tensor(6e4, dtype=torch.float16)]


@pytest.mark.parametrize("epsilon", [*EPSILONS, *TENSORS])
def test_no_epsilon_overflows(epsilon):
    weights = inverse_surprisal_token_weights(SURPRISAL.float(), MASK, epsilon)
    assert weights.isfinite().all()
    torch.testing.assert_close(weights.sum(-1), MASK.sum(-1).float())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: surprisal_share_token_weights(SURPRISAL, MASK, 101),
            "token_weight_alpha: got 101; allowed: a finite number >= 0 and <= 100",
        ),
        (
            lambda: surprisal_share_token_weights(SURPRISAL, MASK, math.nan),
            "token_weight_alpha: got nan; allowed: a finite number >= 0 and <= 100",
        ),
        (
            lambda: inverse_surprisal_token_weights(SURPRISAL, MASK, 0.0),
            "inverse_surprisal_token_weight_epsilon: got 0.0; allowed: a finite number > 0",
        ),
        (
            lambda: inverse_surprisal_token_weights(SURPRISAL[:2], MASK, 0.1),
            "surprisal: got shape (2, 4); allowed: (4, 4) as the mask has it",
        ),
        (
            lambda: surprisal_share_token_weights(SURPRISAL, MASK.float(), 1.0),
            "mask: got dtype torch.float32; allowed: torch.bool (mask.bool())",
        ),
    ],
)
def test_a_wrong_argument_is_named(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("largest", [1e4, 1.0, 1e-7, 1e-15])
def test_no_surprisal_has_no_share(dtype, largest):
    surprisal = torch.tensor([[0.0, largest, 0.0, largest / 2]], dtype=dtype)
    weights = surprisal_share_token_weights(surprisal, torch.ones(1, 4, dtype=torch.bool), 1.0)
    assert weights[0, [0, 2]].tolist() == [0, 0]
    assert weights.sum().item() == pytest.approx(4)
