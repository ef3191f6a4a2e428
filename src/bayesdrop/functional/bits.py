"""Random bits for masks: 32 a value, from a held generator or fresh ones that follow `torch.manual_seed`."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["from_bits", "opposite", "random_bits", "runs_plainly", "uniform_from_bits"]

_RESOLUTION = 2**32
_SIGN = -(2**31)
# Compared and scaled in pieces that stay in the processor's cache.
_PIECE = 2**15
_MIXING_ROUNDS = 12


class _Fresh(threading.local):
    """A generator of every thread's own, set to a new state for every mask."""

    def __init__(self) -> None:
        self.bits = np.random.SFC64(0)
        self.state = self.bits.state

    def words(self, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Random words whose state comes from torch's generator, as `torch.manual_seed` left it."""
        key = torch.empty(3, dtype=torch.int64).random_(-(2**63), None).numpy()
        self.state["state"]["state"][:] = (*key.view(np.uint64), 1)
        self.state["has_uint32"] = 0
        self.bits.state = self.state
        # The state of SFC64 is mixed before use, as its author does after seeding.
        self.bits.random_raw(_MIXING_ROUNDS)
        return self.bits.random_raw(count)


_fresh = _Fresh()


def random_bits(
    shape: Sequence[int], device: torch.device, generator: np.random.Generator | None = None
) -> Tensor:
    """One random number in [0, 1) for every element, in the cheapest form that the device has.

    On the CPU 32 random bits (int32; read them as unsigned), made two to three times as fast as torch
    makes uniform numbers; elsewhere, and where torch traces or batches the code, uniform numbers.

    Args:
        shape: of the result.
        device: where it is wanted.
        generator: where the bits come from (they are then on the CPU); None uses torch's global
            generator, so that `torch.manual_seed` repeats them.
    """
    if generator is None and not runs_plainly(device):
        return torch.rand(tuple(shape), device=device, dtype=torch.float32)
    count = math.prod(shape)
    pairs = (count + 1) // 2
    words = _fresh.words(pairs) if generator is None else generator.bit_generator.random_raw(pairs)
    return torch.from_numpy(words.view(np.int32)[:count].reshape(tuple(shape)))


def runs_plainly(device: torch.device) -> bool:
    """Whether code runs as it is written: not compiled, not batched by `torch.func`."""
    if device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is None


def opposite(bits: Tensor) -> Tensor:
    """1 - u for every u: the antithetic numbers."""
    return 1 - bits if bits.is_floating_point() else ~bits


def uniform_from_bits(bits: Tensor) -> Tensor:
    """The numbers in [0, 1], in single precision."""
    if bits.is_floating_point():
        return bits
    # With the first bit turned, signed numbers have the order of unsigned ones, and the middle of the range is
    # zero. Rounding may give 0 and 1 themselves.
    return (bits ^ _SIGN).to(torch.float32).mul_(1 / _RESOLUTION).add_(0.5)


def from_bits(bits: Tensor, p: Tensor, *, scaled: bool = True) -> Tensor:
    """0 where u < p, else 1 / (1 - p), or 1 if not `scaled`. p is resolved to 2^-32.

    Args:
        bits: from `random_bits`.
        p: chance of dropping; must broadcast against them.
        scaled: divide by 1 - p, so that the mean is one (always zero at p = 1).
    """
    if bits.is_floating_point():
        keep = 1 - p
        # p = 1 never keeps anything; its scale is irrelevant, and 0 * inf would be NaN.
        scale = torch.where(keep > 0, keep, 1).reciprocal() if scaled else torch.ones_like(keep)
        return (bits >= p) * scale
    words = bits.numpy().view(np.uint32)
    threshold, scale = _threshold_and_scale(p, scaled)
    mask = np.empty(words.shape, np.result_type(scale))
    if words.size <= _PIECE or np.ndim(threshold) >= words.ndim:
        np.multiply(words >= threshold, scale, out=mask)
    else:
        lead = words.ndim - np.ndim(threshold)
        flat, out = (values.reshape(-1, *words.shape[lead:]) for values in (words, mask))
        step = max(1, _PIECE * flat.shape[0] // words.size)
        for start in range(0, flat.shape[0], step):
            np.multiply(flat[start : start + step] >= threshold, scale, out=out[start : start + step])
    return torch.from_numpy(mask)


def _threshold_and_scale(p: Tensor, scaled: bool) -> tuple[Any, Any]:
    """The smallest word that is kept, and 1 / (1 - p) in single precision unless p has more."""
    kind: Any = np.float64 if p.dtype == torch.float64 else np.float32
    if p.dim() == 0:
        # Python numbers: arrays of no dimension take ten times as long.
        rate = p.item()
        keep = kind(1) - kind(rate)
        scale = kind(1) / keep if scaled and keep > 0 else kind(keep > 0)
        return np.uint32(min(round(rate * _RESOLUTION), _RESOLUTION - 1)), scale
    rates = p.detach().cpu().to(torch.float64).numpy()
    words = np.minimum(np.rint(rates * _RESOLUTION), _RESOLUTION - 1).astype(np.uint32)
    keeps = (1 - rates).astype(kind)
    if not scaled:
        return words, (keeps > 0).astype(kind)
    return words, np.divide(kind(1), keeps, out=np.zeros_like(keeps), where=keeps > 0)
