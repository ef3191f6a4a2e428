"""FunctionDraw and RowDraw: draws as users open them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from bayesdrop.trace.draw import Draw
from bayesdrop.trace.held import Findings, HeldNoise
from bayesdrop.trace.isolate import Subject
from bayesdrop.trace.probe import in_groups, probe

__all__ = ["FunctionDraw", "RowDraw"]


class _OpenDraw(Draw):
    """A draw that finds out about the model in its first pass."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        noise = HeldNoise(model, owner=type(self).__name__, **options)
        super().__init__(model, noise, self._probed)
        self.seed, self.index, self.num_functions = noise.seed, noise.index, noise.num_functions

    def _probed(self, inputs: tuple[Any, Any]) -> Findings:
        subject = Subject(self.model)
        found = probe(subject, inputs)
        return in_groups(subject, inputs, found) if self.noise.num_functions > 1 else found


class FunctionDraw(_OpenDraw):
    """One sampled function: inside `with`, everything random in `model` holds its noise.

        with FunctionDraw(model, seed=0, index=3):
            f = model(x)          # draw 3 of seed 0: the same function for every batch

    The noise is shared by all rows, whatever the training flags say; everything else, BatchNorm too, is
    in eval mode. Nothing is left switched. While a draw is open its model is this thread's: another thread
    that opens a draw of it waits, `predict` does not need to. What is found of the model in the first pass
    (of every shape of inputs) holds until the draw is left: settings that change are seen by the next draw.

    Several functions at once, each for its own group of rows:

        with FunctionDraw(model, seed=0, index=[3, 7, 9]):
            f = model(torch.cat([a, b, c]))   # a through function 3, b through 7, c through 9

    K whole numbers make of a batch of K * n rows K groups of n rows, one after another; group k goes through
    function index[k], as in K draws of their own (to rounding: products of other sizes are summed in another
    order). No row may depend on other rows of the batch. What cannot be done so is an error: a batch that
    does not fall into K groups, dropout where the rows cannot be found or that has none (on weights, or one
    number for a whole batch), packed sequences with dropout between layers.

    In a draw the rate of `ConcreteDropout` has the gradient of its relaxed masks, of the same random numbers.

    Args:
        model: any module: its stochastic layers, `nn.Dropout*` modules, functional dropout, attention
            and recurrent dropout become one function.
        seed: names a sequence of functions.
        index: which of them: a whole number, or a sequence of them for several functions at once.
    """

    def __init__(self, model: nn.Module, *, seed: int = 0, index: int | Sequence[int] = 0) -> None:
        super().__init__(model, seed=seed, index=index)


class RowDraw(_OpenDraw):
    """Seeded noise that is fresh for every row: per-point moments as `FunctionDraw`, no joint function.

    Args:
        model: as in `FunctionDraw`.
        seed: names a sequence of samples.
        index: which of them.
        offset: number of the first row of the batch, so that batches have noise of their own.
    """

    def __init__(self, model: nn.Module, *, seed: int = 0, index: int = 0, offset: int = 0) -> None:
        super().__init__(model, seed=seed, index=index, per_row=True, offset=offset)
