"""Every way in which torch applies dropout, done with held noise instead."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesdrop.draws.sites import HeldFlag
from bayesdrop.randomness import body_of, name_of

if TYPE_CHECKING:
    from bayesdrop.draws.intercept import Arguments, InterceptMode, Keywords

__all__ = [
    "FUNCTIONAL",
    "argument",
    "attention",
    "dropout",
    "multi_head_attention",
    "native_dropout",
    "recurrent",
    "statistics",
]


def argument(args: Arguments, kwargs: Keywords, index: int, name: str, default: Any) -> Any:
    """An argument by place or by name."""
    if index < len(args):
        return args[index]
    return kwargs.get(name, default)


FUNCTIONAL: frozenset[Any] = frozenset(
    {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout}
)


# dropout


def dropout(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.dropout, F.dropout1d/2d/3d, F.alpha_dropout, F.feature_alpha_dropout and their torch.* twins."""
    x: Tensor = argument(args, kwargs, 0, "input", None)
    functional = func in FUNCTIONAL
    p = float(argument(args, kwargs, 1, "p", 0.5))
    default = functional and func not in (F.alpha_dropout, F.feature_alpha_dropout)
    flag = argument(args, kwargs, 2, "training" if functional else "train", default)
    if not mode.ours(flag):
        return func(*args, **kwargs)
    if not 0 <= p <= 1:
        return NotImplemented  # torch has words for that
    name = name_of(func)
    in_place = bool(argument(args, kwargs, 3, "inplace", False)) if functional else name.endswith("_")
    name = name.removesuffix("_")
    site = mode.draw.open_site(f"{'F' if functional else 'torch'}.{name}", p, flag)
    if site is None:
        return x
    source = mode.unchanged(x) if in_place else x
    with mode:
        dropped = mode.draw.drop(source, p, site, spatial=_SPATIAL.get(name), alpha="alpha" in name)
    return mode.overwrite(x, dropped) if in_place else dropped


#: how many position axes a channel-wise dropout expects; None takes any number
_SPATIAL: dict[str, int | None] = {
    "dropout1d": 1,
    "dropout2d": 2,
    "dropout3d": 3,
    "feature_dropout": 0,
    "feature_alpha_dropout": 0,
}


def native_dropout(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.native_dropout: the result and its mask."""
    x: Tensor = argument(args, kwargs, 0, "input", None)
    p = float(argument(args, kwargs, 1, "p", 0.5))
    flag = argument(args, kwargs, 2, "train", None)
    if not mode.ours(flag):
        return func(*args, **kwargs)
    site = mode.draw.open_site("torch.native_dropout", p, True if flag is None else flag)
    if site is None:
        return func(x, p, False)
    with mode:
        return mode.draw.drop(x, p, site), mode.draw.drop(torch.ones_like(x), p, site) != 0


# attention


def attention(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.scaled_dot_product_attention with dropout: softmax(q k / sqrt(E) + mask) * noise, times v."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    values = dict(zip(names, args, strict=False)) | kwargs
    p = float(values.get("dropout_p", 0.0))
    if p == 0:
        return NotImplemented
    site = mode.draw.open_site("F.scaled_dot_product_attention", p, True)
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
        return mode.draw.drop(weights, p, site, attention=True) @ value


def multi_head_attention(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.multi_head_attention_forward: run its own body with the mode on, so that its dropout is seen."""
    flag = argument(args, kwargs, 13, "training", True)
    if not mode.ours(flag):
        return func(*args, **kwargs)
    p = float(argument(args, kwargs, 10, "dropout_p", 0.0))
    path = flag.path if isinstance(flag, HeldFlag) else None
    training = isinstance(flag, HeldFlag) or bool(flag)
    with mode.draw.inside(path):
        if p == 0 or not training:
            mode.draw.open_site("attention", p, flag)
        if len(args) > 13:
            args = (*args[:13], training, *args[14:])
        else:
            kwargs = kwargs | {"training": training}
        with mode:
            return body_of(func)(*args, **kwargs)


# recurrent layers


def recurrent(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.lstm, gru, rnn_tanh, rnn_relu with dropout between layers: one layer at a time."""
    packed = "batch_sizes" in kwargs or (len(args) > 3 and isinstance(args[3], tuple | list))
    first = ("data", "batch_sizes", "hx") if packed else ("input", "hx")
    names = (*first, "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")
    call = dict(zip(names, args, strict=False)) | kwargs
    p, flag, num_layers = float(call["dropout"]), call["train"], call["num_layers"]
    if not mode.ours(flag):
        return func(*args, **kwargs)
    if num_layers == 1:
        return NotImplemented
    site = mode.draw.open_site({"lstm": "LSTM", "gru": "GRU"}.get(name_of(func), "RNN"), p, flag)
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
                x = mode.draw.drop_between(x, p, key, batch_first=batch_first, sizes=sizes)
            mine = slice(layer * directions, (layer + 1) * directions)
            own = tuple(s[mine] for s in states) if isinstance(states, tuple | list) else states[mine]
            head = (x, own) if sizes is None else (x, sizes, own)
            part = weights[layer * size : (layer + 1) * size]
            x, *final = func(*head, part, call["has_biases"], 1, 0.0, False, *tail)
            finals.append(final)
        return x, *(torch.cat(state) for state in zip(*finals, strict=True))


# what else is in eval mode


def statistics(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.batch_norm and F.instance_norm, in a module that is in training mode for the sake of its dropout."""
    batch = func in (F.batch_norm, torch.batch_norm)
    name = "training" if batch else "use_input_stats"
    flag = argument(args, kwargs, 5, name, not batch)
    first = 1 if func in (F.batch_norm, F.instance_norm) else 3
    has_statistics = argument(args, kwargs, first, "running_mean", None) is not None
    if isinstance(flag, HeldFlag) or not (flag and has_statistics and mode.draw.in_training()):
        return NotImplemented
    if len(args) > 5:
        return mode.run(func, (*args[:5], False, *args[6:]), kwargs)
    return mode.run(func, args, kwargs | {name: False})
