"""Functions that work element by element."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from bayesdrop.export.nodes.graph import CannotExport, Handle, Writer, writes
from bayesdrop.export.program import size_at

__all__: list[str] = []


def _float(w: Writer, x: Handle) -> str:
    """The input of a function whose result is a real number."""
    return w.cast(x, w.out[0].dtype)


def _plain(kind: str, w: Writer, x: Handle, *_: Any) -> str:
    return w.node(kind, _float(w, x))


for _name, _kind in {
    "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "softsign": "Softsign", "sin": "Sin", "cos": "Cos",
    "tan": "Tan", "atan": "Atan", "arctan": "Atan", "asin": "Asin", "acos": "Acos",
    "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "log": "Log", "abs": "Abs", "neg": "Neg", "negative": "Neg",
    "sqrt": "Sqrt", "reciprocal": "Reciprocal", "floor": "Floor", "ceil": "Ceil", "round": "Round",
    "sign": "Sign",
}.items():  # fmt: skip
    writes(_name)(partial(_plain, _kind))


@writes("sinh")
def _sinh(w: Writer, x: Handle) -> str:
    if x.dtype != torch.float64:
        return w.node("Sinh", _float(w, x))
    # onnxruntime has the hyperbolic sine in single precision alone.
    grown = w.node("Exp", x.name)
    difference = w.node("Sub", grown, w.node("Reciprocal", grown))
    return w.node("Mul", difference, w.constant(0.5, torch.float64))


@writes("logical_not", "bitwise_not", "invert")
def _not(w: Writer, x: Handle) -> str:
    if w.out[0].dtype != torch.bool:
        raise CannotExport("on whole numbers, which cannot be written to an ONNX file.")
    return w.node("Not", w.cast(x, torch.bool))


@writes("isnan")
def _isnan(w: Writer, x: Handle) -> str:
    return w.node("IsNaN", x.name)


@writes("isinf")
def _isinf(w: Writer, x: Handle) -> str:
    return w.node("IsInf", x.name)


@writes("isfinite")
def _isfinite(w: Writer, x: Handle) -> str:
    return w.node("Not", w.node("Or", w.node("IsNaN", x.name), w.node("IsInf", x.name)))


@writes("relu6")
def _relu6(w: Writer, x: Handle) -> str:
    return _clipped(w, x.name, 0.0, 6.0, x.dtype)


@writes("hardtanh")
def _hardtanh(w: Writer, x: Handle, min_val: float = -1.0, max_val: float = 1.0, *_: Any) -> str:
    return _clipped(w, x.name, min_val, max_val, x.dtype)


def _clipped(w: Writer, name: str, low: Any, high: Any, dtype: torch.dtype) -> str:
    ends = ["" if end is None else w.operand(end, dtype) for end in (low, high)]
    return w.node("Clip", name, *ends)


@writes("clamp", "clip")
def _clamp(w: Writer, x: Handle, min: Any = None, max: Any = None) -> str:
    name = _float(w, x)
    if isinstance(min, Handle) or isinstance(max, Handle):
        for kind, end in (("Max", min), ("Min", max)):
            name = name if end is None else w.node(kind, name, w.operand(end, w.out[0].dtype))
        return name
    return _clipped(w, name, min, max, w.out[0].dtype)


@writes("clamp_min")
def _clamp_min(w: Writer, x: Handle, min: Any) -> str:
    return w.node("Max", _float(w, x), w.operand(min, w.out[0].dtype))


@writes("clamp_max")
def _clamp_max(w: Writer, x: Handle, max: Any) -> str:
    return w.node("Min", _float(w, x), w.operand(max, w.out[0].dtype))


@writes("silu")
def _silu(w: Writer, x: Handle, *_: Any) -> str:
    return w.node("Mul", x.name, w.node("Sigmoid", x.name))


@writes("mish")
def _mish(w: Writer, x: Handle, *_: Any) -> str:
    return w.node("Mul", x.name, w.node("Tanh", w.node("Softplus", x.name)))


@writes("hardsigmoid")
def _hardsigmoid(w: Writer, x: Handle, *_: Any) -> str:
    return w.node("HardSigmoid", x.name, alpha=1 / 6, beta=0.5)


@writes("elu")
def _elu(w: Writer, x: Handle, alpha: float = 1.0, *_: Any) -> str:
    return w.node("Elu", x.name, alpha=float(alpha))


@writes("celu")
def _celu(w: Writer, x: Handle, alpha: float = 1.0, *_: Any) -> str:
    return w.node("Celu", x.name, alpha=float(alpha))


@writes("selu")
def _selu(w: Writer, x: Handle, *_: Any) -> str:
    return w.node("Selu", x.name)


@writes("leaky_relu")
def _leaky_relu(w: Writer, x: Handle, negative_slope: float = 0.01, *_: Any) -> str:
    return w.node("LeakyRelu", x.name, alpha=float(negative_slope))


@writes("prelu")
def _prelu(w: Writer, x: Handle, weight: Handle) -> str:
    slope = weight.name
    if x.dims > 2 and weight.shape != (1,):
        slope = w.reshaped(slope, (weight.shape[0], *[1] * (x.dims - 2)))
    return w.node("PRelu", x.name, slope)


@writes("threshold", "_threshold")
def _threshold(w: Writer, x: Handle, threshold: float, value: float, *_: Any) -> str:
    above = w.node("Greater", x.name, w.operand(threshold, x.dtype))
    return w.node("Where", above, x.name, w.operand(value, x.dtype))


@writes("gelu")
def _gelu(w: Writer, x: Handle, approximate: str = "none") -> str:
    def times(name: str, number: float) -> str:
        return w.node("Mul", name, w.constant(number, x.dtype))

    if approximate == "tanh":
        cube = w.node("Mul", w.node("Mul", x.name, x.name), x.name)
        inner = times(w.node("Add", x.name, times(cube, 0.044715)), math.sqrt(2 / math.pi))
        bend = w.node("Tanh", inner)
    else:
        bend = w.node("Erf", times(x.name, 1 / math.sqrt(2)))
    return times(w.node("Mul", x.name, w.node("Add", bend, w.constant(1.0, x.dtype))), 0.5)


@writes("softplus")
def _softplus(w: Writer, x: Handle, beta: float = 1.0, threshold: float = 20.0) -> str:
    scaled = w.node("Mul", x.name, w.constant(beta, x.dtype))
    soft = w.node("Div", w.node("Softplus", scaled), w.constant(beta, x.dtype))
    return w.node("Where", w.node("Greater", scaled, w.constant(threshold, x.dtype)), x.name, soft)


@writes("logsigmoid", "log_sigmoid")
def _logsigmoid(w: Writer, x: Handle) -> str:
    return _log_sigmoid_of(w, x.name, x.dtype)


def _log_sigmoid_of(w: Writer, name: str, dtype: torch.dtype) -> str:
    """min(x, 0) - log(1 + exp(-|x|)), which neither overflows nor rounds to 0."""
    small = w.node("Exp", w.node("Neg", w.node("Abs", name)))
    return w.node("Sub", w.node("Min", name, w.constant(0.0, dtype)), _log1p_of(w, small, dtype))


def _log1p_of(w: Writer, name: str, dtype: torch.dtype) -> str:
    """log(1 + x): x log(u) / (u - 1) with u = 1 + x rounded, which is exact to rounding (Kahan)."""
    one = w.constant(1.0, dtype)
    above = w.node("Add", name, one)
    gap = w.node("Sub", above, one)
    tiny = w.node("Equal", gap, w.constant(0.0, dtype))
    safe = w.node("Where", tiny, one, gap)
    return w.node("Where", tiny, name, w.node("Div", w.node("Mul", name, w.node("Log", above)), safe))


@writes("log1p")
def _log1p(w: Writer, x: Handle) -> str:
    return _log1p_of(w, _float(w, x), w.out[0].dtype)


@writes("expm1")
def _expm1(w: Writer, x: Handle) -> str:
    """exp(x) - 1 = 2 t / (1 - t) with t = tanh(x / 2), which keeps the digits of a small x."""
    dtype = w.out[0].dtype
    half = w.node("Tanh", w.node("Mul", _float(w, x), w.constant(0.5, dtype)))
    above = w.node("Mul", half, w.constant(2.0, dtype))
    return w.node("Div", above, w.node("Sub", w.constant(1.0, dtype), half))


@writes("log2")
def _log2(w: Writer, x: Handle) -> str:
    return w.node("Div", w.node("Log", x.name), w.constant(math.log(2), x.dtype))


@writes("tanhshrink")
def _tanhshrink(w: Writer, x: Handle) -> str:
    return w.node("Sub", x.name, w.node("Tanh", x.name))


@writes("hardshrink")
def _hardshrink(w: Writer, x: Handle, lambd: float = 0.5) -> str:
    kept = w.node("Greater", w.node("Abs", x.name), w.constant(lambd, x.dtype))
    return w.node("Where", kept, x.name, w.constant(0.0, x.dtype))


@writes("softshrink")
def _softshrink(w: Writer, x: Handle, lambd: float = 0.5) -> str:
    return w.node("Shrink", x.name, lambd=float(lambd), bias=float(lambd))


@writes("square")
def _square(w: Writer, x: Handle) -> str:
    return w.node("Mul", x.name, x.name)


@writes("rsqrt")
def _rsqrt(w: Writer, x: Handle) -> str:
    return w.node("Reciprocal", w.node("Sqrt", _float(w, x)))


@writes("hardswish")
def _hardswish(w: Writer, x: Handle, *_: Any) -> str:
    return w.node("HardSwish", x.name)


# two tensors, or a tensor and a number


def _pair(w: Writer, a: Any, b: Any, dtype: torch.dtype | None = None) -> tuple[str, str]:
    """Both operands in one dtype: the given one, or that of the result."""
    dtype = dtype or w.out[0].dtype
    return w.operand(a, dtype), w.operand(b, dtype)


def _common(a: Any, b: Any) -> torch.dtype:
    """The dtype in which torch compares two values."""

    def example(value: Any) -> Any:
        return value.example(2) if isinstance(value, Handle) else size_at(value, 2)

    return torch.result_type(example(a), example(b))


@writes("add", "radd")
def _add(w: Writer, a: Any, other: Any, *, alpha: float = 1) -> str:
    first, second = _pair(w, a, other)
    if alpha != 1:
        second = w.node("Mul", second, w.constant(alpha, w.out[0].dtype))
    if w.out[0].dtype == torch.bool:
        return w.node("Or", first, second)
    return w.node("Add", first, second)


@writes("sub", "subtract")
def _sub(w: Writer, a: Any, other: Any, *, alpha: float = 1) -> str:
    first, second = _pair(w, a, other)
    if alpha != 1:
        second = w.node("Mul", second, w.constant(alpha, w.out[0].dtype))
    return w.node("Sub", first, second)


@writes("rsub")
def _rsub(w: Writer, a: Any, other: Any, *, alpha: float = 1) -> str:
    second, first = _pair(w, a, other)
    if alpha != 1:
        second = w.node("Mul", second, w.constant(alpha, w.out[0].dtype))
    return w.node("Sub", first, second)


@writes("mul", "multiply", "rmul")
def _mul(w: Writer, a: Any, other: Any) -> str:
    first, second = _pair(w, a, other)
    return w.node("And" if w.out[0].dtype == torch.bool else "Mul", first, second)


@writes("div", "divide", "true_divide", "truediv")
def _div(w: Writer, a: Any, other: Any, *, rounding_mode: str | None = None) -> str:
    first, second = _pair(w, a, other)
    if rounding_mode is not None:
        return _floor_div(w, a, other) if rounding_mode == "floor" else _whole_div(w, first, second)
    return w.node("Div", first, second)


def _whole_div(w: Writer, first: str, second: str) -> str:
    if w.out[0].dtype.is_floating_point:
        raise CannotExport("with rounding_mode='trunc', which cannot be written to an ONNX file.")
    return w.node("Div", first, second)


@writes("rdiv", "rtruediv")
def _rdiv(w: Writer, a: Any, other: Any) -> str:
    second, first = _pair(w, a, other)
    return w.node("Div", first, second)


@writes("floor_divide", "floordiv")
def _floor_div(w: Writer, a: Any, other: Any) -> str:
    first, second = _pair(w, a, other)
    if w.out[0].dtype.is_floating_point:
        return w.node("Floor", w.node("Div", first, second))
    # Whole numbers of ONNX are cut towards 0.
    rest = w.node("Mod", first, second)
    return w.node("Div", w.node("Sub", first, rest), second)


@writes("remainder", "mod")
def _remainder(w: Writer, a: Any, other: Any) -> str:
    first, second = _pair(w, a, other)
    if w.out[0].dtype.is_floating_point:
        whole = w.node("Floor", w.node("Div", first, second))
        return w.node("Sub", first, w.node("Mul", whole, second))
    return w.node("Mod", first, second)


@writes("pow")
def _pow(w: Writer, a: Any, exponent: Any) -> str:
    if exponent == 2 and isinstance(a, Handle) and a.dtype == w.out[0].dtype:
        return w.node("Mul", a.name, a.name)
    return w.node("Pow", *_pair(w, a, exponent))


@writes("rpow")
def _rpow(w: Writer, a: Any, base: Any) -> str:
    exponent, first = _pair(w, a, base)
    return w.node("Pow", first, exponent)


@writes("maximum")
def _maximum(w: Writer, a: Any, other: Any) -> str:
    return w.node("Max", *_pair(w, a, other))


@writes("minimum")
def _minimum(w: Writer, a: Any, other: Any) -> str:
    return w.node("Min", *_pair(w, a, other))


def _compare(kind: str, w: Writer, a: Any, other: Any) -> str:
    dtype = _common(a, other)
    if dtype == torch.bool and kind not in ("Equal",):
        dtype = torch.int32
    return w.node(kind, *_pair(w, a, other, dtype))


for _name, _kind in {
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
    "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual",
}.items():  # fmt: skip
    writes(_name)(partial(_compare, _kind))


@writes("ne", "not_equal")
def _ne(w: Writer, a: Any, other: Any) -> str:
    return w.node("Not", _compare("Equal", w, a, other))


def _logical(kind: str, w: Writer, a: Any, other: Any) -> str:
    if w.out[0].dtype != torch.bool:
        raise CannotExport("on whole numbers, which cannot be written to an ONNX file.")
    return w.node(kind, *_pair(w, a, other, torch.bool))


for _name, _kind in {
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "and": "And", "or": "Or", "xor": "Xor",
    "bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor", "rand": "And", "ror": "Or",
}.items():  # fmt: skip
    writes(_name)(partial(_logical, _kind))


@writes("where")
def _where(w: Writer, condition: Handle, x: Any, other: Any) -> str:
    return w.node("Where", w.cast(condition, torch.bool), *_pair(w, x, other))


@writes("masked_fill")
def _masked_fill(w: Writer, x: Handle, mask: Handle, value: Any) -> str:
    return w.node("Where", w.cast(mask, torch.bool), w.operand(value, x.dtype), x.name)


@writes("xlogy")
def _xlogy(w: Writer, a: Any, other: Any) -> str:
    """a log(b), and 0 where a is 0."""
    dtype = w.out[0].dtype
    first, second = _pair(w, a, other)
    zero, one = w.constant(0.0, dtype), w.constant(1.0, dtype)
    none = w.node("Equal", first, zero)
    return w.node("Mul", first, w.node("Log", w.node("Where", none, one, second)))


@writes("lerp")
def _lerp(w: Writer, x: Handle, end: Handle, weight: Any) -> str:
    share = w.operand(weight, x.dtype)
    return w.node("Add", x.name, w.node("Mul", share, w.node("Sub", end.name, x.name)))


@writes("addcmul")
def _addcmul(w: Writer, x: Handle, one: Handle, two: Handle, *, value: float = 1) -> str:
    product = w.node("Mul", one.name, two.name)
    return w.node("Add", x.name, w.node("Mul", product, w.constant(value, x.dtype)))


@writes("nan_to_num")
def _nan_to_num(
    w: Writer, x: Handle, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> str:
    ends = torch.finfo(x.dtype)
    high, low = ends.max if posinf is None else posinf, ends.min if neginf is None else neginf
    name = w.node("Where", w.node("IsNaN", x.name), w.constant(nan or 0.0, x.dtype), x.name)
    name = w.node("Where", w.node("IsInf", name, detect_negative=0), w.constant(high, x.dtype), name)
    return w.node("Where", w.node("IsInf", name, detect_positive=0), w.constant(low, x.dtype), name)
