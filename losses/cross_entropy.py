"""Cross entropy of each position, with a backward that makes the gradient in the memory of the log-probabilities.

PyTorch's own makes two more tensors of the logits' size there, which takes longer than the arithmetic.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

IGNORED_TARGET = -100

#: What torch.autograd.Function asks itself. Where a version of PyTorch has it no more, the answer is yes, always.
functions_are_transformed = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)  # noqa: SLF001

# Whether there are many in one, as `torch.autograd.grad(..., is_grads_batched=True)` has them; nothing in place then.
_are_many = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda _: True)  # noqa: SLF001


def cross_entropy(scores: Tensor, targets: Tensor, active: Tensor) -> Tensor:
    """-log softmax(scores_i)[targets_i] where active, 0 elsewhere.

    The numbers are those of `torch.nn.functional.cross_entropy(..., reduction="none")`, which is used where functions
    are transformed or compiled, and where no gradient is asked for.

    Args:
        scores: [n, V], float32 or wider.
        targets: [n] int64, read only where active.
        active: [n] bool.
    Returns: [n], nats.
    Raises: IndexError for an active target that is none of the V classes.
    """
    # An ignored target costs nothing, where masking the logits would cost as much as the cross entropy again.
    targets = torch.where(active, targets, IGNORED_TARGET)
    traced = torch.compiler.is_compiling() or functions_are_transformed()
    if scores.requires_grad and torch.is_grad_enabled() and not traced:
        return _InPlaceBackward.apply(scores, targets, active)  # type: ignore[no-any-return, no-untyped-call]
    return functional.cross_entropy(scores, targets, ignore_index=IGNORED_TARGET, reduction="none")


class _InPlaceBackward(torch.autograd.Function):
    """The log-probabilities are no saved tensors of autograd's: the first backward overwrites them.

    A second one (`retain_graph`), or one that is itself differentiated or mapped over many slopes, makes them again
    from the scores. Forward derivatives are those of `torch.func`.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, active: Tensor) -> Tensor:
        ctx.log_p, ctx.targets, ctx.active = scores.log_softmax(-1), targets, active
        ctx.save_for_backward(scores)
        return functional.nll_loss(ctx.log_p, targets, ignore_index=IGNORED_TARGET, reduction="none")

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None, None]:
        # slopes_i (softmax(scores_i) - one hot)
        slopes = torch.where(ctx.active, slopes, 0.0).unsqueeze(-1)
        log_p, ctx.log_p = ctx.log_p, None
        if log_p is None or torch.is_grad_enabled() or _are_many(slopes):
            (scores,) = ctx.saved_tensors
            gradient = scores.log_softmax(-1).exp() * slopes
        else:
            gradient = log_p.exp_().mul_(slopes)
        return gradient.scatter_add_(-1, ctx.targets.clamp(min=0).unsqueeze(-1), -slopes), None, None
