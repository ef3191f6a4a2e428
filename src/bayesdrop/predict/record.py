"""Recording a pass of a model: a draw that writes down, as a tape, what depends on its noise."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from bayesdrop.draws import FunctionDraw, RowDraw, Sampler
from bayesdrop.draws.held import HeldNoise
from bayesdrop.draws.intercept import InterceptMode
from bayesdrop.predict.tape import tensors_of
from bayesdrop.predict.transcript import Recording
from bayesdrop.randomness import States, global_states, have_moved, is_alone

__all__ = ["Recording", "RecordingDraw", "recording"]


class _RecordMode(InterceptMode):
    def __init__(self, draw: HeldNoise, record: Recording) -> None:
        super().__init__(draw)
        self.record = record

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.record.call(func, args, kwargs)

    def overwrite(self, target: Tensor, value: Tensor) -> Tensor:
        self.before_write(target)
        return self.record.overwrite(target, value)

    def unchanged(self, x: Tensor) -> Tensor:
        return self.record.unchanged(x)


class RecordingDraw(FunctionDraw):
    """A draw that writes down the pass made inside it."""

    sees_all = True

    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__(model, **options)
        self.record = Recording()
        #: whether a global generator moved during the pass, and no function was seen that draws from one
        self.out_of_sight = False
        self._states: States | None = None

    def held(self, key: str, shape: tuple[int, ...], like: Tensor, sample: Sampler) -> Tensor:
        with torch._C.DisableTorchFunction():
            noise = super().held(key, shape, like, sample)
            self.record.leaf(noise, key, sample)
        return noise

    def _fixed(self, key: str, shape: tuple[int, ...], like: Tensor, sample: Sampler) -> Tensor:
        noise = super()._fixed(key, shape, like, sample)
        self.record.constant(noise)
        return noise

    def saw_foreign_randomness(self, name: str) -> None:
        super().saw_foreign_randomness(name)
        self.record.stop(f"the model calls {name}, which no draw can hold")

    def _mode(self) -> InterceptMode:
        return _RecordMode(self, self.record)

    def __enter__(self) -> Self:
        self._states = global_states()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._mode_of_pass is not None:
            self.record.put_back = self._mode_of_pass.put_back
        if not self.foreign and self._states is not None and have_moved(self._states, torch_too=is_alone()):
            self.out_of_sight = True
            self.saw_foreign_randomness("a random function out of sight")


class _RecordingRows(RowDraw, RecordingDraw):
    """The same with noise for every row."""

    sees_all = True


_HOLDERS = (Tensor, dict, list, tuple, slice, Mapping)


def recording(model: nn.Module, inputs: Any, *, per_row: bool, **options: Any) -> RecordingDraw:
    """A draw that records the pass made inside it."""
    draw = _RecordingRows(model, **options) if per_row else RecordingDraw(model, **options)
    record = draw.record
    for tensor in tensors_of(inputs):
        record.constant(tensor)
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            record.stop("a part of the model is a script")
        for name, value in vars(module).items():
            # Most are numbers, flags, and dictionaries of hooks.
            if isinstance(value, _HOLDERS) and name != "_modules" and not name.endswith("_hooks"):
                for tensor in tensors_of(value):
                    record.constant(tensor)
    return draw
