"""The learned masks of a forward pass, kept for the estimators of their gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdrop.functional.arm import UsedMask
from bayesdrop.noise.bits import KeepRule, random_bits

__all__ = ["LearnedMask", "MaskPass", "active_pass"]

_ACTIVE: ContextVar[MaskPass | None] = ContextVar("bayesdrop_mask_pass", default=None)


def active_pass() -> MaskPass | None:
    """The running pass whose learned masks are kept; None if there is none."""
    return _ACTIVE.get()


@dataclass(frozen=True, eq=False)
class LearnedMask:
    """One use of a learned mask in a pass."""

    parameter: nn.Parameter  #: its logits
    p: Tensor  #: the rate, shaped to broadcast against the mask
    inverted: bool  #: whether the mask is divided by 1 - p
    rule: KeepRule
    used: UsedMask
    random_state: Tensor | None  #: of torch's generator just after the bits were made


class MaskPass:
    """One forward pass whose learned masks are kept.

    Args:
        mirrored: the masks of an earlier pass. This pass uses 1 - u instead of their u, in the same order,
            and the random state that followed each of them, so that all other noise is the same.
        on_first: called before the first learned mask is made.
        masks: the list that the masks are appended to; a new one if None.
    """

    def __init__(
        self,
        *,
        mirrored: Sequence[LearnedMask] | None = None,
        on_first: Callable[[], None] | None = None,
        masks: list[LearnedMask] | None = None,
    ) -> None:
        self.masks: list[LearnedMask] = [] if masks is None else masks
        self._mirrored = mirrored
        self._on_first = on_first

    def mask(
        self, parameter: nn.Parameter, p: Tensor, shape: tuple[int, ...], like: Tensor, *, inverted: bool
    ) -> Tensor:
        """The next mask of this pass, without a graph.

        Args:
            parameter: the logits of its rate.
            p: the rate, shaped to broadcast against `shape`.
            shape: of the mask, rows first.
            like: a tensor with the dtype and device of the mask.
            inverted: divide by 1 - p.
        """
        if not self.masks and self._on_first is not None:
            self._on_first()
        if self._mirrored is None:
            bits = random_bits(shape, like.device)
            state = torch.get_rng_state() if like.device.type == "cpu" else None
            rule = KeepRule(p, scaled=inverted)
        else:
            earlier = self._earlier(parameter, shape)
            bits, state, rule = earlier.used.bits, earlier.random_state, earlier.rule
            if state is not None:
                torch.set_rng_state(state)
        mask = rule.mask(bits, mirrored=self._mirrored is not None).to(like.dtype)
        self.masks.append(LearnedMask(parameter, p, inverted, rule, UsedMask(bits, mask), state))
        return mask

    def _earlier(self, parameter: nn.Parameter, shape: tuple[int, ...]) -> LearnedMask:
        index, masks = len(self.masks), self._mirrored or ()
        if index < len(masks):
            earlier = masks[index]
            if earlier.parameter is parameter and tuple(earlier.used.bits.shape) == shape:
                return earlier
        raise RuntimeError(
            "LearnableDropout: both passes of a step must use the learned masks in the same order and shape, "
            "but this model's forward decides otherwise by their values. Use estimator='loo'."
        )

    @contextmanager
    def running(self) -> Iterator[MaskPass]:
        """A context: learned masks that are used inside belong to this pass."""
        token = _ACTIVE.set(self)
        try:
            yield self
        finally:
            _ACTIVE.reset(token)
