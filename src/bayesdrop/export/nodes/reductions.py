"""Sums, means, largest values and softmax."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from bayesdrop.export.nodes.graph import CannotExport, Handle, Writer, writes
from bayesdrop.export.program import Size

__all__: list[str] = []


def _axes(x: Handle, dim: Any) -> list[int]:
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(x.dims))
    return [x.axis(one) for one in ([dim] if isinstance(dim, int) else dim)]


def _reduced(kind: str, w: Writer, x: Handle, dim: Any = None, keepdim: bool = False, **_: Any) -> str:
    name = w.cast(x, w.out[0].dtype)
    return w.node(kind, name, w.whole(*_axes(x, dim)), keepdims=int(keepdim))


for _name, _kind in {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin",
                     "prod": "ReduceProd"}.items():  # fmt: skip
    writes(_name)(partial(_reduced, _kind))


def _extreme(
    kind: str, at: str, pair: str, w: Writer, x: Handle, dim: Any = None, keepdim: bool = False
) -> Any:
    if isinstance(dim, Handle):
        return w.node(pair, *(w.cast(part, w.out[0].dtype) for part in (x, dim)))
    if dim is None:
        return w.node(kind, x.name, w.whole(*range(x.dims)), keepdims=0)
    axis = x.axis(dim)
    largest = w.node(kind, x.name, w.whole(axis), keepdims=int(keepdim))
    return [largest, w.node(at, x.name, axis=axis, keepdims=int(keepdim))]


writes("max")(partial(_extreme, "ReduceMax", "ArgMax", "Max"))
writes("min")(partial(_extreme, "ReduceMin", "ArgMin", "Min"))


def _place(kind: str, w: Writer, x: Handle, dim: int | None = None, keepdim: bool = False) -> str:
    if dim is None:
        flat = w.node("Reshape", x.name, w.whole(-1))
        return w.node(kind, flat, axis=0, keepdims=0)
    return w.node(kind, x.name, axis=x.axis(dim), keepdims=int(keepdim))


writes("argmax")(partial(_place, "ArgMax"))
writes("argmin")(partial(_place, "ArgMin"))


def _true(kind: str, w: Writer, x: Handle, dim: Any = None, keepdim: bool = False) -> str:
    numbers = w.node("Cast", w.cast(x, torch.bool), to=6)
    found = w.node(kind, numbers, w.whole(*_axes(x, dim)), keepdims=int(keepdim))
    return w.node("Cast", found, to=9)


writes("any")(partial(_true, "ReduceMax"))
writes("all")(partial(_true, "ReduceMin"))


def _spread(root: bool, w: Writer, x: Handle, dim: Any = None, *args: Any, **options: Any) -> str:
    """Variance or standard deviation."""
    unbiased = options.get("unbiased", options.get("correction", args[0] if args else True))
    keepdim = options.get("keepdim", args[1] if len(args) > 1 else False)
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    axes = _axes(x, dim)
    mean = w.node("ReduceMean", x.name, w.whole(*axes), keepdims=1)
    away = w.node("Sub", x.name, mean)
    found = w.node("ReduceMean", w.node("Mul", away, away), w.whole(*axes), keepdims=int(bool(keepdim)))
    less = 1 if unbiased is None else int(unbiased)
    if less:
        sizes = [x.shape[axis] for axis in axes]
        if any(isinstance(size, Size) for size in sizes):
            raise CannotExport("over the rows, which cannot be written to an ONNX file.")
        count = math.prod(sizes)  # type: ignore[arg-type]
        found = w.node("Mul", found, w.constant(count / (count - less), x.dtype))
    return w.node("Sqrt", found) if root else found


writes("var")(partial(_spread, False))
writes("std")(partial(_spread, True))


@writes("logsumexp")
def _logsumexp(w: Writer, x: Handle, dim: Any, keepdim: bool = False) -> str:
    return w.node("ReduceLogSumExp", x.name, w.whole(*_axes(x, dim)), keepdims=int(keepdim))


@writes("norm", "vector_norm", "linalg_vector_norm")
def _norm(w: Writer, x: Handle, p: Any = 2, dim: Any = None, keepdim: bool = False, **options: Any) -> str:
    kind = {1: "ReduceL1", 2: "ReduceL2", "fro": "ReduceL2", None: "ReduceL2"}.get(options.get("ord", p))
    if kind is None:
        raise CannotExport(f"of order {p}, which cannot be written to an ONNX file.")
    return w.node(kind, x.name, w.whole(*_axes(x, dim)), keepdims=int(keepdim))


@writes("normalize")
def _normalize(w: Writer, x: Handle, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> str:
    length = _norm(w, x, p, dim, True)
    return w.node("Div", x.name, w.node("Max", length, w.constant(eps, x.dtype)))


@writes("cumsum")
def _cumsum(w: Writer, x: Handle, dim: int, **_: Any) -> str:
    return w.node("CumSum", w.cast(x, w.out[0].dtype), w.constant(x.axis(dim), torch.int64))


@writes("softmax")
def _softmax(w: Writer, x: Handle, dim: int | None = None, *_: Any, **__: Any) -> str:
    return w.node("Softmax", w.cast(x, w.out[0].dtype), axis=_softmax_axis(x, dim))


@writes("log_softmax")
def _log_softmax(w: Writer, x: Handle, dim: int | None = None, *_: Any, **__: Any) -> str:
    return w.node("LogSoftmax", w.cast(x, w.out[0].dtype), axis=_softmax_axis(x, dim))


@writes("softmin")
def _softmin(w: Writer, x: Handle, dim: int | None = None, *_: Any, **__: Any) -> str:
    return w.node("Softmax", w.node("Neg", x.name), axis=_softmax_axis(x, dim))


def _softmax_axis(x: Handle, dim: int | None) -> int:
    if dim is None:
        dim = 0 if x.dims in (0, 1, 3) else 1
    return x.axis(dim)


@writes("glu")
def _glu(w: Writer, x: Handle, dim: int = -1) -> str:
    axis = x.axis(dim)
    half = w.out[0].shape[axis]
    first, second = w.node_many("Split", [x.name, w.sizes([half, half])], 2, axis=axis)
    return w.node("Mul", first, w.node("Sigmoid", second))


@writes("topk")
def _topk(
    w: Writer, x: Handle, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[str]:
    return w.node_many(
        "TopK", [x.name, w.whole(k)], 2, axis=x.axis(dim), largest=int(largest), sorted=int(sorted)
    )
