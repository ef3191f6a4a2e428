"""Random functions that a model calls itself, as a dropout of its own making: held as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.draws.dropouts import argument
from bayesdrop.randomness import GENERATOR_TAKERS, body_of, name_of

if TYPE_CHECKING:
    from bayesdrop.draws.intercept import Arguments, InterceptMode, Keywords

__all__ = ["bernoulli", "factory", "fill", "gumbel_softmax", "is_random_function", "normal"]

# Functions that use a generator and are not held: a model's own randomness.
_RANDOM = GENERATOR_TAKERS - {"rrelu", "rrelu_"} | {
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
        return bool(argument(args, kwargs, 3, "training", False))
    return name in _RANDOM


# noise that a model makes itself


def _uniform(shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    return torch.from_numpy(generator.random(shape, dtype=np.float32))


def _uniform_double(shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    return torch.from_numpy(generator.random(shape))


def _normal(shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    return torch.from_numpy(generator.standard_normal(shape))


def _exponential(shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    return torch.from_numpy(generator.standard_exponential(shape))


_Sample = Callable[[tuple[int, ...], np.random.Generator], Tensor]


def _own_noise(
    mode: InterceptMode, name: str, shape: tuple[int, ...], like: Tensor, sample: _Sample
) -> Tensor:
    """Held noise in place of what a function of torch would draw."""
    with mode:
        return mode.draw.own_noise(f"torch.{name}", shape, like, sample)


def _holdable(mode: InterceptMode, kwargs: Keywords) -> bool:
    """A generator of the model's own, or one that it has seeded, is the model's business."""
    plain = all(kwargs.get(name) is None for name in ("generator", "out", "names", "layout"))
    return plain and not mode.seeded()


def factory(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.rand, torch.randn, torch.rand_like, torch.randn_like."""
    if not _holdable(mode, kwargs):
        return NotImplemented
    name = name_of(func)
    # An empty tensor of the right kind, by torch's own rules for shape, type and device.
    empty = torch.empty_like if name.endswith("_like") else torch.empty
    drawn = empty(*args, **{key: value for key, value in kwargs.items() if key != "requires_grad"})
    if not drawn.is_floating_point():
        return NotImplemented
    sample = _normal if "randn" in name else _uniform_double if drawn.dtype == torch.float64 else _uniform
    noise = _own_noise(mode, name, tuple(drawn.shape), drawn, sample)
    with mode:
        made = noise.clone()
    return made.requires_grad_() if kwargs.get("requires_grad") else made


def bernoulli(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.bernoulli(p), torch.bernoulli(x, p), x.bernoulli_(p)."""
    if not _holdable(mode, kwargs):
        return NotImplemented
    name = name_of(func)
    x: Tensor = argument(args, kwargs, 0, "input", None)
    p = argument(args, kwargs, 1, "p", 0.5 if name.endswith("_") else x)
    like = torch.empty((), dtype=torch.float32, device=x.device)
    uniform = _own_noise(mode, name, tuple(x.shape), like, _uniform)
    with mode:
        drawn = (uniform < p).to(x.dtype)
    return mode.overwrite(x, drawn) if name.endswith("_") else drawn


def fill(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """x.uniform_(a, b), x.normal_(mean, std), x.exponential_(rate)."""
    x: Tensor = argument(args, kwargs, 0, "self", None)
    if not _holdable(mode, kwargs) or not x.is_floating_point():
        return NotImplemented
    name = name_of(func)
    sample = {"uniform_": _uniform_double, "normal_": _normal, "exponential_": _exponential}[name]
    noise = _own_noise(mode, name, tuple(x.shape), x, sample)
    with mode:
        if name == "uniform_":
            low, high = argument(args, kwargs, 1, "from", 0.0), argument(args, kwargs, 2, "to", 1.0)
            drawn = low + (high - low) * noise
        elif name == "normal_":
            mean, std = argument(args, kwargs, 1, "mean", 0.0), argument(args, kwargs, 2, "std", 1.0)
            drawn = mean + std * noise
        else:
            drawn = noise / argument(args, kwargs, 1, "lambd", 1.0)
    return mode.overwrite(x, drawn)


def normal(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """torch.normal(mean, std) of tensors, or torch.normal(mean, std, size)."""
    mean, std = argument(args, kwargs, 0, "mean", 0.0), argument(args, kwargs, 1, "std", 1.0)
    size = argument(args, kwargs, 2, "size", None)
    if not _holdable(mode, kwargs):
        return NotImplemented
    if size is not None:
        like = torch.empty(size, dtype=kwargs.get("dtype"), device=kwargs.get("device"))
    else:
        like = torch.empty_like(torch.as_tensor(mean) + torch.as_tensor(std))
    noise = _own_noise(mode, "normal", tuple(like.shape), like, _normal)
    with mode:
        return mean + std * noise


def gumbel_softmax(mode: InterceptMode, func: Any, args: Arguments, kwargs: Keywords) -> Any:
    """F.gumbel_softmax: its own code, whose exponential noise is then held."""
    with mode:
        return body_of(func)(*args, **kwargs)
