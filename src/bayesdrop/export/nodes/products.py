"""Linear maps, convolutions, products of matrices, attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from bayesdrop.export.nodes.graph import CannotExport, Handle, Writer, writes

__all__ = ["turned"]


def turned(w: Writer, weight: Handle) -> str:
    """The name of the transposed matrix; a constant is turned once, outside the loop over draws."""
    if weight.constant is None:
        return w.node("Transpose", weight.name, perm=[1, 0])
    root = w.root
    if weight.name not in root.turned:
        root.turned[weight.name] = root.node("Transpose", weight.name, perm=[1, 0])
    return root.turned[weight.name]


@writes("linear")
def _linear(w: Writer, x: Handle, weight: Handle, bias: Handle | None = None) -> str:
    if weight.dims != 2:
        raise CannotExport("with a weight that is no matrix, which cannot be written to an ONNX file.")
    if x.dims == 2 and bias is not None and bias.dims == 1:
        return w.node("Gemm", x.name, weight.name, bias.name, transB=1)
    product = w.node("MatMul", x.name, turned(w, weight))
    return product if bias is None else w.node("Add", product, bias.name)


@writes("matmul", "mm", "bmm", "mv", "dot")
def _matmul(w: Writer, a: Handle, other: Handle, **_: Any) -> str:
    return w.node("MatMul", a.name, other.name)


@writes("rmatmul")
def _rmatmul(w: Writer, a: Handle, other: Handle) -> str:
    return w.node("MatMul", other.name, a.name)


@writes("addmm", "baddbmm", "addbmm", "addmv")
def _addmm(w: Writer, x: Handle, one: Handle, two: Handle, *, beta: float = 1, alpha: float = 1) -> str:
    product = w.node("MatMul", one.name, two.name)
    if alpha != 1:
        product = w.node("Mul", product, w.constant(alpha, x.dtype))
    if beta == 0:
        return product
    added = x.name if beta == 1 else w.node("Mul", x.name, w.constant(beta, x.dtype))
    return w.node("Add", added, product)


@writes("einsum")
def _einsum(w: Writer, equation: str, *operands: Any) -> str:
    parts = operands[0] if len(operands) == 1 and isinstance(operands[0], tuple | list) else operands
    if not isinstance(equation, str):
        raise CannotExport("with lists of axes, which cannot be written to an ONNX file.")
    return w.node("Einsum", *(part.name for part in parts), equation=equation.replace(" ", ""))


# convolutions


def _each(value: Any, dims: int) -> list[int]:
    values = [value] * dims if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 and dims > 1 else values


def _convolution(
    w: Writer,
    x: Handle,
    weight: Handle,
    bias: Handle | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> str:
    dims = weight.dims - 2
    name, shape = x.name, x.shape
    if x.dims == dims + 1:
        name, shape = w.reshaped(name, (1, *shape)), (1, *shape)
    strides, dilations = _each(stride, dims), _each(dilation, dims)
    kernel = [int(size) for size in weight.shape[2:]]  # type: ignore[arg-type]
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    else:
        pads = ([0] * dims if padding == "valid" else _each(padding, dims)) * 2
    inputs = [name, weight.name] + ([] if bias is None else [bias.name])
    made = w.node(
        "Conv", *inputs, kernel_shape=kernel, strides=strides, pads=pads, dilations=dilations, group=groups
    )
    return w.reshaped(made, w.out[0].shape) if x.dims == dims + 1 else made


writes("conv1d", "conv2d", "conv3d")(_convolution)


@writes("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _transposed(
    w: Writer,
    x: Handle,
    weight: Handle,
    bias: Handle | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> str:
    dims = weight.dims - 2
    if x.dims != dims + 2:
        raise CannotExport("on a single picture, which cannot be written to an ONNX file.")
    inputs = [x.name, weight.name] + ([] if bias is None else [bias.name])
    return w.node(
        "ConvTranspose",
        *inputs,
        kernel_shape=[int(size) for size in weight.shape[2:]],  # type: ignore[arg-type]
        strides=_each(stride, dims),
        pads=_each(padding, dims) * 2,
        output_padding=_each(output_padding, dims),
        dilations=_each(dilation, dims),
        group=groups,
    )


# attention


@writes("scaled_dot_product_attention")
def _attention(
    w: Writer,
    query: Handle,
    key: Handle,
    value: Handle,
    attn_mask: Handle | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> str:
    """softmax(q k' / sqrt(E) + mask) v, without dropout: that is seen, and held, before."""
    if dropout_p:
        raise CannotExport("with dropout that was not held, which no file can repeat.")
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        raise CannotExport("with groups of queries, which cannot be written to an ONNX file.")
    dtype, width = query.dtype, query.shape[-1]
    assert isinstance(width, int)
    by = 1 / math.sqrt(width) if scale is None else scale
    order = [*range(key.dims - 2), key.dims - 1, key.dims - 2]
    keys = w.node("Transpose", key.name, perm=order)
    scores = w.node("MatMul", w.node("Mul", query.name, w.constant(by, dtype)), keys)
    lowest = w.constant(-math.inf, dtype)
    if is_causal:
        size = (query.shape[-2], key.shape[-2])
        if not all(isinstance(part, int) for part in size):
            raise CannotExport("over the rows, which cannot be written to an ONNX file.")
        seen = torch.ones(size, dtype=torch.bool).tril()  # type: ignore[arg-type]
        scores = w.node("Where", w.constant(seen), scores, lowest)
    hidden = None
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = w.node("Where", attn_mask.name, scores, lowest)
        else:
            scores = w.node("Add", scores, w.cast(attn_mask, dtype))
        # A query that sees no key attends to nothing.
        most = w.node("ReduceMax", scores, w.whole(-1), keepdims=1)
        hidden = w.node("Equal", most, lowest)
        scores = w.node("Where", hidden, w.constant(0.0, dtype), scores)
    weights = w.node("Softmax", scores, axis=-1)
    if hidden is not None:
        weights = w.node("Where", hidden, w.constant(0.0, dtype), weights)
    return w.node("MatMul", weights, value.name)
