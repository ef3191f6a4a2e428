"""Where the rows of a batch are in a tensor, and how noise is laid out so that rows share it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Layout", "RowAxis", "layout", "row_axis"]


@dataclass(frozen=True)
class RowAxis:
    """Where the rows of a batch are in a tensor.

    Attributes:
        axis: theirs; None for a tensor that has none, as a weight matrix.
        innermost: where they share the axis with something else (heads, positions): whether that comes
            first, so that neighbours on the axis are of different rows.
    """

    axis: int | None
    innermost: bool = False


@dataclass(frozen=True)
class Layout:
    """How noise multiplies a tensor.

    Attributes:
        shape: of the noise.
        split: shape to give the tensor first, if rows share an axis with something else; else None.
        row: the axis of the noise, of length one, that all rows share; None if there is none.
    """

    shape: tuple[int, ...]
    split: tuple[int, ...] | None
    row: int | None = None

    def multiply(self, x: Tensor, noise: Tensor) -> Tensor:
        """x * noise, with the shape of x."""
        if self.split is None:
            return x * noise
        return (x.reshape(self.split) * noise).reshape(x.shape)

    def spread(self, noise: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The noise of every element of a tensor of this shape."""
        if self.split is None:
            return noise.expand(shape)
        return noise.expand(self.split).reshape(shape)

    def for_groups(self, noise: Tensor, rows: int) -> Tensor:
        """From the noises of K functions, (K, *shape), to noise of which every group of rows has its own.

        Args:
            noise: of all functions.
            rows: of the whole batch.
        """
        if self.row is None:
            raise ValueError("there are no rows")
        merged = noise.squeeze(self.row + 1).movedim(0, self.row)
        return merged.repeat_interleave(rows // noise.shape[0], self.row)


def row_axis(one: tuple[int, ...], many: tuple[int, ...], rows: int) -> RowAxis | None:
    """Where rows are, from the shapes that a tensor has for one row and for several.

    None if the shapes do not tell, as where rows meet each other (N, N).
    """
    if len(one) != len(many):
        return None
    grown = [axis for axis, (small, large) in enumerate(zip(one, many, strict=True)) if small != large]
    if not grown:
        return RowAxis(None)
    if len(grown) > 1 or many[grown[0]] != rows * one[grown[0]]:
        return None
    return RowAxis(grown[0])


def layout(
    x: Tensor | tuple[int, ...],
    rows: int | None,
    *,
    per_row: bool,
    channels: int | bool | None = None,
    axis: int | RowAxis | None = None,
) -> Layout:
    """The noise that a tensor needs in a batch of `rows` rows.

    Noise that all rows share has the same numbers, in the same order, wherever the rows are and however
    many there are: those of the tensor that one row alone would give.

    Args:
        x: what is to be multiplied, or its shape.
        rows: rows of the model's batch; None if that is not known: axis 0 then.
        per_row: noise of every row's own.
        channels: an axis; everything after it shares its noise. None for noise of every element.
        axis: where the rows are. None if that is not known: on axis 0 or 1 if its length says so, else
            sharing axis 0 with something else, rows outermost.
    """
    shape = list(x.shape if isinstance(x, Tensor) else x)
    if isinstance(channels, bool):
        channels = 1 if channels else None
    noise = list(shape)
    if channels is not None:
        noise[channels + 1 :] = [1] * len(noise[channels + 1 :])
    whole = Layout(tuple(noise), None)
    if per_row or not shape:
        return whole
    if rows is None:
        rows = shape[0] if len(shape) > 1 else 1
    place = RowAxis(axis) if isinstance(axis, int) else axis
    if place is None:
        second = len(shape) > 2 and shape[1] == rows and channels is None
        place = RowAxis(1 if second and shape[0] != rows else 0)
    at = place.axis
    if at is None or rows == 0 or shape[at] % rows:
        return whole
    inner = shape[at] // rows
    if noise[at] == 1 or inner == 1:
        noise[at] = 1
        return Layout(tuple(noise), None, at if inner == 1 else None)
    parts, sizes = ([inner, rows], [inner, 1]) if place.innermost else ([rows, inner], [1, inner])
    noise[at : at + 1] = sizes
    return Layout(tuple(noise), (*shape[:at], *parts, *shape[at + 1 :]), at + 1 if place.innermost else at)
