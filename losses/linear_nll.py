"""Token NLL straight from hidden states and the output matrix, for vocabularies whose logits are too large to keep.

The effective token weights are known before the pass (the reference and the configuration decide them), so the
gradient is made in the forward, chunk by chunk: no [B, L, V] logits are kept, and nothing is computed twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from losses.cross_entropy import (
    BLOCK,
    IGNORED_TARGET,
    LARGEST_FROM_PROBABILITY,
    check_classes,
    exact_nll,
    functions_are_transformed,
    nll_by_pytorch,
    positions_at_once,
    saved_is_done_with,
    softmax_serves,
)
from losses.fused_kernel import Gradients, Kernel, kernel_for
from losses.nll import active_only, at_least_float32, check_mask, check_targets, masked_token_nll_per_position

#: With fewer logits than these (16 MB in float32) making them is faster: docs/performance.md.
FEWEST_LOGITS = 4_000_000


class LinearNll(NamedTuple):
    """What `linear_masked_token_nll` returns.

    Attributes:
        nll: [B, L], x, nats, 0 where inactive; detached: give it to `reconstruction_losses` for the terms to log.
        objective: sum_bt W_bt x_bt, a scalar that carries gradients to hidden, weight and bias.
    """

    nll: Tensor
    objective: Tensor


def linear_masked_token_nll(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    mask: Tensor,
    token_weights: Tensor,
    *,
    bias: Tensor | None = None,
    chunk: int | None = None,
) -> LinearNll:
    """Token NLL and its weighted sum, without the logits of all positions at once.

    x_bt = -log softmax(weight hidden_bt + bias)[targets_bt], objective = sum_bt W_bt x_bt.

    May always be called: where B L V is below FEWEST_LOGITS and no chunk is given, the logits are made in one piece
    in the plain way, which is faster there. On CUDA Liger's kernel is used where it is installed and gives the same
    numbers (`losses.fused_kernel`). First derivatives only, but in the plain way.

    Args:
        hidden: [B, L, H]. NaN or Inf where inactive leave every value right; as in the plain way, no gradient is.
        weight: [V, H], the output matrix.
        targets: [B, L] int64. Read only where active; x is 0 for the target -100.
        mask: [B, L] bool, true where active.
        token_weights: [B, L], W, as `effective_token_weights` makes it. Detached.
        bias: [V] or None.
        chunk: positions scored at once; None: as fits the size, some tenth of them where the logits are many, which
            takes about a sixth of the memory.
    Returns: float32 or wider, also under autocast, where the products run in its type.
    Raises: ValueError if the shapes disagree, the mask is not bool, the targets are not int64 or chunk < 1; IndexError
        on the CPU for an active target that is no class.
    Source: docs/loss_stack.md, section 7.
    """
    check_mask(mask, targets=targets, token_weights=token_weights)
    check_targets(targets)
    vocabulary, width = weight.shape
    if hidden.shape != (*mask.shape, width):
        raise ValueError(
            f"hidden: got shape {tuple(hidden.shape)}; allowed: {(*mask.shape, width)} as mask and weight have it"
        )
    if bias is not None and bias.shape != (vocabulary,):
        raise ValueError(f"bias: got shape {tuple(bias.shape)}; allowed: {(vocabulary,)} as weight has it")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk: got {chunk}; allowed: a whole number >= 1")
    if chunk is None and mask.numel() * vocabulary < FEWEST_LOGITS:
        nll = masked_token_nll_per_position(functional.linear(hidden, weight, bias), targets, mask)
        return LinearNll(nll.detach(), (active_only(token_weights.detach(), mask) * nll).sum())
    active = (mask & (targets != IGNORED_TARGET)).flatten()
    rows = _Rows(
        hidden.flatten(0, 1),
        weight,
        bias,
        targets.flatten().masked_fill(~active, 0),
        active,
        token_weights.detach().flatten().masked_fill(~active, 0.0),
        chunk or positions_at_once(active.numel()),
        kernel_for(hidden, in_chunks) if chunk is None else None,
    )
    if torch.is_grad_enabled() and any(t.requires_grad for t in (hidden, weight, bias) if t is not None):
        nll, objective, *_ = _WeightedNll.apply(*rows)  # type: ignore[no-untyped-call]
    else:
        nll = _nll_and_gradients(rows, with_gradients=False).nll
        objective = (rows.token_weights * nll).sum()
    return LinearNll(nll.view_as(mask), objective)


class _Rows(NamedTuple):
    """The positions of a batch in one row each, n = B L; targets and weights are 0 where inactive."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    active: Tensor
    token_weights: Tensor
    chunk: int
    kernel: Kernel | None


