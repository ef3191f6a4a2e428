"""Where the rows of a batch are in a tensor, and how noise is laid out so that rows share it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Layout", "layout"]


@dataclass(frozen=True)
class Layout:
    """How noise multiplies a tensor.

    Attributes:
        shape: of the noise.
        split: shape to give the tensor first, if rows share axis 0 with something else; else None.
    """

    shape: tuple[int, ...]
    split: tuple[int, ...] | None

    def multiply(self, x: Tensor, noise: Tensor) -> Tensor:
        """x * noise, with the shape of x."""
        if self.split is None:
            return x * noise
        return (x.reshape(self.split) * noise).reshape(x.shape)


def layout(
    x: Tensor, rows: int | None, *, per_row: bool, channels: bool = False, axis: int | None = None
) -> Layout:
    """The noise that `x` needs in a batch of `rows` rows.

    Rows are on axis 0 if its length says so; else on axis 1 (time first); else they share axis 0 with
    something else, rows outermost (as heads of attention, or positions flattened into the batch).
    Noise that is the same for all rows has the same numbers in each of these.

    Args:
        x: what is to be multiplied.
        rows: rows of the model's batch; None if that is not known: axis 0 then.
        per_row: noise of every row's own.
        channels: one value for a channel (axis 1) of a row instead of one for each element.
        axis: the axis of the rows, where it is known.
    """
    shape = list(x.shape)
    if channels:
        shape[2:] = [1] * len(shape[2:])
    if per_row or not shape:
        return Layout(tuple(shape), None)
    if rows is None:
        rows = x.shape[0] if x.dim() > 1 else 1
    if axis is None:
        axis = 0 if x.shape[0] == rows else 1 if x.dim() > 2 and x.shape[1] == rows and not channels else None
    if axis is not None:
        if x.dim() > 1 or x.shape[0] == rows:
            shape[axis] = 1
        return Layout(tuple(shape), None)
    if x.shape[0] % rows or rows == 1:
        return Layout(tuple(shape), None)
    inner = x.shape[0] // rows
    return Layout((inner, *shape[1:]), (rows, inner, *x.shape[1:]))
