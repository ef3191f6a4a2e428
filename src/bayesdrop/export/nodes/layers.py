"""Normalisation, pooling and interpolation."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from bayesdrop.export.nodes.graph import CannotExport, Handle, Writer, writes
from bayesdrop.export.program import Dims, Size

__all__: list[str] = []


# normalisation


@writes("batch_norm")
def _batch_norm(w: Writer, x: Handle, *args: Any, **named: Any) -> str:
    """F.batch_norm, or torch.batch_norm, whose statistics come after its weights."""
    plain = len(args) >= 8
    names = (
        ("weight", "bias", "running_mean", "running_var", "training", "momentum", "eps", "cudnn_enabled")
        if plain
        else ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    )
    given = {"weight": None, "bias": None, "training": False, "eps": 1e-5} | named
    given |= dict(zip(names, args, strict=False))
    mean, variance = given.get("running_mean"), given.get("running_var")
    if given["training"] or mean is None or variance is None or mean.constant is None:
        raise CannotExport("by the statistics of a batch, which is no function of a row.")
    ones = torch.ones_like(mean.constant)
    weight = given["weight"].name if given["weight"] is not None else w.constant(ones)
    bias = given["bias"].name if given["bias"] is not None else w.constant(torch.zeros_like(ones))
    return w.node(
        "BatchNormalization", x.name, weight, bias, mean.name, variance.name, epsilon=float(given["eps"])
    )


@writes("layer_norm")
def _layer_norm(
    w: Writer,
    x: Handle,
    normalized_shape: Any,
    weight: Handle | None = None,
    bias: Handle | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> str:
    size = [int(part) for part in normalized_shape]
    scale = w.constant(torch.ones(size, dtype=x.dtype)) if weight is None else weight.name
    inputs = [x.name, scale] + ([] if bias is None else [bias.name])
    return w.node("LayerNormalization", *inputs, axis=x.dims - len(size), epsilon=float(eps))


@writes("rms_norm")
def _rms_norm(
    w: Writer, x: Handle, normalized_shape: Any, weight: Handle | None = None, eps: float | None = None
) -> str:
    axes = list(range(x.dims - len(normalized_shape), x.dims))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    square = w.node("ReduceMean", w.node("Mul", x.name, x.name), w.whole(*axes), keepdims=1)
    name = w.node("Div", x.name, w.node("Sqrt", w.node("Add", square, w.constant(eps, x.dtype))))
    return name if weight is None else w.node("Mul", name, weight.name)


@writes("group_norm")
def _group_norm(
    w: Writer,
    x: Handle,
    num_groups: int,
    weight: Handle | None = None,
    bias: Handle | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> str:
    """Groups as channels of an instance norm, then weights and biases of the channels."""
    ones = torch.ones(num_groups, dtype=x.dtype)
    grouped = w.node("Reshape", x.name, w.whole(0, num_groups, -1))
    even = w.node(
        "InstanceNormalization",
        grouped,
        w.constant(ones),
        w.constant(torch.zeros_like(ones)),
        epsilon=float(eps),
    )
    return _scaled(w, w.reshaped(even, x.shape), x, weight, bias)


@writes("instance_norm")
def _instance_norm(w: Writer, x: Handle, *args: Any, **named: Any) -> str:
    names = ("running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps")
    given = {"weight": None, "bias": None, "use_input_stats": True, "eps": 1e-5, "running_mean": None}
    given |= dict(zip(names, args, strict=False)) | named
    if given["running_mean"] is not None and not given["use_input_stats"]:
        raise CannotExport("by running statistics, which cannot be written to an ONNX file.")
    channels = x.shape[1]
    assert isinstance(channels, int)
    ones = torch.ones(channels, dtype=x.dtype)
    eps = float(given["eps"])  # type: ignore[arg-type]
    even = w.node(
        "InstanceNormalization", x.name, w.constant(ones), w.constant(torch.zeros_like(ones)), epsilon=eps
    )
    return _scaled(w, even, x, given["weight"], given["bias"])


def _scaled(w: Writer, name: str, x: Handle, weight: Any, bias: Any) -> str:
    """x * weight + bias, one of each for a channel."""
    shape = (x.shape[1], *[1] * (x.dims - 2))
    if weight is not None:
        name = w.node("Mul", name, w.reshaped(weight.name, shape))
    return name if bias is None else w.node("Add", name, w.reshaped(bias.name, shape))


# pooling


def _each(value: Any, dims: int) -> list[int]:
    values = [value] * dims if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 and dims > 1 else values


def _with_rows(w: Writer, x: Handle, dims: int) -> str:
    return x.name if x.dims == dims + 2 else w.reshaped(x.name, (1, *x.shape))


def _end(w: Writer, name: str, x: Handle, dims: int) -> str:
    return name if x.dims == dims + 2 else w.reshaped(name, w.out[0].shape)


def _max_pool(
    dims: int,
    w: Writer,
    x: Handle,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> str:
    if return_indices:
        raise CannotExport("with the places of the largest, which cannot be written to an ONNX file.")
    kernel = _each(kernel_size, dims)
    made = w.node(
        "MaxPool",
        _with_rows(w, x, dims),
        kernel_shape=kernel,
        strides=kernel if not stride else _each(stride, dims),
        pads=_each(padding, dims) * 2,
        dilations=_each(dilation, dims),
        ceil_mode=int(ceil_mode),
    )
    return _end(w, made, x, dims)


def _avg_pool(
    dims: int,
    w: Writer,
    x: Handle,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> str:
    if divisor_override is not None or (ceil_mode and count_include_pad and padding not in (0, [0], (0,))):
        raise CannotExport("with a divisor of its own, which cannot be written to an ONNX file.")
    kernel = _each(kernel_size, dims)
    made = w.node(
        "AveragePool",
        _with_rows(w, x, dims),
        kernel_shape=kernel,
        strides=kernel if not stride else _each(stride, dims),
        pads=_each(padding, dims) * 2,
        ceil_mode=int(ceil_mode),
        count_include_pad=int(count_include_pad),
    )
    return _end(w, made, x, dims)


def _adaptive(
    kind: str, dims: int, w: Writer, x: Handle, output_size: Any, return_indices: bool = False
) -> str:
    if return_indices:
        raise CannotExport("with the places of the largest, which cannot be written to an ONNX file.")
    given, wanted = x.shape[-dims:], w.out[0].shape[-dims:]
    sizes = []
    for old, new in zip(given, wanted, strict=True):
        if isinstance(old, Size) or isinstance(new, Size) or old % new:
            raise CannotExport(
                f"from {old} to {new} positions: only equal windows can be written to an ONNX file."
            )
        sizes.append(old // new)
    made = w.node(kind, _with_rows(w, x, dims), kernel_shape=sizes, strides=sizes)
    return _end(w, made, x, dims)


for _dims in (1, 2, 3):
    for _stem in ("max_pool", "_max_pool"):
        writes(f"{_stem}{_dims}d")(partial(_max_pool, _dims))
    writes(f"avg_pool{_dims}d")(partial(_avg_pool, _dims))
    writes(f"adaptive_avg_pool{_dims}d")(partial(_adaptive, "AveragePool", _dims))
    for _stem in ("adaptive_max_pool", "_adaptive_max_pool"):
        writes(f"{_stem}{_dims}d")(partial(_adaptive, "MaxPool", _dims))


# interpolation


@writes("interpolate", "upsample")
def _interpolate(
    w: Writer,
    x: Handle,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> str:
    kinds = {
        "nearest": "nearest",
        "bilinear": "linear",
        "linear": "linear",
        "trilinear": "linear",
        "bicubic": "cubic",
    }
    if mode not in kinds or antialias:
        raise CannotExport(f"in mode {mode!r}, which cannot be written to an ONNX file.")
    target: Dims = w.out[0].shape
    if mode == "nearest":
        where = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        where = {"coordinate_transformation_mode": "align_corners" if align_corners else "pytorch_half_pixel"}
    if mode == "bicubic":
        where["cubic_coeff_a"] = -0.75  # type: ignore[assignment]
    return w.node("Resize", x.name, "", "", w.sizes(target), mode=kinds[mode], **where)