class _WeightedNll(torch.autograd.Function):
    """Sum of W x. Its gradients are made in the forward and kept, as outputs that nobody else sees."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*rows: Any) -> tuple[Tensor | None, ...]:
        made = _Rows(*rows)
        if made.kernel is None:
            nll, *gradients = _nll_and_gradients(made, with_gradients=True)
        else:
            targets = made.targets.masked_fill(~made.active, IGNORED_TARGET)
            read = made.hidden.masked_fill(~made.active.unsqueeze(-1), 0.0)
            nll, *gradients = made.kernel(read, made.weight, made.bias, targets, made.token_weights)
        return nll, (made.token_weights * nll).sum(), *gradients

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor | None, ...]) -> None:
        nll, _, *gradients = output
        ctx.mark_non_differentiable(nll, *(gradient for gradient in gradients if gradient is not None))
        ctx.set_materialize_grads(False)  # no zeros in place of slopes that nobody has
        ctx.save_for_backward(*gradients)
        del inputs

    @staticmethod
    def backward(ctx: Any, *from_above: Tensor | None) -> tuple[Tensor | None, ...]:
        slope, gradients = from_above[1], ctx.saved_tensors
        if slope is None:
            gradients = [None] * len(gradients)
        elif saved_is_done_with(slope):
            gradients = [None if gradient is None else gradient.data.mul_(slope) for gradient in gradients]
        else:  # of copies, since the graph of a product keeps its factors
            gradients = [None if gradient is None else gradient.clone() * slope for gradient in gradients]
        return *gradients, None, None, None, None, None


def _nll_and_gradients(rows: _Rows, *, with_gradients: bool) -> Gradients:
    """The NLL [n], and the gradients of sum W x to hidden [n, H], weight [V, H] and bias [V]."""
    of_targets, to_hidden = [], []
    to_weight: Tensor | None = None
    to_bias: Tensor | None = None
    logarithmic = not softmax_serves(rows.hidden)
    if not logarithmic:
        check_classes(rows.targets, len(rows.weight))
    columns = (rows.hidden, rows.targets, rows.token_weights)
    for hidden, targets, token_weights in zip(*(torch.split(c, rows.chunk) for c in columns), strict=True):
        scores = functional.linear(hidden, rows.weight, rows.bias)
        dtype, scores = scores.dtype, at_least_float32(scores)
        scores = scores.log_softmax(-1) if logarithmic else scores.softmax(-1)
        target = targets.unsqueeze(-1)
        of_targets.append(scores.gather(-1, target).squeeze(-1))
        if with_gradients:
            # W (softmax - one hot), in the memory of the softmax.
            scores = scores.exp_() if logarithmic else scores
            slope = token_weights.unsqueeze(-1).to(scores.dtype)
            scores = scores.mul_(slope).scatter_add_(-1, target, -slope).to(dtype)
            to_hidden.append(scores @ rows.weight)
            to_weight = _added_product(to_weight, scores.mT, hidden)
            to_bias = _added(to_bias, scores.sum(0)) if rows.bias is not None else None
        del scores  # before the next chunk's are made
    found = torch.cat(of_targets)
    nll = active_only(-found, rows.active) if logarithmic else _nll_of_probabilities(found, rows)
    return Gradients(nll, torch.cat(to_hidden) if to_hidden else None, to_weight, to_bias)


def _nll_of_probabilities(p: Tensor, rows: _Rows) -> Tensor:
    """The NLL [n]; the scores are made again where it is so large that the probability [n] does not tell it."""

    def exact(large: tuple[Tensor, ...]) -> Tensor:
        scores = functional.linear(rows.hidden[large], rows.weight, rows.bias)
        return nll_by_pytorch(at_least_float32(scores), rows.targets[large])

    return exact_nll(p.log_().neg_(), rows.active, LARGEST_FROM_PROBABILITY, exact, rows.chunk)


def in_chunks(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, token_weights: Tensor) -> Gradients:
    """What a Kernel makes, in our own way."""
    active = targets != IGNORED_TARGET
    slopes = token_weights.masked_fill(~active, 0.0)
    rows = _Rows(hidden, weight, bias, targets.clamp(min=0), active, slopes, BLOCK, None)
    return _nll_and_gradients(rows, with_gradients=True)


def _added_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    """The running total of the products of a gradient, in float32 or wider."""
    if total is None or total.dtype != left.dtype or functions_are_transformed():  # vmap knows no addmm_
        return _added(total, left @ right)
    return total.addmm_(left, right)


def _added(total: Tensor | None, part: Tensor) -> Tensor:
    """The running total of a gradient, in float32 or wider."""
    return at_least_float32(part) if total is None else total.add_(part)
