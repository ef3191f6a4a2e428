"""Matrix products by the fastest kernel that torch has on this machine.

torch sends products of 32-bit numbers to MKL. On processors of other makers than Intel that have AVX-512, MKL
keeps to half of the registers, and oneDNN, which torch has for convolutions, takes less than half the time.
Which of the two is used depends on the machine and the shapes alone, never on a measurement: the same call
gives the same bits in every process.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["linear", "matmul", "prefers_onednn"]

#: multiply-adds from which on the price of the call is made up for
_LARGE = 2**20


@cache
def prefers_onednn() -> bool:
    """Whether oneDNN multiplies faster than MKL here: AVX-512, by another maker than Intel."""
    return (
        torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and _maker() not in ("", "GenuineIntel")
    )


def _maker() -> str:
    """Who made the processor; nothing where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "GenuineIntel" if "GenuineIntel" in platform.processor() else ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """x W' + b without a gradient, as `torch.nn.functional.linear`.

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
    after = "relu" if relu else "none"
    found = torch.ops.mkldnn._linear_pointwise(x, weight, bias, after, [], "")
    return found


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """A B without a gradient, as `torch.mm`.

    Args:
        a: (M, K).
        b: (K, N).

    Returns: (M, N).
    """
    if not _is_for_onednn(a, b.t()):
        return torch.mm(a, b)
    found: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], "")
    return found


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        x.numel() * weight.shape[0] >= _LARGE
        and prefers_onednn()
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and not torch.is_grad_enabled()
        and torch.backends.mkldnn.enabled
        and _is_plain(x, weight)
    )


def _is_plain(*tensors: Tensor) -> bool:
    """Whether these are tensors and nothing more, and nothing stands between them and their kernels."""
    functorch: Any = torch._C._functorch
    return (
        all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in tensors)
        and functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch.is_autocast_enabled("cpu")
    )
