"""Random bits for masks, 32 a value: from a given generator, or as `torch.manual_seed` determines."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.noise.source import RESOLUTION, threshold_and_scale

__all__ = ["KeepRule", "from_bits", "random_bits", "runs_plainly", "uniform_from_bits"]

_SIGN = -(2**31)
# Compared and scaled in pieces that stay in the processor's cache.
_PIECE = 2**15
_MIXING_ROUNDS = 12


class _Fresh(threading.local):
    """One generator for each thread, set to a new state for every mask."""

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
    """One random number in [0, 1) for every element, in the form that is cheapest on the device.

    On the CPU 32 random bits (int32, meant as unsigned), two to three times as fast as torch makes uniform
    numbers; elsewhere, and where torch compiles or batches the code, uniform numbers.

    Args:
        shape: of the result.
        device: where the result is.
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
    """Whether code runs eagerly on the CPU: neither compiled nor batched by `torch.func`."""
    if device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is None


def uniform_from_bits(bits: Tensor) -> Tensor:
    """Random bits as numbers in [0, 1], in single precision."""
    if bits.is_floating_point():
        return bits
    # With the first bit turned, signed numbers have the order of unsigned ones, and the middle of the range
    # is zero. Rounding may give 0 and 1 themselves.
    return (bits ^ _SIGN).to(torch.float32).mul_(1 / RESOLUTION).add_(0.5)


class KeepRule:
    """Turns random numbers into masks at the rate p; made once for any number of masks.

    Args:
        p: chance of dropping, resolved to 2^-32 on the CPU and 2^-24 elsewhere.
        scaled: True: the mask of a kept unit is 1 / (1 - p), so that its mean is one (at p = 1 the mask is
            always zero). False: it is 1.
    """

    def __init__(self, p: Tensor, *, scaled: bool = True) -> None:
        self._p = p
        self._scaled = scaled
        self._words: tuple[Any, Any] | None = None

    def mask(self, bits: Tensor, *, mirrored: bool = False) -> Tensor:
        """The mask of the random numbers u: 0 where u < p, else the value of a kept unit.

        Args:
            bits: from `random_bits`; p must broadcast against them.
            mirrored: 1 - u in place of u: the antithetic mask.
        """
        if bits.is_floating_point():
            keep = 1 - self._p
            # p = 1 never keeps anything; its scale is irrelevant, and 0 * inf would be NaN.
            scale = torch.where(keep > 0, keep, 1).reciprocal() if self._scaled else torch.ones_like(keep)
            return ((1 - bits if mirrored else bits) >= self._p) * scale
        if self._words is None:
            self._words = threshold_and_scale(self._p, scaled=self._scaled)
        threshold, scale = self._words
        if not mirrored:
            return _compared(np.greater_equal, bits, threshold, scale)
        # ~w >= threshold, without turning the bits over.
        return _compared(np.less_equal, bits, ~threshold, scale)


def from_bits(bits: Tensor, p: Tensor, *, scaled: bool = True) -> Tensor:
    """One mask: see `KeepRule`."""
    return KeepRule(p, scaled=scaled).mask(bits)


def _compared(kept: np.ufunc, bits: Tensor, threshold: Any, scale: Any) -> Tensor:
    """`scale` where the comparison holds, else 0."""
    words = bits.numpy().view(np.uint32)
    mask = np.empty(words.shape, np.result_type(scale))
    if words.size <= _PIECE or np.ndim(threshold) >= words.ndim:
        np.multiply(kept(words, threshold), scale, out=mask)
    else:
        lead = words.ndim - np.ndim(threshold)
        flat, out = (values.reshape(-1, *words.shape[lead:]) for values in (words, mask))
        step = max(1, _PIECE * flat.shape[0] // words.size)
        for start in range(0, flat.shape[0], step):
            piece = slice(start, start + step)
            np.multiply(kept(flat[piece], threshold), scale, out=out[piece])
    return torch.from_numpy(mask)
