"""The random numbers behind learned masks, pass by pass: what an estimator of their gradient needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdrop.functional.bits import opposite, random_bits

__all__ = ["LearnedMask", "MaskPass", "active_pass"]

_ACTIVE: ContextVar[MaskPass | None] = ContextVar("bayesdrop_mask_pass", default=None)


def active_pass() -> MaskPass | None:
    """The pass that is going on, if someone estimates gradients of learned masks."""
    return _ACTIVE.get()


@dataclass(frozen=True, eq=False)
class LearnedMask:
    """One use of a learned mask in a pass."""

    parameter: nn.Parameter  #: its logits
    p_shape: tuple[int, ...]  #: of the rate, so as to broadcast against the bits
    bits: Tensor  #: the random numbers, rows first
    random_state: Tensor | None  #: of torch's generator just after they were made


class MaskPass:
    """One forward pass whose learned masks are kept.

    Args:
        mirrored: the masks of an earlier pass: this one uses 1 - u, in the same order.
        after: an earlier pass whose random state follows each mask, so that all other noise is the same.
        on_first: called when the first learned mask is asked for.
    """

    def __init__(
        self,
        *,
        mirrored: Sequence[LearnedMask] | None = None,
        after: Sequence[LearnedMask] | None = None,
        on_first: Callable[[], None] | None = None,
    ) -> None:
        self.masks: list[LearnedMask] = []
        self._mirrored = mirrored
        self._after = after
        self._on_first = on_first

    def bits(self, parameter: nn.Parameter, p: Tensor, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """The random numbers of the next mask of this pass."""
        index = len(self.masks)
        if index == 0 and self._on_first is not None:
            self._on_first()
        if self._mirrored is None:
            bits = random_bits(shape, device)
        else:
            earlier = self._mirrored[index] if index < len(self._mirrored) else None
            if earlier is None or earlier.parameter is not parameter or tuple(earlier.bits.shape) != shape:
                raise RuntimeError(
                    "LearnableDropout: the passes of one step must use the learned masks in the same order and "
                    "shape; this model's forward decides otherwise by its masks. Use estimator='loo'."
                )
            bits = opposite(earlier.bits)
        if self._after is not None and index < len(self._after):
            state = self._after[index].random_state
            if state is not None:
                torch.set_rng_state(state)
        on_cpu = device.type == "cpu"
        state = torch.get_rng_state() if on_cpu else None
        self.masks.append(LearnedMask(parameter, tuple(p.shape), bits, state))
        return bits

    @contextmanager
    def running(self) -> Iterator[MaskPass]:
        """Learned masks belong to this pass inside the block."""
        token = _ACTIVE.set(self)
        try:
            yield self
        finally:
            _ACTIVE.reset(token)
