"""Several functions on one batch: to which stochastic layers the rows come in groups, one after another."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bayesdrop.draws.layout import row_axis
from bayesdrop.draws.private import copied_arguments
from bayesdrop.draws.source import Sampler
from bayesdrop.draws.subject import Subject
from bayesdrop.draws.watch import Watcher

__all__ = ["grouped_layers"]

Arguments = tuple[Any, Any]


class _LayerWatcher(Watcher):
    """Takes notes of what every stochastic layer is given."""

    def __init__(self, model: nn.Module, trained: frozenset[str]) -> None:
        super().__init__(model, trained)
        self.given: dict[str, list[Tensor]] = {}

    def noise(
        self, module: nn.Module, name: str, shape: tuple[int, ...], like: Tensor, sample: Sampler
    ) -> None:
        self.given.setdefault(self._paths[module], []).append(like.detach().clone())


def grouped_layers(
    subject: Subject, one: Arguments, two: Arguments, other: Arguments, trained: frozenset[str]
) -> frozenset[str]:
    """Paths of the stochastic layers to which rows come on axis 0, row after row.

    Args:
        subject: a model.
        one: one row.
        two: the same row twice.
        other: the row and another one.
        trained: modules that are in training mode for the sake of their dropout.
    """
    notes = []
    for inputs in (one, two, other):
        watcher, _ = subject.run(
            lambda model: _LayerWatcher(model, trained), copied_arguments(inputs, tensors=True)
        )
        notes.append(watcher.given)
    first, second, third = notes
    return frozenset(
        path
        for path, given in first.items()
        if len(given) == len(second.get(path, ())) == len(third.get(path, ()))
        and all(_is_row_after_row(a, b, c) for a, b, c in zip(given, second[path], third[path], strict=True))
    )


def _is_row_after_row(one: Tensor, two: Tensor, other: Tensor) -> bool:
    """Whether what a layer is given for two rows is that for the first and then that for the second."""
    place = row_axis(tuple(one.shape), tuple(two.shape), 2)
    if place is None or place.axis != 0 or two.shape != other.shape:
        return False
    inner = one.shape[0]
    if inner == 1:
        return True
    changed = (two != other) & ~(two.isnan() & other.isnan())
    return not bool(changed[:inner].any()) and bool(changed[inner:].any())
