"""What is known of a random tensor: means, variances, and covariances of its elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import torch
from torch import Tensor

__all__ = [
    "Moments",
    "Rule",
    "is_random",
    "linear",
    "loadings_of",
    "mean_of",
    "named",
    "split",
    "total",
    "unsupported",
]


@dataclass(frozen=True, eq=False)
class Moments:
    """A random tensor, taken as Gaussian:

        x = mean + sum_r loadings_r e_r + own noise,        e_r of variance one, independent

    The noises e_r are values of the leaves that are followed; apart from them, elements are independent.

    Attributes:
        mean: E[x].
        own: variance that an element shares with no other.
        loadings: by the number of a leaf, (R, *shape): what each of its R values adds to an element.
        source: (u, f) if x = f(u), element by element.
        straight: whether that f is a x + b, so that x is as Gaussian as u.
        product: (y, z) if x = y z with a mask z; y may be a constant.
        mask: whether x is a mask itself: 0, or one number above 0.
    """

    mean: Tensor
    own: Tensor
    loadings: Mapping[int, Tensor] = field(default_factory=dict)
    source: tuple[Moments, Callable[[Tensor], Tensor]] | None = None
    straight: bool = True
    product: tuple[Tensor | Moments, Moments] | None = None
    mask: bool = False

    @property
    def variance(self) -> Tensor:
        """Var[x], element by element."""
        return total(self.own, *(loading.square().sum(0) for loading in self.loadings.values()))

    def with_source(self, x: Moments, f: Callable[[Tensor], Tensor], *, straight: bool = False) -> Moments:
        """The same moments, with a note that they are those of f(x), element by element."""
        if x.source is None:
            return replace(self, source=(x, f), straight=straight)
        root, inner = x.source
        return replace(self, source=(root, lambda u: f(inner(u))), straight=straight and x.straight)


#: from a torch function, its arguments and its keywords (random ones as Moments) to its result
Rule = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def is_random(value: Any) -> TypeGuard[Moments]:
    """Whether a value has a variance."""
    return isinstance(value, Moments)


def mean_of(value: Any) -> Any:
    """E[x]; a constant is its own mean."""
    return value.mean if isinstance(value, Moments) else value


def loadings_of(value: Any) -> Mapping[int, Tensor]:
    """The loadings of a random value; none of a constant."""
    return value.loadings if isinstance(value, Moments) else {}


def total(first: Tensor, *more: Tensor) -> Tensor:
    """The sum of the tensors."""
    for tensor in more:
        first = first + tensor
    return first


def linear(x: Moments, f: Callable[[Tensor], Tensor], squared: Callable[[Tensor], Tensor]) -> Moments:
    """A linear map without offset: f of the mean and of every loading, `squared` of the own variances.

    Args:
        x: what is mapped.
        f: sum_j a_ij x_j.
        squared: sum_j a_ij^2 v_j.
    """
    loadings = {leaf: torch.vmap(f)(loading) for leaf, loading in x.loadings.items()}
    return Moments(f(x.mean), squared(x.own).clamp_min(0), loadings)


def split(mean: Tensor, variance: Tensor, loadings: Mapping[int, Tensor]) -> Moments:
    """Moments with the given variance, of which the loadings explain a part."""
    explained = (-loading.square().sum(0) for loading in loadings.values())
    return Moments(mean, total(variance, *explained).clamp_min(0), loadings)


def named(names: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], **defaults: Any) -> list[Any]:
    """The arguments of a call that are called `names`, in this order."""
    order = names.split()
    given = defaults | dict(zip(order, args, strict=False)) | dict(kwargs)
    return [given.get(name) for name in order]


def unsupported(name: str, reason: str = "") -> ValueError:
    """The error for an operation that has no rule."""
    because = f" ({reason})" if reason else ""
    return ValueError(
        f"predict: method='moments' has no rule for {name} of a random value{because}; use method='draws'."
    )
