"""Cross entropy of each position, with a backward that makes the gradient in the memory of the probabilities.

PyTorch's own makes two more tensors of the logits' size there, which takes longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

IGNORED_TARGET = -100

#: A larger NLL, in nats, is not taken from the probability, which a float32 holds down to exp(-87).
LARGEST_FROM_PROBABILITY = 69.0

# What PyTorch's own Python code asks. Where a version of PyTorch has one of them no more, the answer is the one that is
# always right, and slower.
_transforms_are_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)  # noqa: SLF001
_graph_is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)  # noqa: SLF001
#: Whether a tensor is many in one, as `torch.autograd.grad(..., is_grads_batched=True)` has them.
_is_many = getattr(getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", lambda _: True)  # noqa: SLF001


def functions_are_transformed() -> bool:
    """Whether this runs inside of torch.func or torch.compile."""
    return torch.compiler.is_compiling() or _transforms_are_active()


def _forward_derivatives_are_wanted() -> bool:
    return getattr(forward_ad, "_current_level", 0) >= 0


def cross_entropy(scores: Tensor, targets: Tensor, active: Tensor) -> Tensor:
    """-log softmax(scores_i)[targets_i] where active, 0 elsewhere and for the target IGNORED_TARGET.

    The numbers are those of `torch.nn.functional.cross_entropy(..., reduction="none")` up to rounding. That one is used
    on other devices than the CPU, where functions are transformed or compiled, with forward derivatives, and where no
    gradient is asked for.

    Args:
        scores: [..., V], float32 or wider.
        targets: [...] int64, read only where active.
        active: [...] bool.
    Returns: [...], nats.
    Raises: IndexError for an active target that is neither one of the V classes nor IGNORED_TARGET.
    """
    plain = functions_are_transformed() or _forward_derivatives_are_wanted()
    if not plain and scores.requires_grad and scores.is_cpu and torch.is_grad_enabled():
        try:
            return _CrossEntropy.apply(scores, targets, active)[0]  # type: ignore[no-any-return, no-untyped-call]
        except RuntimeError:
            pass  # An active target is no class: PyTorch ignores it, or names it.
    # An ignored target costs nothing, where masking the scores would cost as much as the cross entropy again.
    return nll_by_pytorch(scores, torch.where(active, targets, IGNORED_TARGET))


def nll_by_pytorch(scores: Tensor, targets: Tensor) -> Tensor:
    """PyTorch's cross entropy of scores [..., V] and targets [...], 0 for IGNORED_TARGET."""
    nll = functional.cross_entropy(
        scores.flatten(0, -2), targets.flatten(), ignore_index=IGNORED_TARGET, reduction="none"
    )
    return nll.view_as(targets)


def nll_of_probabilities(p: Tensor, active: Tensor, exact: Callable[[Tensor], Tensor]) -> Tensor:
    """-log p where active, 0 elsewhere; p is overwritten. It looks at values, which costs nothing on the CPU.

    Args:
        p: [...], what softmax gives the targets.
        active: [...] bool.
        exact: makes the NLL [k] of k positions, where a mask [...] is on, from their scores.
    Returns: [...], nats.
    """
    nll = torch.where(active, p.log_().neg_(), 0.0)
    if (
        nll.numel() and not nll.amax().item() <= LARGEST_FROM_PROBABILITY
    ):  # True for NaN, beside which one may be too large
        large = nll > LARGEST_FROM_PROBABILITY
        nll[large] = exact(large)
    return nll


class _CrossEntropy(torch.autograd.Function):
    """NLL [...] and probabilities [..., V]; the latter, which nobody else sees, become the gradient.

    Only a backward after which autograd releases them may overwrite them.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        p = scores.softmax(-1)
        index = targets.unsqueeze(-1)
        try:
            of_targets = p.gather(-1, index)
        except RuntimeError:  # Some target is no class. To look beforehand takes longer in a small batch.
            index = torch.where(active, targets, 0).unsqueeze(-1)
            of_targets = p.gather(-1, index)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(p, index, active)
        return nll_of_probabilities(
            of_targets.squeeze(-1), active, lambda large: nll_by_pytorch(scores[large], targets[large])
        ), p

    @staticmethod
    def backward(ctx: Any, slopes: Tensor | None, slopes_of_p: Tensor | None) -> tuple[Tensor | None, None, None]:
        p, index, active = ctx.saved_tensors
        gradient = None
        if slopes is not None:  # times p - one hot
            slopes = torch.where(active, slopes, 0.0).unsqueeze(-1)
            again = torch.is_grad_enabled() or _graph_is_kept() or slopes_of_p is not None
            in_place = not (again or _transforms_are_active() or _is_many(slopes))
            gradient = p.data.mul_(slopes) if in_place else p * slopes
            gradient = gradient.scatter_add_(-1, index, -slopes)
        if slopes_of_p is not None:  # in the backward of a backward
            more = p * (slopes_of_p - (p * slopes_of_p).sum(-1, keepdim=True))
            gradient = more if gradient is None else gradient + more
        return gradient, None, None
