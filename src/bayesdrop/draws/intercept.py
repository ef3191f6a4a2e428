"""The function mode that turns every dropout call of a model into held noise, with no surgery."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesdrop.draws.sites import HeldFlag

if TYPE_CHECKING:
    from bayesdrop.draws.held import HeldNoise

__all__ = ["InterceptMode", "is_random_function"]

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Handler = Callable[["InterceptMode", Any, Arguments, Keywords], Any]


class InterceptMode(TorchFunctionMode):
    """Sees every torch function that a model calls; dropout gets the noise of `draw`."""

    def __init__(self, draw: HeldNoise) -> None:
        super().__init__()
        self.draw = draw

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        if handler is not None:
            result = handler(self, func, args, kwargs)
            if result is not NotImplemented:
                return result
        if any(isinstance(value, HeldFlag) for value in args):
            args = tuple(bool(value) if isinstance(value, HeldFlag) else value for value in args)
        if any(isinstance(value, HeldFlag) for value in kwargs.values()):
            kwargs = {k: bool(value) if isinstance(value, HeldFlag) else value for k, value in kwargs.items()}
        if is_random_function(func, args, kwargs):
            self.draw.saw_foreign_randomness(getattr(func, "__name__", str(func)))
        return self.run(func, args, kwargs)

    def run(self, func: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Call a function that is not dropout."""
        return func(*args, **kwargs)

    def ours(self, flag: Any) -> bool:
        """Whether a call with this training flag belongs to the model of this draw."""
        return not isinstance(flag, HeldFlag) or flag.owner is self.draw


# Functions that use the global generator: a model's own randomness, which no draw can hold.
_RANDOM = frozenset(
    {
        "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli",
        "bernoulli_", "normal", "normal_", "uniform_", "random_", "exponential_", "cauchy_", "geometric_",
        "log_normal_", "multinomial", "poisson", "binomial", "gumbel_softmax",
    }
)  # fmt: skip


def is_random_function(func: Any, args: Arguments, kwargs: Keywords) -> bool:
    """Whether a call draws from the global generator."""
    name = getattr(func, "__name__", "")
    if name in ("rrelu", "rrelu_"):
        return bool(_argument(args, kwargs, 3, "training", False))
    return name in _RANDOM


def _argument(args: Arguments, kwargs: Keywords, index: int, name: str, default: Any) -> Any:
    if index < len(args):
        return args[index]
    return kwargs.get(name, default)


def _dropout(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.dropout, F.dropout1d/2d/3d, F.alpha_dropout, F.feature_alpha_dropout and their torch.* twins."""
    x: Tensor = _argument(args, kwargs, 0, "input", None)
    functional = func in _FUNCTIONAL
    p = float(_argument(args, kwargs, 1, "p", 0.5))
    default = functional and func not in (F.alpha_dropout, F.feature_alpha_dropout)
    flag = _argument(args, kwargs, 2, "training" if functional else "train", default)
    if not mode.ours(flag):
        return NotImplemented
    name = func.__name__.removesuffix("_")
    site = mode.draw.open_site(f"{'F' if functional else 'torch'}.{name}", p, flag)
    if site is None:
        return x
    with mode:
        return mode.draw.drop(x, p, site, spatial=_SPATIAL.get(name), alpha="alpha" in name)


#: how many position axes a channel-wise dropout expects; None takes any number
_SPATIAL: dict[str, int | None] = {
    "dropout1d": 1,
    "dropout2d": 2,
    "dropout3d": 3,
    "feature_dropout": 0,
    "feature_alpha_dropout": 0,
}


def _attention(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.scaled_dot_product_attention with dropout: softmax(q k / sqrt(E) + mask) * noise, times v."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    values = dict(zip(names, args, strict=False)) | kwargs
    p = float(values.get("dropout_p", 0.0))
    if p == 0:
        return NotImplemented
    site = mode.draw.open_site("F.scaled_dot_product_attention", p, True)
    if site is None:
        with mode:
            return func(**(values | {"dropout_p": 0.0}))
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
        return mode.draw.drop(weights, p, site) @ value


_INNER_GLOBALS: dict[str, Any] = {}


def _multi_head_attention(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.multi_head_attention_forward: run its own body with the mode on, so that its dropout is seen."""
    flag = _argument(args, kwargs, 12, "training", True)
    if not mode.ours(flag):
        return NotImplemented
    p = float(_argument(args, kwargs, 9, "dropout_p", 0.0))
    if isinstance(flag, HeldFlag) and (p == 0 or not mode.draw.selected(flag.path)):
        mode.draw.skip_site("attention", p, flag)
    training = bool(flag) if not isinstance(flag, HeldFlag) else mode.draw.selected(flag.path)
    if not _INNER_GLOBALS:
        # The body first asks whether a mode is on and, if so, hands the call back: here it must not.
        _INNER_GLOBALS.update(F.__dict__, has_torch_function=lambda *_: False)
    body = types.FunctionType(
        func.__code__, _INNER_GLOBALS, func.__name__, func.__defaults__, func.__closure__
    )
    body.__kwdefaults__ = func.__kwdefaults__
    if len(args) > 12:
        args = (*args[:12], training, *args[13:])
    else:
        kwargs = kwargs | {"training": training}
    with mode, mode.draw.inside(flag.path if isinstance(flag, HeldFlag) else None):
        return body(*args, **kwargs)


def _recurrent(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.lstm, gru, rnn_tanh, rnn_relu with dropout between layers: one layer at a time."""
    at = next((i for i, value in enumerate(args) if isinstance(value, list)), -1)
    if at < 2 or kwargs:
        return NotImplemented
    packed = at == 3
    weights, has_biases, num_layers, p, flag, bidirectional = args[at : at + 6]
    if p == 0 or num_layers == 1 or not mode.ours(flag):
        return NotImplemented
    name = {"lstm": "LSTM", "gru": "GRU"}.get(func.__name__, "RNN")
    site = mode.draw.open_site(name, float(p), flag)
    if site is None:
        return mode.run(func, (*args[: at + 4], False, *args[at + 5 :]), kwargs)
    tail = () if packed else (args[at + 6],)
    batch_first = not packed and bool(args[at + 6])
    directions = 2 if bidirectional else 1
    size = len(weights) // num_layers
    states = args[at - 1] if isinstance(args[at - 1], tuple) else (args[at - 1],)
    x, finals = args[0], []
    with mode:
        for layer in range(num_layers):
            if layer:
                x = mode.draw.drop_between(
                    x,
                    float(p),
                    f"{site}.layer{layer}",
                    batch_first=batch_first,
                    sizes=args[1] if packed else None,
                )
            own = tuple(state[layer * directions : (layer + 1) * directions] for state in states)
            hidden = own if isinstance(args[at - 1], tuple) else own[0]
            part = weights[layer * size : (layer + 1) * size]
            head = (x, args[1], hidden) if packed else (x, hidden)
            x, *final = func(*head, part, has_biases, 1, 0.0, False, bidirectional, *tail)
            finals.append(final)
        return x, *(torch.cat(state) for state in zip(*finals, strict=True))


_FUNCTIONAL: frozenset[Any] = frozenset(
    {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout}
)
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
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _multi_head_attention,
    **dict.fromkeys((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu), _recurrent),
}
