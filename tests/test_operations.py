"""Every row of the table of operations, compared with what torch does when the operation is run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop.execute.perceptron import elementwise
from bayesdrop.operations import (
    TABLE,
    Operation,
    canonical,
    keeps_rows,
    names,
    writes_in_place,
    written_by,
)
from bayesdrop.predict.moments import RULES

X = torch.linspace(-2.1, 1.9, 12).reshape(3, 4)
#: what an operation needs beside its tensor
REST: dict[str, tuple[Any, ...]] = {
    "threshold": (0.3, -1.0),
    "_threshold": (0.3, -1.0),
    "clamp": (-0.5, 0.7),
    "clip": (-0.5, 0.7),
    "clamp_min": (-0.5,),
    "clamp_max": (0.7,),
    "pow": (2,),
    "add": (X + 1,), "sub": (X + 1,), "mul": (X + 1,), "div": (X + 3,),
    "view": (4, 3), "view_as": (X.t(),), "reshape": (4, 3), "reshape_as": (X.t(),), "unflatten": (0, (3, 1)),
    "permute": (1, 0), "transpose": (0, 1), "swapaxes": (0, 1), "swapdims": (0, 1), "movedim": (0, 1),
    "moveaxis": (0, 1), "unsqueeze": (0,), "expand": (2, 3, 4), "expand_as": (X.expand(2, 3, 4),),
    "broadcast_to": ((2, 3, 4),), "getitem": (slice(1, 3),), "select": (0, 1), "narrow": (0, 1, 2),
    "chunk": (2,), "split": (2,), "tensor_split": (2,), "to": (torch.float32,), "type": (torch.float32,),
    "repeat": (2, 1), "repeat_interleave": (2,), "tile": (2,), "roll": (1,), "flip": (0,), "rot90": (),
    "index_select": (0, torch.tensor([1, 1])), "gather": (0, torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0]])),
    "take_along_dim": (torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0]]), 0),
    "unfold": (0, 2, 1), "tril": (), "triu": (),
    "pixel_shuffle": (2,), "pixel_unshuffle": (2,), "channel_shuffle": (2,),
    "full_like": (1.0,), "new_zeros": ((2,),), "new_ones": ((2,),), "new_full": ((2,), 1.0),
    "is_same_size": (X,), "equal": (X,), "allclose": (X,), "masked_select": (X > 0,), "__contains__": (1.0,),
    "masked_scatter": (X > 0, X), "masked_scatter_": (X > 0, X), "register_hook": (lambda g: g,),
    "__deepcopy__": ({},), "__reduce_ex__": (4,), "__format__": ("",), "apply_": (lambda v: v,),
    "map_": (X.clone(), lambda a, b: a), "map2_": (X.clone(), X.clone(), lambda a, b, c: a),
    "__index__": (), "__array__": (), "__dlpack__": (),
}  # fmt: skip
IMAGES = {"pixel_shuffle": (1, 4, 2, 2), "pixel_unshuffle": (1, 1, 4, 4), "channel_shuffle": (1, 4, 2, 2)}
SCALARS = {"item", "__bool__", "__int__", "__float__", "__index__", "__complex__", "is_nonzero", "__format__"}


def function(name: str) -> Callable[..., Any]:
    """The function of this name, wherever torch has it."""
    for owner in (Tensor, F, torch):
        found = getattr(owner, f"__{name}__" if name in ("getitem",) else name, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
    for owner in (torch._C._nn, torch.ops.aten):
        if hasattr(owner, name) and not hasattr(Tensor, name):
            return getattr(owner, name)  # type: ignore[no-any-return]
    return inspect.getattr_static(Tensor, name).__get__  # type: ignore[no-any-return]


def value_for(name: str) -> Tensor:
    if name in SCALARS:
        return torch.tensor(3) if name == "__index__" else torch.tensor(1.5)
    shape = IMAGES.get(name)
    kind = getattr(torch, name, None)
    x = (
        X.to(kind if isinstance(kind, torch.dtype) else X.dtype, copy=True)
        if shape is None
        else torch.arange(float(np.prod(shape))).reshape(shape)
    )
    return x.requires_grad_() if name == "register_hook" else x


def run(name: str, x: Tensor) -> Any:
    return function(name)(x, *REST.get(name, ()))


def rows(**facts: Any) -> list[str]:
    return sorted(names(**facts))


def test_every_operation_has_one_row() -> None:
    assert all(name == row.name for name, row in TABLE.items())
    nothing = Operation("")
    assert not [name for name, row in TABLE.items() if row == Operation(name) or row == nothing]


@pytest.mark.parametrize("name", rows(elementwise=True))
def test_each_element_depends_on_that_element_alone(name: str) -> None:
    x = (X.abs() + 0.1) if name == "sqrt" else X.clone()
    before = run(name, x)
    assert before.shape == x.shape
    for place in range(x.numel()):
        other = x.clone()
        other.view(-1)[place] += 0.37
        same = run(name, other).reshape(-1) == before.reshape(-1)
        assert bool(same[:place].all())
        assert bool(same[place + 1 :].all())
    # What runs perceptrons believes it: in whatever order the elements lie.
    step = elementwise(function(name), REST.get(name, ()), {})
    assert callable(step)
    torch.testing.assert_close(step(x.t().clone()), before.t())
    assert elementwise(function(name), (X,), {}) is None


@pytest.mark.parametrize("name", rows(smooth=True))
def test_a_smooth_function_has_no_jumps_and_a_rule_for_moments(name: str) -> None:
    x = torch.linspace(-4, 4, 80001, dtype=torch.float64)
    values = run(name, x)
    slope = (values.diff() / x.diff()).abs()
    assert float(slope.max()) < 60  # exp has 54.6; a jump has 1e4 times its height
    assert name in RULES


@pytest.mark.parametrize("name", sorted(set(rows(elementwise=True)) - names(smooth=True)))
def test_what_is_not_smooth_has_a_rule_of_its_own_or_none(name: str) -> None:
    smooth = RULES["tanh"]
    assert RULES.get(name) is not smooth


@pytest.mark.parametrize("name", sorted(name for name, row in TABLE.items() if row.inplace is not None))
def test_the_place_of_the_argument_inplace(name: str) -> None:
    at = TABLE[name].inplace
    parameters = list(inspect.signature(getattr(F, name)).parameters)
    assert parameters[at or 0] == "inplace"
    x = X.clone()
    getattr(F, name)(x, *REST.get(name, ()), inplace=True)
    assert not torch.equal(x, X)
    assert writes_in_place(name, (x,), {"inplace": True})
    assert not writes_in_place(name, (x,), {})


@pytest.mark.parametrize("name", rows(twin=True))
def test_the_twin_writes_what_the_function_gives(name: str) -> None:
    x = X.abs() + 0.1 if name == "sqrt" else X.clone()
    expected = run(name, x.clone())
    y = x.clone()
    assert getattr(y, f"{name}_")(*REST.get(name, ())) is y
    torch.testing.assert_close(y, expected)
    assert writes_in_place(f"{name}_", (y,), {})
    assert canonical(getattr(Tensor, f"{name}_")) == name


@pytest.mark.parametrize("name", rows(moves=True))
def test_moved_elements_are_those_of_the_argument(name: str) -> None:
    x = value_for(name)
    before = x.clone()
    result = run(name, x)
    parts = result if isinstance(result, tuple | list) else (result,)
    moved = torch.cat([part.reshape(-1) for part in parts])
    assert set(moved.tolist()) - {0.0} <= set(before.reshape(-1).tolist())
    shares = any(part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for part in parts)
    kind = TABLE[name].moves
    assert shares == (kind == "view" or name == "unfold"), "a view shares memory; a copy does not"
    if kind == "repeat":
        assert moved.numel() > len(set(moved.tolist())), "some element comes twice"
    assert torch.equal(x, before)
    assert name in RULES


@pytest.mark.parametrize("name", rows(like=True))
def test_only_shape_and_kind_are_used(name: str) -> None:
    assert torch.equal(run(name, X.clone()), run(name, X + 1))
    assert name in RULES


@pytest.mark.parametrize("name", rows(product="layer"))
def test_layers_are_linear_in_input_and_weight(name: str) -> None:
    positions = 0 if name == "linear" else int(name[-2])
    x, w = torch.randn(2, 3, *[5] * positions), torch.randn(3, 3, *[2] * positions)
    bias = torch.randn(3)
    layer = getattr(F, name)
    torch.testing.assert_close(layer(2 * x, w), 2 * layer(x, w))
    torch.testing.assert_close(layer(x, 2 * w), 2 * layer(x, w))
    offset = bias.reshape(-1, *[1] * positions)
    torch.testing.assert_close(layer(x, w, bias), layer(x, w) + offset)
    assert name in RULES


@pytest.mark.parametrize("name", rows(product="matrix"))
def test_matrix_products_are_linear_in_their_last_factor(name: str) -> None:
    factors: dict[str, tuple[Any, ...]] = {
        "mv": (torch.randn(3, 4), torch.randn(4)),
        "bmm": (torch.randn(2, 3, 4), torch.randn(2, 4, 3)),
        "addmm": (torch.zeros(3, 3), torch.randn(3, 4), torch.randn(4, 3)),
        "baddbmm": (torch.zeros(2, 3, 3), torch.randn(2, 3, 4), torch.randn(2, 4, 3)),
        "einsum": ("ij,jk->ik", torch.randn(3, 4), torch.randn(4, 3)),
    }
    *first, last = factors.get(name, (torch.randn(3, 4), torch.randn(4, 3)))
    product = getattr(torch, name)
    torch.testing.assert_close(product(*first, 2 * last), 2 * product(*first, last))
    assert name in RULES


ARITHMETIC = {
    "radd": "add", "subtract": "sub", "rsub": "sub", "multiply": "mul", "rmul": "mul", "divide": "div",
    "true_divide": "div", "truediv": "div", "rdiv": "div", "rtruediv": "div",
}  # fmt: skip


@pytest.mark.parametrize("name", rows(arithmetic=True))
def test_arithmetic_is_element_by_element(name: str) -> None:
    dunder = f"__{name}__"
    func = getattr(Tensor, dunder, None) or getattr(torch, name)
    assert TABLE[canonical(func)].arithmetic
    x, y = X.clone(), X + 3
    plain = getattr(torch, ARITHMETIC.get(name, name))
    expected = (
        plain(y, x) if name in ("rsub", "rdiv", "rtruediv") and hasattr(Tensor, dunder) else plain(x, y)
    )
    torch.testing.assert_close(func(x, y), expected)
    assert name in RULES


RANDOM: dict[str, Callable[[], Any]] = {
    "rand": lambda: torch.rand(3), "randn": lambda: torch.randn(3), "randint": lambda: torch.randint(9, (3,)),
    "randperm": lambda: torch.randperm(9), "randint_like": lambda: torch.randint_like(X, 9),
    "bernoulli": lambda: torch.bernoulli(torch.full((3,), 0.5)), "normal": lambda: torch.normal(X, 1.0),
    "multinomial": lambda: torch.multinomial(torch.ones(5), 2), "poisson": lambda: torch.poisson(X.abs()),
    "binomial": lambda: torch.binomial(torch.full((3,), 9.0), torch.full((3,), 0.5)),
    "_standard_gamma": lambda: torch._standard_gamma(torch.ones(3)),
    "_sample_dirichlet": lambda: torch._sample_dirichlet(torch.ones(3)),
    "geometric_": lambda: X.clone().geometric_(0.5), "rrelu": lambda: F.rrelu(X, training=True),
    "rrelu_": lambda: torch.rrelu_(X.clone(), 0.1, 0.3, True),
    "feature_dropout": lambda: torch.feature_dropout(X, 0.5, True),
    "feature_dropout_": lambda: torch.feature_dropout_(X.clone(), 0.5, True),
    "dropout_": lambda: torch.dropout_(X.clone(), 0.5, True),
    "alpha_dropout_": lambda: torch.alpha_dropout_(X.clone(), 0.5, True),
    "feature_alpha_dropout_": lambda: torch.feature_alpha_dropout_(X.clone(), 0.5, True),
    "dropout": lambda: F.dropout(X), "alpha_dropout": lambda: F.alpha_dropout(X, training=True),
    "feature_alpha_dropout": lambda: F.feature_alpha_dropout(X, training=True),
    "dropout1d": lambda: F.dropout1d(torch.ones(2, 3, 4)),
    "dropout2d": lambda: F.dropout2d(torch.ones(2, 3, 4, 4)),
    "dropout3d": lambda: F.dropout3d(torch.ones(2, 3, 2, 2, 2)),
    "gumbel_softmax": lambda: F.gumbel_softmax(X),
    "multi_head_attention_forward": lambda: torch.nn.MultiheadAttention(4, 2, dropout=0.5)(
        torch.ones(2, 1, 4), torch.ones(2, 1, 4), torch.ones(2, 1, 4)
    ),
    "fractional_max_pool2d": lambda: F.fractional_max_pool2d(torch.ones(1, 1, 6, 6), 2, output_size=3),
    "fractional_max_pool3d": lambda: F.fractional_max_pool3d(torch.ones(1, 1, 6, 6, 6), 2, output_size=3),
    "fractional_max_pool2d_with_indices": lambda: F.fractional_max_pool2d_with_indices(
        torch.ones(1, 1, 6, 6), 2, output_size=3
    ),
    "fractional_max_pool3d_with_indices": lambda: F.fractional_max_pool3d_with_indices(
        torch.ones(1, 1, 6, 6, 6), 2, output_size=3
    ),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(X, X, X, dropout_p=0.5),
    "native_dropout": lambda: torch.native_dropout(X, 0.5, True),
    "lstm": lambda: torch.nn.LSTM(4, 4, 2, dropout=0.5)(X),
    "gru": lambda: torch.nn.GRU(4, 4, 2, dropout=0.5)(X),
    "rnn_tanh": lambda: torch.nn.RNN(4, 4, 2, dropout=0.5)(X),
    "rnn_relu": lambda: torch.nn.RNN(4, 4, 2, nonlinearity="relu", dropout=0.5)(X),
}  # fmt: skip


@contextmanager
def _generator_moves() -> Iterator[None]:
    before = torch.get_rng_state()
    yield
    assert not torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", rows(random=True))
def test_random_functions_draw_numbers(name: str) -> None:
    call = RANDOM.get(name)
    if call is None:
        call = getattr(X.clone(), name) if name.endswith("_") else partial(getattr(torch, name), X)
    state = torch.get_rng_state()
    try:
        with _generator_moves():
            call()
    finally:
        torch.set_rng_state(state)
    if TABLE[name].body:
        assert inspect.isfunction(getattr(F, name)) or inspect.isfunction(getattr(F, name).__wrapped__)


@pytest.mark.parametrize("name", sorted(name for name, row in TABLE.items() if row.writes is not None))
def test_what_writes_if_told_to(name: str) -> None:
    at, key = TABLE[name].writes or (0, "")
    parameters = list(inspect.signature(getattr(F, name)).parameters)
    if "embedding" not in name:
        assert parameters[at] == key
        statistics = [torch.zeros(4), torch.ones(4)]
        wide = X.expand(2, 3, 4).mT.clone()
        getattr(F, name)(wide, *statistics, **{key: True})
        assert not torch.equal(statistics[0], torch.zeros(4))
        told = written_by(name, (wide, *statistics), {key: True})
        assert any(statistics[0] is part for part in told[0])
        return
    table = 9 * torch.ones(3, 4)
    index = torch.tensor([[1, 2]])
    getattr(F, name)(index, table, max_norm=1.0)
    assert not torch.equal(table, 9 * torch.ones(3, 4))
    assert written_by(name, (index, table), {"max_norm": 1.0})
    assert not written_by(name, (index, table), {})


#: what gives tensors, of a shape or a place that depends on values
TENSORS_OF_VALUES = {
    "nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "masked_scatter",
    "masked_scatter_", "apply_", "map_", "map2_", "__deepcopy__",
}  # fmt: skip


@pytest.mark.parametrize("name", rows(reads="value"))
def test_what_reads_values_gives_others_for_other_values(name: str) -> None:
    if name in ("register_hook", "storage", "data_ptr", "untyped_storage"):
        return  # no value of an element, but a way to all of them
    x = value_for(name)
    result = run(name, x)
    shape_of_values = name in TENSORS_OF_VALUES
    assert shape_of_values or not isinstance(result, Tensor)


@pytest.mark.filterwarnings("ignore:Named tensors")
@pytest.mark.parametrize("name", rows(reads="shape"))
def test_what_reads_shapes_does_not_read_values(name: str) -> None:
    if name in ("__repr__", "__hash__", "type"):
        return  # told apart by their use: they are no part of what a model computes
    assert run(name, X.clone()) == run(name, X + 1) or name == "get_device"
    assert not isinstance(run(name, X.clone()), Tensor)


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("name", rows(escapes=True))
def test_what_escapes_leads_to_the_memory(name: str) -> None:
    x = X.clone()
    outside = run(name, x)
    if name in ("numpy", "__array__"):
        outside[0, 0] = 99.0
        assert float(x[0, 0]) == 99.0
    elif name == "data_ptr":
        assert outside == x.untyped_storage().data_ptr()
    assert written_by(name, (x,), {})[0] is x


def test_one_name_however_it_is_spelt() -> None:
    for func in (torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__iadd__):
        assert canonical(func) == "add"
    assert canonical(vars(torch._C.TensorBase)["T"].__get__) == "T"
    assert canonical(Tensor.__getitem__) == "getitem"
    assert canonical(Tensor.__itruediv__) in ("div", "truediv")


# rows of a batch, followed from the input

ROWS = 5
BATCH = torch.linspace(-2.1, 1.9, ROWS * 4 * 6).reshape(ROWS, 4, 6)
BATCHES: dict[str, tuple[Any, ...]] = {
    "linear": (torch.randn(3, 6),), "embedding": (torch.randn(9, 3),),
    "conv1d": (torch.randn(3, 4, 2),), "conv2d": (torch.randn(3, 4, 1, 2),),
    "conv3d": (torch.randn(3, 4, 1, 1, 2),), "conv_transpose1d": (torch.randn(4, 3, 2),),
    "conv_transpose2d": (torch.randn(4, 3, 1, 2),), "conv_transpose3d": (torch.randn(4, 3, 1, 1, 2),),
    "batch_norm": (torch.zeros(4), torch.ones(4)), "instance_norm": (), "local_response_norm": (2,),
    "softmax": (1,), "log_softmax": (1,), "layer_norm": ((6,),), "rms_norm": ((6,),), "group_norm": (2,),
    "mean": ((1, 2),), "sum": (-1,), "amax": (1,),
    "view": (-1, 24), "reshape": (-1, 2, 12), "view_as": (), "reshape_as": (), "flatten": (1,),
    "unflatten": (1, (2, 2)), "ravel": (), "unsqueeze": (1,), "contiguous": (),
}  # fmt: skip


def batch_for(name: str, rows: int) -> tuple[Any, ...]:
    """Arguments of a call with so many rows, as far as they depend on the rows."""
    x = BATCH[:rows]
    if name == "embedding":
        return ((x[:, :, 0].abs() * 3).long(),)
    if name in ("cat", "concat", "concatenate"):
        return [x, x], 1
    if name[-1] == "d" and name[-2] in "123":
        x = x.reshape(rows, 4, *[1] * (int(name[-2]) - 1), 6)
        return (x,) if name in BATCHES else (x, 1)
    if name in ("view_as", "reshape_as"):
        return x, x.flatten(1)
    return (x[:, :1, :1] if name == "ravel" else x,)


def followed(name: str, *args: Any) -> tuple[Tensor, bool]:
    """The result of a call, and whether it is said to keep the rows of its first argument."""
    func = function(name)
    result = func(*args)
    first = args[0]
    marked = {id(part) for part in (first if isinstance(first, list) else [first])}
    return result, keeps_rows(func, args, {}, result, lambda value: id(value) in marked)


@pytest.mark.parametrize("name", sorted(names(rows=True)))
def test_rows_stay_where_they_are_said_to(name: str) -> None:
    rest = BATCHES.get(name, ())
    whole, kept = followed(name, *batch_for(name, ROWS), *rest)
    assert kept
    assert whole.shape[0] == ROWS
    one, _ = followed(name, *batch_for(name, 1), *rest)
    assert one.shape == (1, *whole.shape[1:])
    torch.testing.assert_close(one[0], whole[0])


def test_rows_are_not_followed_where_another_axis_may_be_first() -> None:
    x, square = torch.randn(4, 3), torch.randn(4, 4)
    image = torch.randn(4, 5, 6)  # without an axis of rows
    assert not followed("max_pool2d", image, 2)[1]
    assert not followed("conv2d", image, torch.randn(2, 4, 1, 1))[1]
    assert not followed("linear", x[:, 0], torch.randn(4, 4))[1]
    assert not followed("t", square)[1]
    assert not followed("mean", square, 0)[1]
    assert not followed("sum", square)[1]
    assert not followed("cat", [x, x], 0)[1]
    assert not followed("flatten", x)[1]
    assert not followed("ravel", x)[1]
    assert not followed("unsqueeze", square, 0)[1]
    assert not followed("clamp", x, torch.zeros(4, 3))[1]
    turned = torch.randn(4, 4)
    assert not keeps_rows(Tensor.unsqueeze_, (turned,), {}, turned.unsqueeze_(0), lambda _: True)
    # A term that has as many rows whatever the batch, or more axes than the batch.
    for other in (torch.randn(4, 1), torch.randn(2, 4, 3)):
        assert not followed("add", x, other)[1]
    for other in (2.0, torch.randn(1, 3), torch.randn(3), torch.tensor(1.0), x):
        assert followed("add", x, other)[1]
    assert not keeps_rows(torch.add, (torch.randn(4, 3), torch.randn(4, 3)), {}, x, lambda _: False)
