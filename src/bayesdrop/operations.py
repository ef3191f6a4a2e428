"""A table of what torch's functions do, one row each, read by all code that looks at a model's calls.

Nothing is assumed of a function that has no row: it is run, and run again, as it was called.
`tests/test_operations.py` runs every function and compares it with its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

__all__ = [
    "CONVOLUTIONS",
    "OPERATORS",
    "TABLE",
    "Operation",
    "canonical",
    "keeps_rows",
    "name_of",
    "names",
    "writes_in_place",
    "written_by",
]

OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


@dataclass(frozen=True, slots=True)
class Operation:
    """A function of torch, by its name; `add`, `add_`, `__add__` and `__iadd__` are one.

    Attributes:
        name: `func.__name__`.
        elementwise: whether each element of the result depends on that element of its one tensor alone, the
            other arguments being numbers.
        smooth: of an element-wise function, whether it has no jumps, and kinks of its slope at most.
        inplace: which of its positional arguments is `inplace`; None if it has none.
        twin: whether `x.name_(...)` writes what `name(x, ...)` gives.
        moves: of a function whose result has the elements of its arguments, at other places: "view" where it
            may share their memory, "copy" where it does not, "repeat" where elements may come twice.
        like: whether it uses only the shape, dtype and device of its tensor.
        product: of a function that sums products: "layer" of (input, weight, bias), "matrix" of two factors.
        arithmetic: whether it is a sum, product or quotient of two tensors, element by element.
        random: of a function that draws numbers: "generator" if it takes a generator, "dropout" if it takes
            none but its result can be computed from given noise, "inside" if it draws them out of reach.
        body: whether it is written in Python, so that the random functions it calls can be seen.
        writes: of a function that an argument makes write to its inputs: place and name of that argument.
        reads: "value" if it turns elements into a Python value, "shape" if it turns anything else into one.
        escapes: whether it hands the memory of a tensor to code outside torch.
        rows: of a function whose result has on axis 0 what its first argument has there, when that is so:
            "shape" if the two have one shape; "windows" if the argument has an axis of rows, one of channels,
            and as many more as the name says; "units" if the result has a further axis; "order" if the axis
            has one length in both, as elements stay in their order; "others" if other axes are reduced, or
            tensors are joined along another axis. Element-wise functions and those that use a shape alone
            need none: they keep it.
    """

    name: str
    elementwise: bool = False
    smooth: bool = False
    inplace: int | None = None
    twin: bool = False
    moves: Literal["view", "copy", "repeat"] | None = None
    like: bool = False
    product: Literal["layer", "matrix"] | None = None
    arithmetic: bool = False
    random: Literal["generator", "dropout", "inside"] | None = None
    body: bool = False
    writes: tuple[int, str] | None = None
    reads: Literal["value", "shape"] | None = None
    escapes: bool = False
    rows: Literal["shape", "windows", "units", "order", "others"] | None = None


def _activation(
    name: str, inplace: int | None = None, *, smooth: bool = True, twin: bool = False
) -> Operation:
    return Operation(name, elementwise=True, smooth=smooth, inplace=inplace, twin=twin)


def _rows(text: str, **facts: Any) -> list[Operation]:
    return [Operation(name, **facts) for name in text.split()]


_ROWS = [
    # element by element
    _activation("relu", 1, twin=True),
    _activation("relu6", 1),
    _activation("selu", 1),
    _activation("silu", 1),
    _activation("mish", 1),
    _activation("hardswish", 1),
    _activation("hardsigmoid", 1),
    _activation("elu", 2),
    _activation("celu", 2),
    _activation("leaky_relu", 2),
    _activation("hardtanh", 3),
    _activation("threshold", smooth=False),
    _activation("_threshold", 3, smooth=False),  # the name that F.threshold has
    _activation("tanh", twin=True),
    _activation("sigmoid", twin=True),
    _activation("gelu"),
    _activation("softplus"),
    _activation("softsign"),
    _activation("logsigmoid"),
    _activation("log_sigmoid"),
    _activation("tanhshrink"),
    _activation("hardshrink", smooth=False),
    _activation("softshrink"),
    _activation("sin"),
    _activation("cos"),
    _activation("atan"),
    _activation("erf"),
    _activation("exp", twin=True),
    _activation("square", twin=True),
    _activation("abs", twin=True),
    _activation("neg", twin=True),
    _activation("negative"),
    _activation("sqrt", smooth=False, twin=True),
    _activation("reciprocal", smooth=False),
    _activation("clamp", twin=True),
    _activation("clip"),
    _activation("clamp_min"),
    _activation("clamp_max"),
    _activation("pow", smooth=False),
    # sums and products of two tensors
    *_rows("add sub mul div", arithmetic=True, twin=True),
    *_rows("radd subtract rsub multiply rmul divide true_divide truediv rdiv rtruediv", arithmetic=True),
    # sums of products
    Operation("linear", product="layer", rows="units"),
    *_rows("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d", product="layer",
           rows="windows"),
    *_rows("matmul mm bmm mv addmm baddbmm einsum", product="matrix"),
    # the same elements elsewhere
    *_rows("view view_as reshape reshape_as flatten unflatten ravel unsqueeze contiguous",
           moves="view", rows="order"),
    *_rows("permute transpose t T mT swapaxes swapdims movedim moveaxis expand expand_as broadcast_to "
           "squeeze getitem select narrow chunk split tensor_split unbind diagonal to float double half "
           "bfloat16 detach data alias", moves="view"),
    Operation("type", moves="view", reads="shape"),
    *_rows("clone repeat repeat_interleave tile roll flip rot90 pixel_shuffle pixel_unshuffle "
           "channel_shuffle tril triu", moves="copy"),
    *_rows("index_select gather take_along_dim unfold", moves="repeat"),
    # shape and kind alone
    *_rows("ones_like zeros_like full_like new_zeros new_ones new_full", like=True),
    # random numbers
    *_rows("rand randn randint randperm rand_like randn_like randint_like bernoulli bernoulli_ normal "
           "normal_ uniform_ random_ exponential_ cauchy_ geometric_ log_normal_ multinomial poisson "
           "binomial _standard_gamma _sample_dirichlet", random="generator"),
    Operation("rrelu", inplace=4, random="generator", body=True),
    Operation("rrelu_", random="generator"),
    *_rows("dropout alpha_dropout feature_alpha_dropout", random="dropout", body=True),
    *_rows("feature_dropout dropout_ feature_dropout_ alpha_dropout_ feature_alpha_dropout_",
           random="dropout"),
    *_rows("dropout1d dropout2d dropout3d gumbel_softmax multi_head_attention_forward "
           "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices",
           random="inside", body=True),
    *_rows("fractional_max_pool2d fractional_max_pool3d scaled_dot_product_attention native_dropout lstm gru "
           "rnn_tanh rnn_relu", random="inside"),
    # writing where an argument says so: running statistics, and rows that are longer than max_norm
    Operation("batch_norm", writes=(5, "training"), rows="shape"),
    Operation("instance_norm", writes=(5, "use_input_stats"), rows="shape"),
    Operation("embedding", writes=(3, "max_norm"), rows="units"),
    Operation("embedding_bag", writes=(3, "max_norm")),
    # other functions of a batch
    *_rows("softmax log_softmax layer_norm group_norm rms_norm local_response_norm", rows="shape"),
    *_rows("max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
           "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
           "adaptive_max_pool3d", rows="windows"),
    *_rows("mean sum amax cat concat concatenate", rows="others"),
    # Python values
    *_rows("item tolist __bool__ __int__ __float__ __index__ __complex__ equal allclose is_nonzero nonzero "
           "argwhere masked_select unique unique_consecutive masked_scatter masked_scatter_ __contains__ "
           "__iter__ register_hook __deepcopy__ __reduce_ex__ __format__ apply_ map_ map2_", reads="value"),
    *_rows("numpy __array__ untyped_storage storage data_ptr", reads="value", escapes=True),
    Operation("__dlpack__", escapes=True),
    *_rows("size dim ndimension numel nelement stride is_contiguous is_floating_point is_complex is_signed "
           "element_size get_device storage_offset __len__ __hash__ _is_view is_same_size __repr__ "
           "is_inference is_conj is_neg", reads="shape"),
]  # fmt: skip
#: every function that is known, by name
TABLE: Mapping[str, Operation] = {row.name: row for row in _ROWS}
_UNKNOWN = Operation("")
#: position axes of the convolutions that are not transposed
CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3}


def names(**facts: Any) -> frozenset[str]:
    """Names of the functions whose rows have these values, as `names(moves="view")`; True: any value."""
    return frozenset(
        row.name
        for row in TABLE.values()
        if all(
            (getattr(row, fact) not in (None, False)) if want is True else getattr(row, fact) == want
            for fact, want in facts.items()
        )
    )


def name_of(func: Any) -> str:
    """The name of a torch function or operator, without its overload."""
    name: str = getattr(func, "__name__", "")
    # torch.ops.aten.dropout.default is called "dropout.default"
    return name.partition(".")[0] if isinstance(func, OPERATORS) else name


_AUGMENTED = frozenset(
    f"__i{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "div")
)


def canonical(func: Any) -> str:
    """One name for all spellings of a function: add, add_, __add__ and __iadd__ are "add"."""
    name: str = getattr(func, "__name__", str(func))
    if name == "__get__":  # an attribute, as x.T
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    if name in _AUGMENTED:
        return name[3:-2]
    return name[2:-2] if name.startswith("__") and name.endswith("__") else name.removesuffix("_")


def writes_in_place(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of a function of this name changes its first argument."""
    if name.endswith("_"):
        return not name.endswith("__") or name == "__setitem__" or name in _AUGMENTED
    at = TABLE.get(name, _UNKNOWN).inplace
    return at is not None and bool(kwargs.get("inplace", args[at] if len(args) > at else False))


