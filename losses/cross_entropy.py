"""Cross entropy of each position, with a backward that makes the gradient in the memory of the probabilities.

PyTorch's own makes two more tensors of the logits' size there, which takes longer than the arithmetic. Its softmax goes
through the positions one by one, which takes longer than the exponentials where there are few classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter, functional

IGNORED_TARGET = -100


class _Largest(NamedTuple):
    """The largest NLL, in nats, that will do, where active and elsewhere."""

    active: float
    inactive: float


#: Taken from a probability, which a float32 holds down to exp(-87).
LARGEST_FROM_PROBABILITY = _Largest(69.0, math.inf)

#: Taken from exponentials relative to the target's, whose sum multiplies the rounding of the scores. Where inactive, it
#: is enough that none overflows, so that 0 times it is 0.
LARGEST_FROM_EXPONENTIALS = _Largest(30.0, 69.0)

#: With more classes the softmax is faster than the exponentials of all positions at once: docs/performance.md.
FEW_CLASSES = 128

#: Where not all positions are to be scored at once, they are in some so many parts, each of whole blocks, two at least,
#: since the products of a block are faster.
PARTS = 10
BLOCK = 64

# What PyTorch's own Python code asks. Where a version of PyTorch has one of them no more, the answer is the one that is
# always right, and slower.
_is_traced = getattr(torch._C, "_is_tracing", lambda: True)  # noqa: SLF001
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)  # noqa: SLF001
_transforms_are_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)  # noqa: SLF001
_graph_is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)  # noqa: SLF001
#: Whether a tensor is many in one, as `torch.autograd.grad(..., is_grads_batched=True)` has them.
_is_many = getattr(getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", lambda _: True)  # noqa: SLF001


def functions_are_transformed() -> bool:
    """Whether this runs inside of torch.func or torch.compile."""
    return torch.compiler.is_compiling() or _transforms_are_active()


def _forward_derivatives_are_wanted() -> bool:
    return getattr(forward_ad, "_current_level", 0) >= 0


def saved_is_done_with(slopes: Tensor) -> bool:
    """Whether a backward that got these slopes may overwrite what was saved for it, as autograd releases it then."""
    if functions_are_transformed() or torch.is_grad_enabled():
        return False
    return not (_graph_is_kept() or _is_many(slopes))


def softmax_serves(scores: Tensor) -> bool:
    """Whether values may be looked at, to score positions again: of ordinary tensors on the CPU, as they run."""
    ordinary = scores.is_cpu and type(scores) in (Tensor, Parameter)
    return ordinary and not (functions_are_transformed() or _is_traced() or _dispatch_modes())


def cross_entropy(scores: Tensor, targets: Tensor, active: Tensor) -> Tensor:
    """-log softmax(scores_i)[targets_i] where active, 0 elsewhere and for the target IGNORED_TARGET.

    The numbers are those of `torch.nn.functional.cross_entropy(..., reduction="none")` up to rounding. That one is used
    on other devices than the CPU, where functions are transformed, compiled or traced, under a dispatch mode, with
    forward derivatives, for subclasses of Tensor, and where no gradient is asked for of many classes.

    Args:
        scores: [n, ..., V], float32 or wider.
        targets: [n, ...] int64, read only where active. As with PyTorch's, they must not change before the backward.
        active: [n, ...] bool; as the targets.
    Returns: [n, ...], nats.
    Raises: IndexError for an active target that is neither one of the V classes nor IGNORED_TARGET.
    """
    if softmax_serves(scores) and scores.shape[-1] and not _forward_derivatives_are_wanted():
        if scores.requires_grad and torch.is_grad_enabled():
            return _CrossEntropy.apply(scores, targets, active)[0]  # type: ignore[no-any-return, no-untyped-call]
        if scores.shape[-1] <= FEW_CLASSES:
            return _scored(scores, targets, active).nll
    # An ignored target costs nothing, where masking the scores would cost as much as the cross entropy again.
    return nll_by_pytorch(scores, torch.where(active, targets, IGNORED_TARGET))


def nll_by_pytorch(scores: Tensor, targets: Tensor) -> Tensor:
    """PyTorch's cross entropy of scores [..., V] and targets [...], 0 for IGNORED_TARGET."""
    nll = functional.cross_entropy(
        scores.flatten(0, -2), targets.flatten(), ignore_index=IGNORED_TARGET, reduction="none"
    )
    return nll.view_as(targets)


