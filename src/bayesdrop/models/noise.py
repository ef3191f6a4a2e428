"""The noise of the networks built here: a module in the place of `nn.Dropout`, or noise on weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from bayesdrop.errors import must, must_be_module, real_number

__all__ = ["NoiseMaker"]


@dataclass(frozen=True)
class NoiseMaker:
    """Makes the noise of one network.

    Attributes:
        owner: the function that errors name.
        p: chance of dropping; at 0, `nn.Dropout` and noise modules are left out.
        layer: makes a stochastic layer from (weight layer, p, **options), or None.
        noise: makes a noise module from (number of units, p, **options), or None.
        plain: makes the dropout if both are None.
        options: of `layer` or `noise`.
    """

    owner: str
    p: float
    layer: Callable[..., nn.Module] | None = None
    noise: Callable[..., nn.Module] | None = None
    plain: Callable[[float], nn.Module] = nn.Dropout
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", real_number(self.owner, "p", self.p, "in [0, 1)", at_least=0, below=1))
        for name, made in (("layer", self.layer), ("noise", self.noise)):
            if made is not None and (not callable(made) or isinstance(made, nn.Module)):
                want = "a function or a class that makes modules, or None"
                raise TypeError(must(self.owner, name, want, made))
        if self.layer is not None and self.noise is not None:
            raise ValueError(must(self.owner, "noise", "None where there is a `layer`", self.noise))
        if self.layer is None and self.noise is None and self.options:
            want = "none without `layer` or `noise`"
            raise ValueError(must(self.owner, "options", want, sorted(self.options)))

    def module(self, num_units: int) -> list[nn.Module]:
        """The noise module after a layer of `num_units` units or channels, in a list; empty for none."""
        if self.layer is not None or self.p == 0:
            return []
        if self.noise is None:
            return [self.plain(self.p)]
        return [self._made("noise", self.noise, num_units)]

    def wrapped(self, part: nn.Module) -> nn.Module:
        """The weight layer, with noise on its weights if there is a `layer`."""
        return part if self.layer is None else self._made("layer", self.layer, part)

    def _made(self, argument: str, maker: Callable[..., nn.Module], what: Any) -> nn.Module:
        made = maker(what, self.p, **self.options)
        must_be_module(self.owner, argument, made, hint="It must make modules when it is called.")
        return made
