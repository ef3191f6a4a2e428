"""Functions that move elements, or make tensors of a shape."""

from __future__ import annotations

from typing import Any

import torch

from bayesdrop.export.nodes.graph import CannotExport, Handle, Writer, writes
from bayesdrop.export.program import Dims, Size

__all__: list[str] = []


# The shape of a result is known, whatever the function was told.


@writes("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "ravel", "unsqueeze", "squeeze")
def _reshape(w: Writer, x: Handle, *args: Any, **_: Any) -> str:
    if any(isinstance(arg, torch.dtype) for arg in args):
        raise CannotExport("with a dtype, which cannot be written to an ONNX file.")
    return x.name if x.shape == w.out[0].shape else w.reshaped(x.name, w.out[0].shape)


@writes("contiguous", "clone", "detach", "data", "alias", "positive", "pin_memory", "identity")
def _same(w: Writer, x: Handle, *_: Any, **__: Any) -> str:
    return x.name


@writes("to", "float", "double", "half", "long", "int", "bool", "type", "type_as", "byte", "short")
def _to(w: Writer, x: Handle, *_: Any, **__: Any) -> str:
    return w.cast(x, w.out[0].dtype)


@writes("permute")
def _permute(w: Writer, x: Handle, *dims: Any, **named: Any) -> str:
    order = named.get("dims", dims[0] if len(dims) == 1 and isinstance(dims[0], tuple | list) else dims)
    return _transposed(w, x, [x.axis(dim) for dim in order])


@writes("transpose", "swapaxes", "swapdims")
def _transpose(w: Writer, x: Handle, dim0: int, dim1: int) -> str:
    order = list(range(x.dims))
    first, second = x.axis(dim0), x.axis(dim1)
    order[first], order[second] = second, first
    return _transposed(w, x, order)


@writes("t", "T", "mT", "adjoint")
def _turned(w: Writer, x: Handle) -> str:
    order = list(range(x.dims))
    if x.dims == 2:
        order.reverse()
    elif x.dims > 2:
        order[-2:] = order[:-3:-1]
    return _transposed(w, x, order)


@writes("movedim", "moveaxis")
def _movedim(w: Writer, x: Handle, source: Any, destination: Any) -> str:
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    moved = {x.axis(to): x.axis(at) for at, to in zip(sources, targets, strict=True)}
    rest = iter(axis for axis in range(x.dims) if axis not in moved.values())
    return _transposed(w, x, [moved[axis] if axis in moved else next(rest) for axis in range(x.dims)])


def _transposed(w: Writer, x: Handle, order: list[int]) -> str:
    return x.name if order == sorted(order) else w.node("Transpose", x.name, perm=order)


@writes("expand", "expand_as", "broadcast_to")
def _expand(w: Writer, x: Handle, *_: Any, **__: Any) -> str:
    return _expanded(w, x, w.out[0].shape)


def _expanded(w: Writer, x: Handle, shape: Dims) -> str:
    if x.shape == shape:
        return x.name
    # An axis of length one in the wanted shape leaves the axis of the tensor as it is.
    own = (*[None] * (len(shape) - x.dims), *x.shape)
    return w.node(
        "Expand", x.name, w.sizes([1 if size == old else size for size, old in zip(shape, own, strict=True)])
    )


@writes("repeat", "tile")
def _repeat(w: Writer, x: Handle, *counts: Any, **named: Any) -> str:
    flat = next(
        iter(named.values()),
        counts[0] if len(counts) == 1 and isinstance(counts[0], tuple | list) else counts,
    )
    flat = [flat] if isinstance(flat, int) else list(flat)
    flat = [*[1] * (x.dims - len(flat)), *flat]
    name = w.reshaped(x.name, (*[1] * (len(flat) - x.dims), *x.shape)) if len(flat) > x.dims else x.name
    return w.node("Tile", name, w.sizes(flat))


@writes("repeat_interleave")
def _repeat_interleave(w: Writer, x: Handle, repeats: Any, dim: int | None = None, **_: Any) -> str:
    if not isinstance(repeats, int) or dim is None:
        raise CannotExport("with repeats that are no number, which cannot be written to an ONNX file.")
    axis = x.axis(dim)
    split = (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
    wide = tuple(repeats if place == axis + 1 else 1 for place in range(len(split)))
    return w.reshaped(w.node("Expand", w.reshaped(x.name, split), w.whole(*wide)), w.out[0].shape)


# parts


def _slice(w: Writer, name: str, axis: int, start: Any, stop: Any, step: int = 1) -> str:
    return w.node("Slice", name, w.sizes([start]), w.sizes([stop]), w.whole(axis), w.whole(step))


@writes("select")
def _select(w: Writer, x: Handle, dim: int, index: Any) -> str:
    stop = Size(index.times, index.plus + 1) if isinstance(index, Size) else index + 1 or _END
    return w.reshaped(_slice(w, x.name, x.axis(dim), index, stop), w.out[0].shape)


@writes("narrow")
def _narrow(w: Writer, x: Handle, dim: int, start: int, length: Any) -> str:
    size = w.out[0].shape[x.axis(dim)]
    stop = Size(size.times, size.plus + start) if isinstance(size, Size) else start + size
    return _slice(w, x.name, x.axis(dim), start, stop)


@writes("chunk", "split", "tensor_split", "split_with_sizes")
def _split(w: Writer, x: Handle, _: Any = None, dim: int = 0, **__: Any) -> list[str]:
    axis = x.axis(dim)
    parts = w.sizes([value.shape[axis] for value in w.out])
    return w.node_many("Split", [x.name, parts], len(w.out), axis=axis)


@writes("unbind", "iter")
def _unbind(w: Writer, x: Handle, dim: int = 0) -> list[str]:
    axis = x.axis(dim)
    parts = w.node_many("Split", [x.name, w.whole(*[1] * len(w.out))], len(w.out), axis=axis)
    return [w.reshaped(part, value.shape) for part, value in zip(parts, w.out, strict=True)]


@writes("cat", "concat", "concatenate")
def _cat(w: Writer, parts: list[Handle], dim: int = 0) -> str:
    whole = [part for part in parts if part.shape != (0,)]
    return w.node("Concat", *(w.cast(part, w.out[0].dtype) for part in whole), axis=whole[0].axis(dim))


@writes("stack")
def _stack(w: Writer, parts: list[Handle], dim: int = 0) -> str:
    axis = dim % (parts[0].dims + 1)
    made = []
    for part in parts:
        made.append(w.node("Unsqueeze", w.cast(part, w.out[0].dtype), w.whole(axis)))
    return w.node("Concat", *made, axis=axis)


@writes("hstack")
def _hstack(w: Writer, parts: list[Handle]) -> str:
    joined: str = _cat(w, parts, 0 if parts[0].dims == 1 else 1)
    return joined


_END = 2**62


@writes("getitem")
def _getitem(w: Writer, x: Handle, index: Any) -> str:
    parts = list(index) if isinstance(index, tuple) else [index]
    if isinstance(index, list):
        parts = [w.held(torch.tensor(index))]
    used = sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis in [part for part in parts if not isinstance(part, Handle)]:
        at = next(place for place, part in enumerate(parts) if part is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (x.dims - used)
    tensors = [part for part in parts if isinstance(part, Handle)]
    if any(part.dtype == torch.bool for part in tensors):
        raise CannotExport("with a mask, whose result has no fixed shape: no file can hold that.")
    name, axis, shape = x.name, 0, list(x.shape)
    places: list[int] = []
    dropped: list[int] = []
    for part in parts:
        if part is None:
            continue
        if isinstance(part, Handle):
            places.append(axis)
        elif isinstance(part, slice):
            name = _cut(w, name, axis, part)
        else:
            stop = Size(part.times, part.plus + 1) if isinstance(part, Size) else part + 1 or _END
            name = _slice(w, name, axis, part, stop)
            dropped.append(axis)
        axis += 1
    if not tensors:
        return w.reshaped(name, w.out[0].shape) if dropped or None in parts else name
    return _gathered(w, name, shape, tensors, places, dropped, parts)


def _cut(w: Writer, name: str, axis: int, part: slice) -> str:
    step = 1 if part.step is None else part.step
    if part.start in (None, 0) and part.stop is None and step == 1:
        return name
    return _slice(
        w, name, axis, 0 if part.start is None else part.start, _END if part.stop is None else part.stop, step
    )


def _gathered(
    w: Writer,
    name: str,
    shape: list[Any],
    tensors: list[Handle],
    places: list[int],
    dropped: list[int],
    parts: list[Any],
) -> str:
    """x[..., i, ...] and x[i, j, ...] of whole numbers i, j."""
    # Axes of numbers behind the tensors have length one now, and go at the end.
    if dropped and (places != list(range(len(places))) or min(dropped) < len(places)):
        raise CannotExport("with tensors and numbers in turn, which cannot be written to an ONNX file.")
    indices = [w.cast(part, torch.int64) for part in tensors]
    if len(tensors) == 1:
        found = w.node("Gather", name, indices[0], axis=places[0])
    elif places == list(range(len(places))):
        wide: Dims = tuple(w.out[0].shape[: max(part.dims for part in tensors)])
        if None in parts:
            raise CannotExport("with tensors and None, which cannot be written to an ONNX file.")
        spread = [
            w.reshaped(_expanded(w, Handle(part.shape, torch.int64, one), wide), (*wide, 1))
            for part, one in zip(tensors, indices, strict=True)
        ]
        found = w.node("GatherND", name, w.node("Concat", *spread, axis=len(wide)))
    else:
        raise CannotExport("with several tensors that do not come first, which ONNX cannot express.")
    return w.reshaped(found, w.out[0].shape) if dropped or None in parts else found


@writes("index_select")
def _index_select(w: Writer, x: Handle, dim: int, index: Handle) -> str:
    return w.node("Gather", x.name, index.name, axis=x.axis(dim))


@writes("gather", "take_along_dim")
def _gather(w: Writer, x: Handle, dim: Any, index: Any, **_: Any) -> str:
    if isinstance(dim, Handle):  # take_along_dim has them the other way round
        dim, index = index, dim
    return w.node("GatherElements", x.name, index.name, axis=x.axis(dim))


@writes("embedding")
def _embedding(w: Writer, x: Handle, weight: Handle, *_: Any, **__: Any) -> str:
    return w.node("Gather", weight.name, x.name, axis=0)


@writes("roll")
def _roll(w: Writer, x: Handle, shifts: Any, dims: Any = None) -> str:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims or ())
    if len(dims) != len(shifts):
        raise CannotExport("without axes, which cannot be written to an ONNX file.")
    name = x.name
    for shift, dim in zip(shifts, dims, strict=True):
        axis = x.axis(dim)
        size = x.shape[axis]
        if isinstance(size, Size):
            raise CannotExport("over the rows, which cannot be written to an ONNX file.")
        cut = -shift % size
        head, tail = _slice(w, name, axis, cut, _END), _slice(w, name, axis, 0, cut)
        name = w.node("Concat", head, tail, axis=axis) if cut else name
    return name


@writes("flip")
def _flip(w: Writer, x: Handle, *dims: Any) -> str:
    flat = dims[0] if len(dims) == 1 and isinstance(dims[0], tuple | list) else dims
    name = x.name
    for dim in flat:
        name = _slice(w, name, x.axis(dim), -1, -_END, -1)
    return name


@writes("tril", "triu")
def _triangle(w: Writer, x: Handle, diagonal: int = 0) -> str:
    raise CannotExport("on what depends on the inputs, which cannot be written to an ONNX file.")


@writes("pixel_shuffle")
def _pixel_shuffle(w: Writer, x: Handle, upscale_factor: int) -> str:
    return w.node("DepthToSpace", x.name, blocksize=upscale_factor, mode="CRD")


@writes("pad")
def _pad(w: Writer, x: Handle, pad: Any, mode: str = "constant", value: float | None = None) -> str:
    kind = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}.get(mode)
    if kind is None or not all(isinstance(size, int) for size in pad):
        raise CannotExport(f"in mode {mode!r}, which cannot be written to an ONNX file.")
    pairs = [(pad[place], pad[place + 1]) for place in range(0, len(pad), 2)][::-1]
    pairs = [*[(0, 0)] * (x.dims - len(pairs)), *pairs]
    ends = w.whole(*(low for low, _ in pairs), *(high for _, high in pairs))
    return w.node("Pad", x.name, ends, w.constant(value or 0.0, x.dtype), mode=kind)


# a shape, and nothing else of a tensor


def _filled(w: Writer, value: Any) -> str:
    known = w.out[0]
    one = w.operand(value, known.dtype)
    return w.node("Expand", one, w.sizes(known.shape)) if known.shape else one


@writes("zeros_like", "new_zeros")
def _zeros(w: Writer, *_: Any, **__: Any) -> str:
    return _filled(w, 0)


@writes("ones_like", "new_ones")
def _ones(w: Writer, *_: Any, **__: Any) -> str:
    return _filled(w, 1)


@writes("full_like")
def _full_like(w: Writer, x: Handle, fill_value: Any, **_: Any) -> str:
    return _filled(w, fill_value)


@writes("new_full")
def _new_full(w: Writer, x: Handle, size: Any, fill_value: Any, **_: Any) -> str:
    return _filled(w, fill_value)


@writes("one_hot")
def _one_hot(w: Writer, x: Handle, num_classes: int = -1) -> str:
    if num_classes < 0:
        raise CannotExport("without `num_classes`, which no file can hold.")
    values = w.constant([0, 1], torch.int64)
    return w.node("OneHot", x.name, w.whole(num_classes), values, axis=-1)


@writes("unfold")
def _unfold(w: Writer, x: Handle, *args: Any, **_: Any) -> str:
    """Tensor.unfold(dim, size, step), by gathering."""
    if len(args) != 3 or not all(isinstance(arg, int) for arg in args):
        raise CannotExport("as F.unfold, which cannot be written to an ONNX file.")
    dim, size, step = args
    axis = x.axis(dim)
    length = x.shape[axis]
    if isinstance(length, Size):
        raise CannotExport("over the rows, which cannot be written to an ONNX file.")
    starts = torch.arange(0, length - size + 1, step)
    places = starts[:, None] + torch.arange(size)
    found = w.node("Gather", x.name, w.constant(places), axis=axis)
    order = list(range(x.dims + 1))
    order.append(order.pop(axis + 1))
    return w.node("Transpose", found, perm=order)