def written_by(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments that a call of a function of this name may change."""
    written = [kwargs["out"]] if "out" in kwargs else []
    row = TABLE.get(name, _UNKNOWN)
    if writes_in_place(name, args, kwargs) or row.escapes:
        written += args[:1]
    elif row.writes is not None:
        at, key = row.writes
        if args[at] if len(args) > at else kwargs.get(key):
            written += [args, kwargs]
    return written


def keeps_rows(
    func: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    result: Tensor,
    has_rows: Callable[[Any], bool],
) -> bool:
    """Whether the result of a call has the rows of a batch on axis 0, one after another, in any batch.

    Args:
        func: a function of torch.
        args, kwargs: what it was called with.
        result: what it gave.
        has_rows: whether an argument is known to have the rows of the batch on axis 0.
    """
    row = TABLE.get(canonical(func))
    if row is None or not args:
        return False
    first = args[0]
    if row.arithmetic:
        return len(args) > 1 and _broadcasts_rows(first, args[1], result, has_rows)
    if row.rows == "others" and isinstance(first, tuple | list):
        axes = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        return all(map(has_rows, first)) and _leaves_first_axis(axes, result.dim())
    if not has_rows(first):
        return False
    same: bool = result.shape == first.shape
    if row.elementwise:
        return same and not any(isinstance(value, Tensor) for value in args[1:])
    if row.like or row.rows == "shape":
        return same
    if row.rows == "windows":
        return bool(first.dim() == int(row.name[-2]) + 2)
    if row.rows == "units":
        return result.dim() > 1
    if row.rows == "order":
        # In place, the shape that it had is not known any more.
        in_place = result is first and func.__name__.endswith("_")
        return not in_place and bool(result.shape[:1] == first.shape[:1])
    axes = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return row.rows == "others" and _leaves_first_axis(axes, first.dim())


def _broadcasts_rows(one: Any, two: Any, result: Tensor, has_rows: Callable[[Any], bool]) -> bool:
    """Whether two factors or terms, of which one or both have rows on axis 0, keep them there."""
    first, second = (one, two) if has_rows(one) else (two, one)
    if not has_rows(first) or result.dim() != first.dim():
        return False
    if not isinstance(second, Tensor):
        return isinstance(second, int | float | complex)
    return second.dim() < first.dim() or has_rows(second) or second.shape[0] == 1


def _leaves_first_axis(axes: Any, dim: int) -> bool:
    """Whether these are axes of a tensor, and none of them is axis 0."""
    given = axes if isinstance(axes, tuple | list) else (axes,)
    return bool(given) and all(type(axis) is int and axis % dim != 0 for axis in given)
