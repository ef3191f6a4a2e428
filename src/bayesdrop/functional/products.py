"""Matrix products by the fastest kernel that torch has on this machine.

torch computes products of 32-bit numbers by MKL. On processors with AVX-512 that Intel has not made, MKL uses
half of the registers, and oneDNN, which torch has for convolutions, takes less than half the time. Which of
the two is used depends on the machine and the shapes alone, never on a measurement: the same call gives the
same bits in every process.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["LARGE", "ONEDNN", "batched_matmul", "linear", "matmul"]

#: from this many multiply-adds on, oneDNN saves more than its call costs
LARGE = 2**20
#: multiply-adds of one product of a batch from which on it is faster by itself: each is a call of its own
_LARGE_IN_BATCH = 2**21


def _prefers_onednn() -> bool:
    """Whether oneDNN multiplies faster than MKL on this machine: AVX-512, not made by Intel."""
    return (
        torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and _maker() not in ("", "GenuineIntel")
    )


def _maker() -> str:
    """The maker of the processor; "" if the system does not say."""
    try:
        # The first core tells it: a large machine has many, and a long file.
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(
                (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), ""
            )
    except OSError:
        return "GenuineIntel" if "GenuineIntel" in platform.processor() else ""


#: whether large products go to oneDNN on this machine
ONEDNN = _prefers_onednn()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """x W' + b, as `torch.nn.functional.linear`, with gradients of any order.

    Args:
        x: (..., K).
        weight: (J, K).
        bias: (J,) or None.
        relu: max(x W' + b, 0) instead.

    Returns: (..., J).
    """
    if not _is_for_onednn(x, weight) or (bias is not None and bias.dtype != weight.dtype):
        found = F.linear(x, weight, bias)
        return found.relu_() if relu else found
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        made: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return made.relu() if relu else made
    return _product(x, weight, bias, "relu" if relu else "none")


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """A B, as `torch.mm`. Where gradients are enabled it is `torch.mm` itself.

    Args:
        a: (M, K).
        b: (K, N).

    Returns: (M, N).
    """
    if torch.is_grad_enabled() or not _is_for_onednn(a, b.t()):
        return torch.mm(a, b)
    return _product(a, b.t())


def batched_matmul(a: Tensor, b: Tensor, *, bias: Tensor | None = None, out: Tensor) -> Tensor:
    """A B + c of M pairs of matrices into `out`, as `torch.bmm` and `torch.baddbmm`. Without gradients.

    Args:
        a: (M, B, K).
        b: (M, K, N).
        bias: c, (M, 1, N), or None.
        out: (M, B, N), which must not share memory with the others.

    Returns: `out`.
    """
    rows, inner, columns = *a.shape[1:], b.shape[2]
    large = rows * inner * columns >= _LARGE_IN_BATCH and not torch.is_grad_enabled()
    if not large or not _are_for_onednn(a, b):
        return torch.bmm(a, b, out=out) if bias is None else torch.baddbmm(bias, a, b, out=out)
    for place, (one, other) in enumerate(zip(a, b, strict=True)):
        own = None if bias is None else bias[place, 0]
        out[place] = _product(one, other.t(), own)
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        # For second derivatives gradients are enabled here, and `matmul` is torch's own.
        rows = grad.flatten(0, -2)
        grad_x = matmul(rows, weight).view(x.shape) if for_x else None
        grad_weight = matmul(rows.t(), x.flatten(0, -2)) if for_weight else None
        return grad_x, grad_weight, rows.sum(0) if for_bias else None


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, after: str = "none") -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, after, [], "")
    return found


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    return x.numel() * weight.shape[0] >= LARGE and x.dim() > 1 and _are_for_onednn(x, weight)


def _are_for_onednn(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN is the faster one here, and may multiply these."""
    return (
        ONEDNN
        and a.dtype == b.dtype == torch.float32
        and a.device.type == b.device.type == "cpu"
        and bool(torch.backends.mkldnn.enabled)
        and _is_plain(a, b)
    )


def _is_plain(*tensors: Tensor) -> bool:
    """Whether these are plain tensors, and no mode, transform, tracer or autocast changes operations."""
    functorch: Any = torch._C._functorch
    return (
        not torch.compiler.is_compiling()
        and all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in tensors)
        and functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_function_stack() == 0
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._get_tracing_state() is None
        and not torch.is_autocast_enabled("cpu")
        and torch.autograd.forward_ad._current_level < 0
    )
