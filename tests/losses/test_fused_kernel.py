"""Which kernel is used, with kernels that stand in for the installed one; the real one needs a GPU."""

import importlib.util
import warnings

import pytest
import torch

from losses import fused_kernel, linear_masked_token_nll, linear_nll
from losses.fused_kernel import Gradients, allowed_difference, kernel_for, largest_difference

CPU = torch.device("cpu")
own = linear_nll.in_chunks


def by_autograd(hidden, weight, bias, targets, token_weights):
    """A right kernel that has nothing in common with our own way."""
    leaves = [leaf.detach().requires_grad_() for leaf in (hidden, weight, bias) if leaf is not None]
    with torch.enable_grad():
        logits = torch.nn.functional.linear(*leaves)
        nll = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        gradients = torch.autograd.grad((token_weights * nll).sum(), leaves)
    return Gradients(nll.detach(), *gradients, *[None] * (3 - len(leaves)))


def without_token_weights(hidden, weight, bias, targets, token_weights):
    """As Liger before 0.8 had it: the weight's gradient knows no token weights."""
    right = by_autograd(hidden, weight, bias, targets, token_weights)
    return right._replace(weight=by_autograd(hidden, weight, bias, targets, torch.ones_like(token_weights)).weight)


def rounded(*arguments):
    return Gradients(*(part if part is None else part.half().to(part.dtype) for part in by_autograd(*arguments)))


def without_bias(*arguments):
    return by_autograd(*arguments)._replace(bias=None)


def not_a_number(*arguments):
    right = by_autograd(*arguments)
    return right._replace(hidden=right.hidden * torch.nan)


def broken(*arguments):
    raise RuntimeError("no such device")


@pytest.fixture
def installed(monkeypatch):
    """Puts a kernel in the place of the installed one."""

    def install(kernel):
        fused_kernel._tried.cache_clear()
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
        monkeypatch.setattr(fused_kernel, "installed_kernel", lambda: kernel)

    yield install
    fused_kernel._tried.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_right_kernel_is_used_without_a_word(installed, dtype):
    installed(by_autograd)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fused_kernel._tried(own, CPU, dtype, dtype) is by_autograd


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (without_token_weights, r"its numbers differ by \S+ of the largest; allowed: 1.0e-05"),
        (rounded, r"its numbers differ by \S+ of the largest; allowed: 1.0e-05"),
        (without_bias, "its numbers differ by inf of the largest; allowed: 1.0e-05"),
        (not_a_number, "its numbers differ by inf of the largest; allowed: 1.0e-05"),
        (broken, "it raised RuntimeError: no such device"),
    ],
)
def test_a_wrong_kernel_is_left_alone_with_one_warning(installed, kernel, reason):
    installed(kernel)
    with pytest.warns(UserWarning, match=f"^liger_kernel is not used for torch.float32 on cpu: {reason}$") as caught:
        assert [fused_kernel._tried(own, CPU, torch.float32, torch.float32) for _ in range(3)] == [None] * 3
    assert len(caught) == 1


def test_float32_is_not_enough_for_float64():
    def in_float32(*arguments):
        narrow = (a.float() if a is not None and a.is_floating_point() else a for a in arguments)
        return Gradients(*(part if part is None else part.double() for part in by_autograd(*narrow)))

    assert largest_difference(by_autograd, own, CPU, torch.float64) <= allowed_difference(torch.float64)
    assert largest_difference(in_float32, own, CPU, torch.float64) > allowed_difference(torch.float64)


def test_nothing_is_used_or_said_where_it_is_not_installed(monkeypatch):
    fused_kernel._tried.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert fused_kernel._tried(own, CPU, torch.float32, torch.float32) is None
    fused_kernel._tried.cache_clear()


def test_on_the_cpu_none_is_looked_for(installed):
    installed(broken)
    assert kernel_for(torch.zeros(2, 3), own) is None


@pytest.mark.parametrize("with_bias", [False, True])
def test_values_and_gradients_come_from_the_kernel(monkeypatch, with_bias):
    calls = []

    def counted(*arguments):
        calls.append(1)
        return by_autograd(*arguments)

    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(*shape, generator=generator, requires_grad=True) for shape in ((2, 5, 4), (9, 4)))
    bias = torch.randn(9, generator=generator, requires_grad=True) if with_bias else None
    targets, mask = torch.randint(9, (2, 5), generator=generator), torch.arange(5) < torch.tensor([[3], [5]])
    token_weights = torch.rand(2, 5, generator=generator)
    leaves = [leaf for leaf in (hidden, weight, bias) if leaf is not None]
    monkeypatch.setattr(linear_nll, "FEWEST_LOGITS", 0)
    results = []
    for kernel in (None, counted):
        monkeypatch.setattr(linear_nll, "kernel_for", lambda *_, kernel=kernel: kernel)
        made = linear_masked_token_nll(hidden, weight, targets, mask, token_weights, bias=bias)
        results.append((made.nll, made.objective, *torch.autograd.grad(3 * made.objective, leaves)))
    assert calls == [1]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
