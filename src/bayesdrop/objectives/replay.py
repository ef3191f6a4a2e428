"""Running a forward pass again from its first learned mask on, with the kept results of what comes before."""

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
    """The pass does not begin as the first one did, or the first has changed its results in place."""


class Prefix(TorchFunctionMode):
    """Records the beginning of a first pass; later passes reuse its results instead of computing them.

    Every torch function that runs before `end` is kept with its result; later passes get the results in the
    same order, whatever the graph and the Python code, other random layers included. A later pass that does
    not begin in the same way is run in full.

    Args:
        masks: the list of learned masks that the first pass has used so far.
    """

    def __init__(self, masks: Sequence[Any]) -> None:
        super().__init__()
        self._masks = masks
        self._is_first = True
        self._state: Literal["recording", "after", "replaying"] = "recording"
        self._results: list[tuple[Callable[..., Any], Any, list[tuple[Tensor, int]]]] = []
        self._position = 0
        #: how many of the first masks come before a BatchNorm that mixes rows
        self.num_coupled = 0

    def end(self) -> None:
        """End the beginning, at the first learned mask: from here on every pass computes for itself."""
        if self._state == "recording":
            # Versions show later whether the pass has changed one of these tensors in place.
            self._results = [(f, r, [(t, t._version) for t in _tensors(r)]) for f, r, _ in self._results]
        self._state = "after"

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._state == "after":
            if self._is_first and func in _BATCH_NORMS and _uses_batch_statistics(args, kwargs):
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
        """A later pass: `run()`, with the beginning of the first pass if it can be reused.

        Without a learned mask in the first pass there is no such beginning, and `run()` computes everything.
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


def _uses_batch_statistics(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of batch norm has `training` true, and so mixes rows."""
    return bool(kwargs.get("training", args[5] if len(args) > 5 else False))


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """A context: passes change copies of buffers, as BatchNorm's statistics; the originals are put back."""
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
