"""What is done instead, with held noise, wherever a model applies dropout or draws random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop.operations import OPERATORS, name_of, names
from bayesdrop.randomness import body_of
from bayesdrop.trace.held import HeldNoise
from bayesdrop.trace.sites import HeldFlag

__all__ = ["Arguments", "Handler", "Keywords", "Mode", "handler_of", "is_random_function", "randomness_of"]

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]


class Mode(Protocol):
    """What a handler needs of the mode that saw a call. Calls inside `with mode` are seen by it again."""

    noise: HeldNoise

    def run(self, func: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Call a function as it is, and record it."""

    def overwrite(self, target: Tensor, value: Tensor) -> Tensor:
        """Write the elements of `value` into `target`, as a dropout in place does; returns `target`."""

    def unchanged(self, x: Tensor) -> Tensor:
        """A tensor with the elements of `x` that may still be read after `x` is overwritten."""

    def ours(self, flag: Any) -> bool:
        """Whether a call with this training flag belongs to the model of this draw."""

    def seeded(self) -> bool:
        """Whether the model has seeded the global generator, to get the same numbers in every pass."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...


#: from a mode, a function and its arguments to the result; NotImplemented if the function is to run as it is
Handler = Callable[[Mode, Any, Arguments, Keywords], Any]


def _argument(args: Arguments, kwargs: Keywords, index: int, name: str, default: Any) -> Any:
    """An argument that may be positional or a keyword."""
    if index < len(args):
        return args[index]
    return kwargs.get(name, default)


_FUNCTIONAL: frozenset[Any] = frozenset(
    {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout}
)


# dropout


def _dropout(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.dropout, F.dropout1d/2d/3d, F.alpha_dropout, F.feature_alpha_dropout and their torch.* twins."""
    x: Tensor = _argument(args, kwargs, 0, "input", None)
    functional = func in _FUNCTIONAL
    p = float(_argument(args, kwargs, 1, "p", 0.5))
    default = functional and func not in (F.alpha_dropout, F.feature_alpha_dropout)
    flag = _argument(args, kwargs, 2, "training" if functional else "train", default)
    if not mode.ours(flag):
        return func(*args, **kwargs)
    if not 0 <= p <= 1:
        return NotImplemented  # torch raises its own error
    name = name_of(func)
    in_place = bool(_argument(args, kwargs, 3, "inplace", False)) if functional else name.endswith("_")
    name = name.removesuffix("_")
    site = mode.noise.book.open(f"{'F' if functional else 'torch'}.{name}", p, flag)
    if site is None:
        return x
    source = mode.unchanged(x) if in_place else x
    with mode:
        dropped = mode.noise.drop(source, p, site, spatial=_SPATIAL.get(name), alpha="alpha" in name)
    return mode.overwrite(x, dropped) if in_place else dropped


#: how many position axes a channel-wise dropout expects; None takes any number
_SPATIAL: dict[str, int | None] = {
    "dropout1d": 1,
    "dropout2d": 2,
    "dropout3d": 3,
    "feature_dropout": 0,
    "feature_alpha_dropout": 0,
}


