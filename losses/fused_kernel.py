"""Liger's fused linear cross entropy on CUDA, where it is installed and gives the same numbers.

Nothing else of the loss stack leaves torch. The package is looked for when a CUDA tensor asks for it, tried on a small
batch against the way it would replace, and left alone if it differs: docs/decisions/0009-liger-on-cuda.md.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from losses.cross_entropy import IGNORED_TARGET, functions_are_transformed


class Gradients(NamedTuple):
    """The NLL of n positions, and the gradients of sum_i W_i x_i.

    Attributes:
        nll: [n], x, nats, 0 where inactive.
        hidden, weight, bias: [n, H], [V, H], [V]; None where there is none.
    """

    nll: Tensor
    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


#: Makes them of hidden [n, H], weight [V, H], bias, targets [n] (-100 where inactive) and token weights [n].
Kernel = Callable[[Tensor, Tensor, Tensor | None, Tensor, Tensor], Gradients]


def kernel_for(hidden: Tensor, own: Kernel) -> Kernel | None:
    """The kernel to use for hidden states like these, or None: then `own` is.

    It is never used off CUDA, nor under torch.compile or a transform of torch.func, which cannot see into it.
    """
    if not hidden.is_cuda or functions_are_transformed():
        return None
    products = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else hidden.dtype
    return _tried(own, hidden.device, hidden.dtype, products)


@cache
def _tried(own: Kernel, device: torch.device, dtype: torch.dtype, products: torch.dtype) -> Kernel | None:
    """Once a process for each type: the installed kernel, if it proves itself; one warning if it does not."""
    if importlib.util.find_spec("liger_kernel") is None:
        return None
    try:
        difference = largest_difference(installed_kernel(), own, device, dtype)
    except Exception as problem:  # noqa: BLE001 - whatever another package raises, there is our own way
        reason = f"it raised {type(problem).__name__}: {problem}"
    else:
        if difference <= allowed_difference(products):
            return installed_kernel()
        reason = f"its numbers differ by {difference:.1e} of the largest; allowed: {allowed_difference(products):.1e}"
    warnings.warn(f"liger_kernel is not used for {dtype} on {device}: {reason}", stacklevel=4)
    return None


def installed_kernel() -> Kernel:
    """Liger's pass over chunks, as a Kernel.

    Its own entry points take no token weights: with "mean" and "sum" there are none, and with "none" they come from
    the backward, so that everything is computed twice (before 0.8 they were left out of the weight's gradient).
    The function below those takes them in the forward.
    """
    module = importlib.import_module("liger_kernel.ops.fused_linear_cross_entropy")

    def kernel(
        hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, token_weights: Tensor
    ) -> Gradients:
        nll, _, _, _, *gradients = module.fused_linear_cross_entropy_forward(
            hidden,
            weight,
            targets,
            bias=bias,
            ignore_index=IGNORED_TARGET,
            reduction="none",
            accum_dtype=torch.float32,
            token_grad_output=token_weights,
            compute_gradients=True,
            weight_requires_grad=True,
        )
        return Gradients(nll, *gradients)

    return kernel


@torch.no_grad()
def largest_difference(kernel: Kernel, own: Kernel, device: torch.device, dtype: torch.dtype) -> float:
    """How far a kernel's numbers are from our own on a small batch, relative to the largest of each.

    The batch has unequal token weights, a weight of 0 and ignored targets.
    """
    generator = torch.Generator().manual_seed(0)
    n, width, vocabulary = 48, 32, 257
    hidden = torch.randn(n, width, generator=generator).to(device, dtype)
    matrix = torch.randn(vocabulary, width, generator=generator).to(device, dtype)
    bias = torch.randn(vocabulary, generator=generator).to(device, dtype)
    targets = torch.randint(vocabulary, (n,), generator=generator)
    targets[::5] = IGNORED_TARGET
    token_weights = 3 * torch.rand(n, generator=generator)
    token_weights[1] = 0.0
    differences = []
    for offset in (None, bias):
        arguments = (hidden, matrix, offset, targets.to(device), token_weights.to(device))
        for got, exact in zip(kernel(*arguments), own(*arguments), strict=True):
            if got is not None and exact is not None:
                differences.append(((got.double() - exact.double()).abs().max() / exact.double().abs().max()).item())
            elif got is not exact:
                differences.append(math.inf)
    return max(math.inf if math.isnan(difference) else difference for difference in differences)


def allowed_difference(products: torch.dtype) -> float:
    """1e-5 in float32; in half precision two roundings of it; in float64 nothing that float32 would give."""
    precision = torch.finfo(products).eps
    return 1e-12 if products == torch.float64 else max(1e-5, 2 * precision)
