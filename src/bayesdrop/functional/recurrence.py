"""LSTM and GRU over time with a mask on the state: one function each, with a gradient written by hand.

In a loop, autograd needs a node for every operation of every step, and a product for the gradient of the
weights at each step. Here the steps fill a few arrays, and that gradient is one product at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["gru_over_time", "lstm_over_time"]

# (gradient of the result, result, grad_input=where the gradient goes)
_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


def lstm_over_time(
    gates: Tensor, h: Tensor, c: Tensor, weight: Tensor, factor: Tensor | None, valid: Tensor | None
) -> tuple[Tensor, Tensor]:
    """An LSTM whose state is multiplied by a mask on its way to the gates.

        i, f, g, o = gates_t + W (h_{t-1} * m);    c_t = s(f) c_{t-1} + s(i) tanh(g);    h_t = s(o) tanh(c_t)

    Args:
        gates: (L, N, 4H): the part of the gates that comes from inputs and biases.
        h: (N, H), the state before the first step.
        c: (N, H), the state of the cells before the first step.
        weight: W, (4H, H).
        factor: m, (N, H) or (1, H), or with a mask for every step (L, N, H) or (L, 1, H); None for ones.
        valid: (L, N, 1), False where a sequence is over and keeps its state; None for everywhere.

    Returns: all h_t, (L, N, H), and the last c.
    """
    out: tuple[Tensor, Tensor] = _Lstm.apply(gates, h, c, weight, factor, valid)  # type: ignore[no-untyped-call]
    return out


def gru_over_time(
    gates: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None, factor: Tensor | None, valid: Tensor | None
) -> Tensor:
    """A GRU whose state is multiplied by a mask on its way to the gates, but not in the update of the state.

        r, z = s(gates_t + W (h_{t-1} * m) + b);    n = tanh(gates_t + r (W (h_{t-1} * m) + b))
        h_t = n + z (h_{t-1} - n)

    Args:
        gates: (L, N, 3H): the part of the gates that comes from inputs and their bias.
        h: (N, H), the state before the first step.
        weight: W, (3H, H).
        bias: b, (3H,) or None.
        factor: m, (N, H) or (1, H), or with a mask for every step (L, N, H) or (L, 1, H); None for ones.
        valid: (L, N, 1), False where a sequence is over and keeps its state; None for everywhere.

    Returns: all h_t, (L, N, H).
    """
    out: Tensor = _Gru.apply(gates, h, weight, bias, factor, valid)  # type: ignore[no-untyped-call]
    return out


def _gates(values: Tensor, parts: int) -> list[tuple[Tensor, ...]]:
    """For each step the gates, as views."""
    return list(zip(*(part.unbind(0) for part in values.chunk(parts, -1)), strict=True))


def _each_step(factor: Tensor | None, steps: int) -> Sequence[Tensor | None]:
    """The mask of every step: one for all steps, or one each."""
    return factor.unbind(0) if factor is not None and factor.dim() == 3 else [factor] * steps


class _Lstm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        h: Tensor,
        c: Tensor,
        weight: Tensor,
        factor: Tensor | None,
        valid: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        steps, rows, width = gates.shape[0], gates.shape[1], h.shape[-1]
        used = torch.empty_like(gates)
        masked, outputs, cells, squashed = (gates.new_empty(steps, rows, width) for _ in range(4))
        transposed = weight.t()
        parts, pairs = _gates(used, 4), used[..., : 2 * width].unbind(0)
        first, factors = (h, c), _each_step(factor, steps)
        for t in range(steps):
            m_t, h_t, c_t, s_t = masked[t], outputs[t], cells[t], squashed[t]
            mask = factors[t]
            if mask is None:
                m_t.copy_(h)
            else:
                torch.mul(h, mask, out=m_t)
            torch.addmm(gates[t], m_t, transposed, out=used[t])
            i, f, g, o = parts[t]
            pairs[t].sigmoid_()
            g.tanh_()
            o.sigmoid_()
            torch.mul(f, c, out=c_t).addcmul_(i, g)
            if valid is not None:
                torch.where(valid[t], c_t, c, out=c_t)
            torch.tanh(c_t, out=s_t)
            torch.mul(o, s_t, out=h_t)
            if valid is not None:
                torch.where(valid[t], h_t, h, out=h_t)
            h, c = h_t, c_t
        ctx.save_for_backward(used, masked, outputs, cells, squashed, *first, weight, factor, valid)
        return outputs, c.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_c: Tensor) -> tuple[Tensor | None, ...]:
        used, masked, outputs, cells, squashed, h_0, c_0, weight, factor, valid = ctx.saved_tensors
        wants_factor = factor is not None and ctx.needs_input_grad[4]
        grads = torch.empty_like(used)
        grad_masked = torch.empty_like(masked)
        values, slopes = _gates(used, 4), _gates(grads, 4)
        grad_h, grad_c = torch.zeros_like(h_0), grad_c.clone()
        factors = _each_step(factor, used.shape[0])
        for t in range(used.shape[0] - 1, -1, -1):
            mask = factors[t]
            i, f, g, o = values[t]
            c = cells[t - 1] if t else c_0
            grad_h = grad_h + grad_outputs[t]
            kept: tuple[Tensor, ...] = ()
            if valid is not None:
                kept = grad_h * ~valid[t], grad_c * ~valid[t]
                grad_h, grad_c = grad_h * valid[t], grad_c * valid[t]
            grad_c = grad_c + torch.ops.aten.tanh_backward(grad_h * o, squashed[t])
            d_i, d_f, d_g, d_o = slopes[t]
            _sigmoid_backward(grad_c * g, i, grad_input=d_i)
            _sigmoid_backward(grad_c * c, f, grad_input=d_f)
            _tanh_backward(grad_c * i, g, grad_input=d_g)
            _sigmoid_backward(grad_h * squashed[t], o, grad_input=d_o)
            torch.mm(grads[t], weight, out=grad_masked[t])
            grad_h = grad_masked[t] if mask is None else grad_masked[t] * mask
            grad_c = grad_c * f
            if kept:
                grad_h, grad_c = grad_h + kept[0], grad_c + kept[1]
        grad_factor = _of_factor(grad_masked, h_0, outputs, factor) if wants_factor else None
        grad_weight = grads.flatten(0, 1).t() @ masked.flatten(0, 1)
        return grads, grad_h, grad_c, grad_weight, grad_factor, None


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        h: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        factor: Tensor | None,
        valid: Tensor | None,
    ) -> Tensor:
        steps, rows, width = gates.shape[0], gates.shape[1], h.shape[-1]
        used = torch.empty_like(gates)
        masked, outputs, inner = (gates.new_empty(steps, rows, width) for _ in range(3))
        transposed = weight.t()
        parts = _gates(used, 3)
        first, factors = h, _each_step(factor, steps)
        for t in range(steps):
            m_t, h_t, u_t = masked[t], outputs[t], used[t]
            mask = factors[t]
            if mask is None:
                m_t.copy_(h)
            else:
                torch.mul(h, mask, out=m_t)
            if bias is None:
                torch.mm(m_t, transposed, out=u_t)
            else:
                torch.addmm(bias, m_t, transposed, out=u_t)
            r, z, n = parts[t]
            inner[t].copy_(n)
            r_z = u_t[:, : 2 * width]
            r_z.add_(gates[t, :, : 2 * width]).sigmoid_()
            n.mul_(r).add_(gates[t, :, 2 * width :]).tanh_()
            torch.sub(h, n, out=h_t).mul_(z).add_(n)
            if valid is not None:
                torch.where(valid[t], h_t, h, out=h_t)
            h = h_t
        ctx.save_for_backward(used, masked, outputs, inner, first, weight, factor, valid)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        used, masked, outputs, inner, h_0, weight, factor, valid = ctx.saved_tensors
        wants_factor = factor is not None and ctx.needs_input_grad[4]
        grads, inward = torch.empty_like(used), torch.empty_like(used)
        grad_masked = torch.empty_like(masked)
        values, slopes = _gates(used, 3), _gates(grads, 3)
        width = h_0.shape[-1]
        grad_h = torch.zeros_like(h_0)
        factors = _each_step(factor, used.shape[0])
        for t in range(used.shape[0] - 1, -1, -1):
            mask = factors[t]
            r, z, n = values[t]
            h = outputs[t - 1] if t else h_0
            grad_h = grad_h + grad_outputs[t]
            kept = None
            if valid is not None:
                kept, grad_h = grad_h * ~valid[t], grad_h * valid[t]
            d_r, d_z, d_n = slopes[t]
            carried = grad_h * z
            _tanh_backward(grad_h - carried, n, grad_input=d_n)
            _sigmoid_backward(d_n * inner[t], r, grad_input=d_r)
            _sigmoid_backward(grad_h * (h - n), z, grad_input=d_z)
            inward[t, :, : 2 * width].copy_(grads[t, :, : 2 * width])
            torch.mul(d_n, r, out=inward[t, :, 2 * width :])
            torch.mm(inward[t], weight, out=grad_masked[t])
            grad_h = carried + (grad_masked[t] if mask is None else grad_masked[t] * mask)
            if kept is not None:
                grad_h = grad_h + kept
        grad_factor = _of_factor(grad_masked, h_0, outputs, factor) if wants_factor else None
        flat = inward.flatten(0, 1)
        grad_bias = flat.sum(0) if ctx.needs_input_grad[3] else None
        return grads, grad_h, flat.t() @ masked.flatten(0, 1), grad_bias, grad_factor, None


def _of_factor(grad_masked: Tensor, h_0: Tensor, outputs: Tensor, factor: Tensor) -> Tensor:
    """Gradient in the mask of each step, grad_t h_{t-1}; its sum where all steps share one mask."""
    first = grad_masked[0] * h_0
    later = grad_masked[1:] * outputs[:-1]
    if factor.dim() == 3:
        return torch.cat((first.unsqueeze(0), later)).sum_to_size(factor.shape)
    return (first + later.sum(0)).sum_to_size(factor.shape)
