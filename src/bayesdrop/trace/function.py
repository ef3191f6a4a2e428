"""FunctionDraw and RowDraw: the draws that users open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from bayesdrop.trace.draw import Draw
from bayesdrop.trace.held import HeldNoise, ModelFindings
from bayesdrop.trace.isolate import Subject
from bayesdrop.trace.probe import in_groups, probe

__all__ = ["FunctionDraw", "RowDraw"]


class _OpenDraw(Draw):
    """A draw that studies the model in its first pass."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        noise = HeldNoise(model, owner=type(self).__name__, **options)
        super().__init__(model, noise, self._probed)
        self.seed, self.index, self.num_functions = noise.seed, noise.index, noise.num_functions

    def _probed(self, inputs: tuple[Any, Any]) -> ModelFindings:
        subject = Subject(self.model)
        found = probe(subject, inputs)
        return in_groups(subject, inputs, found) if self.noise.num_functions > 1 else found


class FunctionDraw(_OpenDraw):
    """One sampled function: inside `with`, everything random in `model` holds its noise.

        with FunctionDraw(model, seed=0, index=3):
            f = model(x)          # draw 3 of seed 0: the same function for every batch

    The noise is shared by all rows, whatever the training flags say; everything else, BatchNorm too, is
    in eval mode. The flags are restored at the end. While a draw is open its model belongs to this thread:
    another thread that opens a draw of the model waits; `predict` need not wait. The model is studied in the
    first pass with each shape of inputs; settings that change after that take effect in the next draw.

    Several functions at once, each for its own group of rows:

        with FunctionDraw(model, seed=0, index=[3, 7, 9]):
            f = model(torch.cat([a, b, c]))   # a through function 3, b through 7, c through 9

    With K indices, a batch of K * n rows is K groups of n rows, one after another. Group k goes through
    function index[k], as it would in a draw of its own (up to rounding: products of other sizes are summed in
    another order). No row may depend on other rows of the batch. It is an error if the batch does not divide
    into K groups, if a dropout has no rows (on weights, or one number for a whole batch) or they cannot be
    found, and if packed sequences have dropout between layers.

    In a draw, the gradient of a `ConcreteDropout` rate is that of the relaxed mask of the same random
    numbers.

    Args:
        model: any module: its stochastic layers, `nn.Dropout*` modules, functional dropout, attention
            and recurrent dropout become one function.
        seed: names a sequence of functions.
        index: which function of the sequence: a whole number, or several of them for several functions.
    """

    def __init__(self, model: nn.Module, *, seed: int = 0, index: int | Sequence[int] = 0) -> None:
        super().__init__(model, seed=seed, index=index)


class RowDraw(_OpenDraw):
    """Seeded noise that is fresh for every row: per-point moments as `FunctionDraw`, no joint function.

    Args:
        model: as in `FunctionDraw`.
        seed: names a sequence of noises.
        index: which noise of the sequence.
        offset: number of the first row of the batch, so that two batches do not get the same noise.
    """

    def __init__(self, model: nn.Module, *, seed: int = 0, index: int = 0, offset: int = 0) -> None:
        super().__init__(model, seed=seed, index=index, per_row=True, offset=offset)
