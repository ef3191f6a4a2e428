"""Run a forward pass again from its first learned mask on: what comes before is remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

__all__ = ["Prefix", "buffers_kept"]

_BATCH_NORMS = (nn.functional.batch_norm, torch.batch_norm)


class _CannotReplay(Exception):
    """The pass does not begin as the first one did, or has changed what it began with."""


class Prefix(TorchFunctionMode):
    """Watches a first pass; later passes take the results of its beginning instead of computing them.

    Every torch function that runs before `end` is remembered with its result, and given again in the
    same order: any graph, any Python code, other random layers included. Where a later pass does not
    begin in the same way, it is run in full.

    Args:
        masks: the learned masks that the first pass has asked for so far.
    """

    def __init__(self, masks: Sequence[Any]) -> None:
        super().__init__()
        self._masks = masks
        self._is_first = True
        self._state: Literal["recording", "after", "replaying"] = "recording"
        self._results: list[tuple[Callable[..., Any], Any, list[tuple[Tensor, int]]]] = []
        self._position = 0
        #: how many masks, the first ones, stand before a place where rows share batch statistics
        self.num_coupled = 0

    def end(self) -> None:
        """The first learned mask is reached: from here on every pass computes for itself."""
        if self._state == "recording":
            # A tensor that the pass changes in place later cannot serve as a beginning again.
            self._results = [(f, r, [(t, t._version) for t in _tensors(r)]) for f, r, _ in self._results]
        self._state = "after"

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._state == "after":
            if self._is_first and func in _BATCH_NORMS and _uses_batch_statistics(func, args, kwargs):
                self.num_coupled = len(self._masks)
            return func(*args, **kwargs)
        if self._state == "recording":
            result = func(*args, **kwargs)
            self._results.append((func, result, []))
            return result
        if self._position >= len(self._results):
            raise _CannotReplay
        known, result, versions = self._results[self._position]
        if known is not func or any(tensor._version != version for tensor, version in versions):
            raise _CannotReplay
        self._position += 1
        return result

    def again(self, run: Callable[[], Tensor]) -> Tensor:
        """A later pass: `run()`, its beginning taken from the first one where that can be done.

        A model without any learned mask on its way has no beginning to speak of; it is run in full.
        """
        ended = self._state == "after"
        self._is_first = False
        if ended:
            self._state, self._position = "replaying", 0
            try:
                with self:
                    return run()
            except _CannotReplay:
                pass
            finally:
                self._state = "after"
        return run()


def _tensors(result: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def _uses_batch_statistics(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of batch norm is told that it trains."""
    position = 5 if func is nn.functional.batch_norm or func is torch.batch_norm else -1
    training = kwargs.get("training", args[position] if len(args) > position else False)
    return bool(training)


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Buffers, as BatchNorm's statistics, move in copies inside the block: afterwards they are as before."""
    kept: list[tuple[nn.Module, str, Tensor]] = []
    try:
        for module in model.modules():
            if module.training:
                for name, buffer in module._buffers.items():
                    if buffer is not None:
                        kept.append((module, name, buffer))
                        module._buffers[name] = buffer.clone()
        yield
    finally:
        for module, name, buffer in kept:
            module._buffers[name] = buffer