def _native_dropout(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.native_dropout, which returns the result and its mask."""
    x: Tensor = _argument(args, kwargs, 0, "input", None)
    p = float(_argument(args, kwargs, 1, "p", 0.5))
    flag = _argument(args, kwargs, 2, "train", None)
    if not mode.ours(flag):
        return func(*args, **kwargs)
    site = mode.noise.book.open("torch.native_dropout", p, True if flag is None else flag)
    if site is None:
        return func(x, p, False)
    with mode:
        return mode.noise.drop(x, p, site), mode.noise.drop(torch.ones_like(x), p, site) != 0


# attention


def _attention(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.scaled_dot_product_attention with dropout: softmax(q k / sqrt(E) + mask) * noise, times v."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    values = dict(zip(names, args, strict=False)) | kwargs
    p = float(values.get("dropout_p", 0.0))
    if p == 0:
        return NotImplemented
    site = mode.noise.book.open("F.scaled_dot_product_attention", p, True)
    if site is None:
        return mode.run(func, (), values | {"dropout_p": 0.0})
    query, key, value = values["query"], values["key"], values["value"]
    with mode:
        if values.get("enable_gqa"):
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
            value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
        scale = values.get("scale")
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        scores = (query * scale) @ key.transpose(-2, -1)
        mask = values.get("attn_mask")
        if values.get("is_causal"):
            size = (query.shape[-2], key.shape[-2])
            causal = torch.ones(size, dtype=torch.bool, device=query.device).tril()
            scores = scores.masked_fill(causal.logical_not(), -math.inf)
        if mask is not None:
            hidden = mask.dtype == torch.bool
            scores = scores.masked_fill(mask.logical_not(), -math.inf) if hidden else scores + mask
        weights = torch.softmax(scores, -1)
        if mask is not None:
            # A query that sees no key attends to nothing.
            weights = weights.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
        return mode.noise.drop(weights, p, site, attention=True) @ value


def _multi_head_attention(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.multi_head_attention_forward: its own Python code, run with the mode on so that dropout is seen."""
    flag = _argument(args, kwargs, 13, "training", True)
    if not mode.ours(flag):
        return func(*args, **kwargs)
    p = float(_argument(args, kwargs, 10, "dropout_p", 0.0))
    path = flag.path if isinstance(flag, HeldFlag) else None
    training = isinstance(flag, HeldFlag) or bool(flag)
    with mode.noise.book.inside(path):
        if p == 0 or not training:
            mode.noise.book.open("attention", p, flag)
        if len(args) > 13:
            args = (*args[:13], training, *args[14:])
        else:
            kwargs = kwargs | {"training": training}
        with mode:
            return body_of(func)(*args, **kwargs)


# recurrent layers


def _recurrent(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.lstm, gru, rnn_tanh, rnn_relu with dropout between layers: run one layer at a time."""
    packed = "batch_sizes" in kwargs or (len(args) > 3 and isinstance(args[3], tuple | list))
    first = ("data", "batch_sizes", "hx") if packed else ("input", "hx")
    names = (*first, "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
    call = dict(zip(names, args, strict=False)) | kwargs
    p, flag, num_layers = float(call["dropout"]), call["train"], call["num_layers"]
    if not mode.ours(flag):
        return func(*args, **kwargs)
    if num_layers == 1:
        return NotImplemented
    site = mode.noise.book.open({"lstm": "LSTM", "gru": "GRU"}.get(name_of(func), "RNN"), p, flag)
    if site is None:
        call["train"] = False
        return mode.run(func, tuple(call[name] for name in names if name in call), {})
    x, states, weights = call[names[0]], call["hx"], list(call["params"])
    sizes: Tensor | None = call.get("batch_sizes")
    batch_first = bool(call.get("batch_first", False))
    tail = (call["bidirectional"],) if packed else (call["bidirectional"], batch_first)
    directions = 2 if call["bidirectional"] else 1
    size = len(weights) // num_layers
    finals = []
    with mode:
        for layer in range(num_layers):
            if layer:
                key = f"{site}.layer{layer}"
                x = mode.noise.drop_between(x, p, key, batch_first=batch_first, sizes=sizes)
            mine = slice(layer * directions, (layer + 1) * directions)
            own = tuple(s[mine] for s in states) if isinstance(states, tuple | list) else states[mine]
            head = (x, own) if sizes is None else (x, sizes, own)
            part = weights[layer * size : (layer + 1) * size]
            x, *final = func(*head, part, call["has_biases"], 1, 0.0, False, *tail)
            finals.append(final)
        return x, *(torch.cat(state) for state in zip(*finals, strict=True))


# norms, which stay in eval mode


def _statistics(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.batch_norm and F.instance_norm in a module that is in training mode only because of its dropout."""
    if not mode.noise.book.trained:
        return NotImplemented
    batch = func in (F.batch_norm, torch.batch_norm)
    name = "training" if batch else "use_input_stats"
    flag = _argument(args, kwargs, 5, name, not batch)
    first = 1 if func in (F.batch_norm, F.instance_norm) else 3
    has_statistics = _argument(args, kwargs, first, "running_mean", None) is not None
    if isinstance(flag, HeldFlag) or not (flag and has_statistics and mode.noise.book.in_training()):
        return NotImplemented
    if len(args) > 5:
        return mode.run(func, (*args[:5], False, *args[6:]), kwargs)
    return mode.run(func, args, kwargs | {name: False})


# noise that a model makes itself


def _uniform(shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    return torch.from_numpy(generator.random(shape, dtype=np.float32))


def _uniform_double(shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    return torch.from_numpy(generator.random(shape))


def _normal_sample(shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    return torch.from_numpy(generator.standard_normal(shape))


def _exponential(shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    return torch.from_numpy(generator.standard_exponential(shape))


_Sample = Callable[[tuple[int, ...], np.random.Generator], Tensor]


def _own_noise(mode: Mode, name: str, shape: tuple[int, ...], like: Tensor, sample: _Sample) -> Tensor:
    """Held noise in place of what a function of torch would draw."""
    with mode:
        return mode.noise.own_noise(f"torch.{name}", shape, like, sample)


def _holdable(mode: Mode, kwargs: Keywords) -> bool:
    """Whether held noise can replace a random function: not if the model passes or seeds a generator."""
    plain = all(kwargs.get(name) is None for name in ("generator", "out", "names", "layout"))
    return plain and not mode.seeded()


def _factory(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.rand, torch.randn, torch.rand_like, torch.randn_like."""
    if not _holdable(mode, kwargs):
        return NotImplemented
    name = name_of(func)
    # An empty tensor shows what shape, dtype and device torch would choose.
    empty = torch.empty_like if name.endswith("_like") else torch.empty
    drawn = empty(*args, **{key: value for key, value in kwargs.items() if key != "requires_grad"})
    if not drawn.is_floating_point():
        return NotImplemented
    sample = (
        _normal_sample if "randn" in name else _uniform_double if drawn.dtype == torch.float64 else _uniform
    )
    noise = _own_noise(mode, name, tuple(drawn.shape), drawn, sample)
    with mode:
        made = noise.clone()
    return made.requires_grad_() if kwargs.get("requires_grad") else made


def _bernoulli(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.bernoulli(p), torch.bernoulli(x, p), x.bernoulli_(p)."""
    if not _holdable(mode, kwargs):
        return NotImplemented
    name = name_of(func)
    x: Tensor = _argument(args, kwargs, 0, "input", None)
    p = _argument(args, kwargs, 1, "p", 0.5 if name.endswith("_") else x)
    like = torch.empty((), dtype=torch.float32, device=x.device)
    uniform = _own_noise(mode, name, tuple(x.shape), like, _uniform)
    with mode:
        drawn = (uniform < p).to(x.dtype)
    return mode.overwrite(x, drawn) if name.endswith("_") else drawn


def _fill(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """x.uniform_(a, b), x.normal_(mean, std), x.exponential_(rate)."""
    x: Tensor = _argument(args, kwargs, 0, "self", None)
    if not _holdable(mode, kwargs) or not x.is_floating_point():
        return NotImplemented
    name = name_of(func)
    sample = {"uniform_": _uniform_double, "normal_": _normal_sample, "exponential_": _exponential}[name]
    noise = _own_noise(mode, name, tuple(x.shape), x, sample)
    with mode:
        if name == "uniform_":
            low, high = _argument(args, kwargs, 1, "from", 0.0), _argument(args, kwargs, 2, "to", 1.0)
            drawn = low + (high - low) * noise
        elif name == "normal_":
            mean, std = _argument(args, kwargs, 1, "mean", 0.0), _argument(args, kwargs, 2, "std", 1.0)
            drawn = mean + std * noise
        else:
            drawn = noise / _argument(args, kwargs, 1, "lambd", 1.0)
    return mode.overwrite(x, drawn)


def _normal(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.normal(mean, std) of tensors, or torch.normal(mean, std, size)."""
    mean, std = _argument(args, kwargs, 0, "mean", 0.0), _argument(args, kwargs, 1, "std", 1.0)
    size = _argument(args, kwargs, 2, "size", None)
    if not _holdable(mode, kwargs):
        return NotImplemented
    if size is not None:
        like = torch.empty(size, dtype=kwargs.get("dtype"), device=kwargs.get("device"))
    else:
        like = torch.empty_like(torch.as_tensor(mean) + torch.as_tensor(std))
    noise = _own_noise(mode, "normal", tuple(like.shape), like, _normal_sample)
    with mode:
        return mean + std * noise


def _gumbel_softmax(mode: Mode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.gumbel_softmax: its own Python code, run with the mode on so that its exponential noise is held."""
    with mode:
        return body_of(func)(*args, **kwargs)


_HANDLERS: dict[Any, Handler] = {
    **dict.fromkeys(_FUNCTIONAL, _dropout),
    **dict.fromkeys(
        (
            torch.dropout,
            torch.dropout_,
            torch.alpha_dropout,
            torch.alpha_dropout_,
            torch.feature_dropout,
            torch.feature_dropout_,
            torch.feature_alpha_dropout,
            torch.feature_alpha_dropout_,
        ),
        _dropout,
    ),
    torch.native_dropout: _native_dropout,
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _multi_head_attention,
    **dict.fromkeys((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu), _recurrent),
    **dict.fromkeys((F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm), _statistics),
    **dict.fromkeys((torch.rand, torch.randn, torch.rand_like, torch.randn_like), _factory),
    **dict.fromkeys((torch.bernoulli, Tensor.bernoulli, Tensor.bernoulli_), _bernoulli),
    **dict.fromkeys((Tensor.uniform_, Tensor.normal_, Tensor.exponential_), _fill),
    torch.normal: _normal,
    F.gumbel_softmax: _gumbel_softmax,
}
#: handlers of random functions that are not dropout
_OWN = frozenset({_factory, _bernoulli, _fill, _normal, _gumbel_softmax})
#: the same functions where they are called as operators, as torch.ops.aten.dropout
_OPERATORS: dict[str, Handler] = {
    name_of(func): handler
    for func, handler in _HANDLERS.items()
    if handler in (_dropout, _native_dropout, _attention, _recurrent) and func not in _FUNCTIONAL
}


def handler_of(func: Any, mode: Mode, *, in_pass: bool) -> Handler | None:
    """The handler of a torch function; None if it has none, or if the call is not the model's.

    Args:
        func: a function of torch.
        mode: the mode that saw the call.
        in_pass: whether a pass of the model is running. Outside a pass, a random function that is not dropout
            may have been called by the user's code inside the draw.
    """
    handler = _HANDLERS.get(func)
    if handler is None and isinstance(func, OPERATORS):
        handler = _OPERATORS.get(name_of(func))
    return None if handler in _OWN and not in_pass and not mode.noise.book.is_running() else handler


# Functions that draw from a generator, and whose numbers are not held unless a handler replaces them.
_RANDOM = names(random="generator") - {"rrelu", "rrelu_"} | {
    "gumbel_softmax",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices",
    "native_dropout",
}


def is_random_function(name: str, args: Arguments, kwargs: Keywords) -> bool:
    """Whether a call of a function of this name draws from a generator."""
    if name in ("rrelu", "rrelu_"):
        return bool(_argument(args, kwargs, 3, "training", False))
    return name in _RANDOM


def randomness_of(func: Any) -> str | None:
    """The usual name of a random function of torch, as "F.dropout"; None if it is not random."""
    try:
        known = func in _HANDLERS and _HANDLERS[func] is not _statistics
    except TypeError:
        return None  # not hashable, so not a function
    if not known:
        return None
    return f"{'F' if getattr(F, name_of(func), None) is func else 'torch'}.{name_of(func)}"
