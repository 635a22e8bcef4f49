"""GRUs of several models at once against PyTorch's own, one by one."""

import copy

import pytest
import torch
from torch import nn

from ablate.workloads.sequence_vae.batched_gru import batched_gru, one_gru


def cells(count, layers=2, width=5):
    torch.manual_seed(0)
    return [nn.GRU(width, width, num_layers=layers, batch_first=True).double() for _ in range(count)]


def stacked(own):
    made = copy.deepcopy(own[0])
    for name, _ in own[0].named_parameters():
        setattr(made, name, nn.Parameter(torch.stack([getattr(one, name).detach() for one in own])))
    return made


def with_slopes(function, x, module):
    """States, and the slopes of a weighted sum of them by x and by each parameter."""
    x = x.clone().requires_grad_()
    states = function(x, module)
    weights = torch.linspace(-1, 1, states.shape[-2])[:, None]  # of each position its own
    slopes = torch.autograd.grad((states * weights).sum(), [x, *module.parameters()])
    return [states.detach(), *slopes]


@pytest.mark.parametrize("count", [1, 3])
def test_states_and_slopes_are_those_of_pytorch(count):
    own = cells(count)
    x = torch.randn(count, 4, 6, 5, dtype=torch.float64)
    found = with_slopes(batched_gru, x, stacked(own))
    for place, one in enumerate(own):
        expected = with_slopes(lambda x, module: module(x)[0], x[place], one)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a[place], b, rtol=1e-12, atol=1e-12)


def test_one_call_does_the_same_for_a_pack_of_one():
    x, module = torch.randn(1, 4, 6, 5, dtype=torch.float64), stacked(cells(1))
    for a, b in zip(with_slopes(batched_gru, x, module), with_slopes(one_gru, x, module), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_without_a_pack_it_is_pytorchs_own():
    (own,) = cells(1)
    x = torch.randn(4, 6, 5, dtype=torch.float64)
    assert torch.equal(batched_gru(x, own), own(x)[0])