def exact_nll(
    nll: Tensor, active: Tensor, largest: _Largest, exact: Callable[[tuple[Tensor, ...]], Tensor], at_once: int
) -> Tensor:
    """The NLL where active, 0 elsewhere; made again where it is too large or NaN.

    Args:
        nll: [...], nats; overwritten.
        active: [...] bool.
        largest: up to which it will do.
        exact: makes the NLL [k] of k positions, named by their indices, from their scores.
        at_once: most positions that it is asked for.
    Returns: [...], nats.
    """
    if nll.numel() and not nll.amax().item() <= largest.active:
        wrong = (~(nll <= torch.where(active, *largest))).nonzero()
        for part in torch.split(wrong, at_once) if len(wrong) else ():
            positions = part.unbind(-1)
            nll[positions] = exact(positions)
    return torch.where(active, nll, 0.0)


def positions_at_once(positions: int) -> int:
    """How many of these positions are scored at once where not all are to be: some tenth, at least 128."""
    return BLOCK * max(2, math.ceil(positions / (PARTS * BLOCK)))


class _Scored(NamedTuple):
    """What scores [..., V] come to.

    Attributes:
        nll: [...], 0 where inactive.
        p: [..., V], probabilities up to a factor for each position.
        totals: [...], what they add up to; None where that is 1 everywhere.
        targets, active: [...], as they were given, or in range.
    """

    nll: Tensor
    p: Tensor
    totals: Tensor | None
    targets: Tensor
    active: Tensor


def _scored(scores: Tensor, targets: Tensor, active: Tensor) -> _Scored:
    few = scores.shape[-1] <= FEW_CLASSES
    p, totals = scores if few else scores.softmax(-1), None
    try:
        of_targets = p.gather(-1, targets.unsqueeze(-1))
    except RuntimeError:  # Some target is no class. To look beforehand would take as long in every small batch.
        active = active & (targets != IGNORED_TARGET)
        targets = torch.where(active, targets, 0)
        check_classes(targets, scores.shape[-1])
        of_targets = p.gather(-1, targets.unsqueeze(-1))
    if few:  # Relative to the target's, so that no exponential overflows whose NLL is not large.
        p = (scores - of_targets).contiguous().exp_()  # In another layout a sum has other bits.
        totals = p.sum(-1)
        nll, largest = totals.log(), LARGEST_FROM_EXPONENTIALS
    else:
        nll, largest = of_targets.squeeze(-1).log_().neg_(), LARGEST_FROM_PROBABILITY

    def exact(large: tuple[Tensor, ...]) -> Tensor:
        if totals is not None:
            p[large], totals[large] = scores[large].softmax(-1), 1.0
        return nll_by_pytorch(scores[large], targets[large])

    nll = exact_nll(nll, active, largest, exact, positions_at_once(targets.numel()))
    return _Scored(nll, p, totals, targets, active)


class _CrossEntropy(torch.autograd.Function):
    """NLL [...] and what `_Scored` calls p [..., V]; the latter, which nobody else sees, becomes the gradient.

    Only a backward after which autograd releases it may overwrite it.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        made = _scored(scores, targets, active)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(made.p, made.totals, made.targets, made.active)
        return made.nll, made.p

    @staticmethod
    def backward(ctx: Any, slopes: Tensor | None, slopes_of_p: Tensor | None) -> tuple[Tensor | None, None, None]:
        made, totals, targets, active = ctx.saved_tensors
        p = made
        if torch.is_grad_enabled():
            made = made.clone()  # The graph of this gradient keeps it, and outlives what a later backward overwrites.
            p, totals = made / made.sum(-1, keepdim=True), None
        gradient = None
        if slopes is not None:  # times p / totals - one hot
            slopes = torch.where(active, slopes, 0.0)
            of_p = (slopes if totals is None else slopes / totals).unsqueeze(-1)
            in_place = slopes_of_p is None and saved_is_done_with(slopes)
            gradient = p.data.mul_(of_p) if in_place else p * of_p
            gradient = gradient.scatter_add_(-1, targets.unsqueeze(-1), -slopes.unsqueeze(-1))
        if slopes_of_p is not None:
            # From the backward of a backward, in which each position is divided by its sum: with whatever factor it was
            # made, what that adds to the derivative cancels, and what is left is that of an exponential.
            more = made * slopes_of_p
            gradient = more if gradient is None else gradient + more
        return gradient, None, None


def check_classes(targets: Tensor, classes: int) -> None:
    """Raise IndexError unless every target is one of so many classes."""
    wrong = targets[(targets < 0) | (targets >= classes)]
    if wrong.numel():
        raise IndexError(
            f"targets: got {wrong[0].item()} where the mask is on; "
            f"allowed: 0 to {classes - 1}, or {IGNORED_TARGET}, which is ignored"
        )
