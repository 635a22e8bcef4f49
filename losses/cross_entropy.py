"""Cross entropy of each position, with a backward that makes the gradient in the memory of the log-probabilities.

PyTorch's own makes two more tensors of the logits' size there, which takes longer than the arithmetic.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

IGNORED_TARGET = -100

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

    The numbers are those of `torch.nn.functional.cross_entropy(..., reduction="none")`, which is used where functions
    are transformed or compiled, with forward derivatives, and where no gradient is asked for.

    Args:
        scores: [n, V], float32 or wider.
        targets: [n] int64, read only where active.
        active: [n] bool.
    Returns: [n], nats.
    Raises: IndexError for an active target that is neither one of the V classes nor IGNORED_TARGET.
    """
    # An ignored target costs nothing, where masking the logits would cost as much as the cross entropy again.
    targets = torch.where(active, targets, IGNORED_TARGET)
    plain = functions_are_transformed() or _forward_derivatives_are_wanted()
    if plain or not (scores.requires_grad and torch.is_grad_enabled()):
        return functional.cross_entropy(scores, targets, ignore_index=IGNORED_TARGET, reduction="none")
    nll, _ = _CrossEntropy.apply(scores, targets)  # type: ignore[no-untyped-call]
    return nll  # type: ignore[no-any-return]


class _CrossEntropy(torch.autograd.Function):
    """NLL [n] and log-probabilities [n, V]; the latter, which nobody else sees, become the gradient.

    Only a backward after which autograd releases them may overwrite them.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        log_p = scores.log_softmax(-1)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(log_p, targets)
        return functional.nll_loss(log_p, targets, ignore_index=IGNORED_TARGET, reduction="none"), log_p

    @staticmethod
    def backward(ctx: Any, slopes: Tensor | None, slopes_of_log_p: Tensor | None) -> tuple[Tensor | None, None]:
        log_p, targets = ctx.saved_tensors
        gradient = None
        if slopes is not None:  # times softmax(scores_i) - one hot
            slopes = torch.where(targets != IGNORED_TARGET, slopes, 0.0).unsqueeze(-1)
            again = torch.is_grad_enabled() or _graph_is_kept() or slopes_of_log_p is not None
            in_place = not (again or _transforms_are_active() or _is_many(slopes))
            gradient = log_p.data.exp_().mul_(slopes) if in_place else log_p.exp() * slopes
            gradient = gradient.scatter_add_(-1, targets.clamp(min=0).unsqueeze(-1), -slopes)
        if slopes_of_log_p is not None:  # in the backward of a backward
            more = slopes_of_log_p - log_p.exp() * slopes_of_log_p.sum(-1, keepdim=True)
            gradient = more if gradient is None else gradient + more
        return gradient, None
