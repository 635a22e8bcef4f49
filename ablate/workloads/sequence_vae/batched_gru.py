"""GRUs of K models at once: a loop over positions in which every product is one batched product.

The backward is written out: whatever does not wait for a later position is done for all positions together, so that
the loop back has five operations a position.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def batched_gru(x: Tensor, cells: nn.GRU) -> Tensor:
    """States of a GRU of several layers that starts from 0.

    Args:
        x: [B, T, W], or [K, B, T, W] under parameters [K, ...].
        cells: its layers.
    Returns: of the shape of x.
    Source: Cho et al. 2014, with the reset gate as torch.nn.GRU has it.
    """
    if x.dim() == 3:
        states, _ = cells(x)
        return torch.as_tensor(states)
    if x.is_cuda and len(x) == 1:
        return one_gru(x, cells)
    for layer in _weights(cells):
        x = _Layer.apply(x, *layer)  # type: ignore[no-untyped-call]
    return x


def one_gru(x: Tensor, cells: nn.GRU) -> Tensor:
    """As batched_gru of a pack of one, in one call: on a GPU, where each small operation of a loop costs its start."""
    weights = [weight[0] for layer in _weights(cells) for weight in layer]
    start = x.new_zeros(cells.num_layers, x.shape[1], cells.hidden_size)
    states, _ = torch.gru(x[0], start, weights, True, cells.num_layers, 0.0, cells.training, False, True)
    return states.unsqueeze(0)


def _weights(cells: nn.GRU) -> list[list[Tensor]]:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [[getattr(cells, f"{name}_l{layer}") for name in names] for layer in range(cells.num_layers)]


class _Layer(torch.autograd.Function):
    """x [K, B, T, I] -> h [K, B, T, W]; the rows of the weights are those of the gates r, z, n.

    r, z = sigmoid(W x + b + U h + c), n = tanh(W x + b + r (U h + c)), h' = n + z (h - n).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
        width = w_hh.shape[-1]
        # sigmoid(a) = (1 + tanh(a / 2)) / 2: of the two, tanh alone gives a number the same bits at every place of a
        # tensor. The halves are taken off the weights, which is exact.
        half = torch.ones(3 * width, dtype=x.dtype, device=x.device)
        half[: 2 * width] = 0.5
        rows = x.transpose(1, 2).contiguous()  # [K, T, B, I]
        inputs = torch.baddbmm((b_ih * half).unsqueeze(1), rows.flatten(1, 2), (w_ih * half[:, None]).mT)
        inputs = inputs.view(*rows.shape[:3], 3 * width).transpose(0, 1)  # [T, K, B, 3 W]
        u, c = (w_hh * half[:, None]).mT, (b_hh * half).unsqueeze(1)
        states = x.new_zeros(len(inputs) + 1, *inputs.shape[1:3], width)
        gates, candidates = x.new_empty(*inputs.shape[:3], 2 * width), torch.empty_like(states[1:])
        recurrent, middle = x.new_empty(inputs.shape), x.new_tensor(0.5)
        by_gate, by_width = [2 * width, width], [width, width]
        own, own_candidate = (part.unbind() for part in torch.split(inputs, by_gate, dim=-1))
        hidden, hidden_candidate = (part.unbind() for part in torch.split(recurrent, by_gate, dim=-1))
        r, z = (part.unbind() for part in torch.split(gates, by_width, dim=-1))
        difference = torch.empty_like(states[0])
        for t, (gate, candidate) in enumerate(zip(gates.unbind(), candidates.unbind(), strict=True)):
            torch.baddbmm(c, states[t], u, out=recurrent[t])
            torch.add(own[t], hidden[t], out=gate).tanh_()
            torch.add(middle, gate, alpha=0.5, out=gate)
            torch.addcmul(own_candidate[t], r[t], hidden_candidate[t], out=candidate).tanh_()
            torch.sub(states[t], candidate, out=difference)
            torch.addcmul(candidate, z[t], difference, out=states[t + 1])
        ctx.save_for_backward(rows, w_ih, w_hh, states, gates, candidates, recurrent)
        return states[1:].permute(1, 2, 0, 3)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, ...]:
        rows, w_ih, w_hh, states, gates, candidates, recurrent = ctx.saved_tensors
        width = w_hh.shape[-1]
        r, z, hidden = gates[..., :width], gates[..., width:], recurrent[..., 2 * width :]
        # The slopes of the sums behind n and z by that of h, then those behind r and of U h + c by that of n.
        by_state = torch.stack([(1 - z) * (1 - candidates.square()), (states[:-1] - candidates) * z * (1 - z)], 3)
        by_candidate = torch.stack([hidden * r * (1 - r), r], 3)
        slopes = torch.empty(*r.shape[:3], 4, width, dtype=r.dtype, device=r.device)  # n, r, z, U h + c
        to_sums = zip(
            *(part.unbind() for part in (slope.permute(2, 0, 1, 3), by_state, by_candidate, z)),
            *(slopes[:, :, :, places].unbind() for places in (slice(0, None, 2), slice(1, None, 2), slice(1))),
            slopes.flatten(3)[..., width:].unbind(),
            strict=True,
        )
        carried = torch.zeros_like(states[0])
        for own, state, candidate, kept, by_n_and_z, by_r_and_hidden, by_n, by_hidden in reversed(list(to_sums)):
            carried.add_(own)
            torch.mul(carried.unsqueeze(2), state, out=by_n_and_z)
            torch.mul(by_n, candidate, out=by_r_and_hidden)
            carried.mul_(kept).baddbmm_(by_hidden, w_hh)

        flat = slopes.transpose(0, 1).flatten(1, 2).flatten(2)  # [K, T B, 4 W]
        to_inputs = flat[..., : 3 * width].roll(-width, -1)  # r, z, n
        to_hidden = flat[..., width:]
        before = states[:-1].transpose(0, 1).flatten(1, 2)
        to_x = torch.bmm(to_inputs, w_ih).view(rows.shape).transpose(1, 2)
        to_w_ih, to_w_hh = torch.bmm(to_inputs.mT, rows.flatten(1, 2)), torch.bmm(to_hidden.mT, before)
        return to_x, to_w_ih, to_w_hh, to_inputs.sum(1), to_hidden.sum(1)
