"""A pass without noise that takes notes: which sites there are, what they are handed, where the rows are."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torch import Tensor, nn

from bayesdrop.draws.held import HeldNoise
from bayesdrop.draws.layout import Layout, RowAxis
from bayesdrop.draws.private import copied_arguments
from bayesdrop.draws.sites import HeldFlag, Site
from bayesdrop.draws.source import Sampler
from bayesdrop.draws.subject import Subject

__all__ = ["Study", "Watcher", "watched"]


@dataclass(frozen=True)
class Study:
    """What is known of a model.

    Attributes:
        trained: paths of modules that are in training mode inside a draw, for the sake of their dropout.
        rows: where each site keeps the rows of a batch.
        one_row: the shape that each site has in a pass of one row, where that is all that is known.
        off: sites that are on in training mode and cannot be on in a draw.
        sets_flags: whether the model itself calls train() or eval() in its forward.
        is_chain: whether it is a chain of known layers, where rows are on axis 0 everywhere.
        grouped: paths of stochastic layers to which rows come on axis 0, in their order, so that each group
            of rows can have noise of its own; found only where that is wanted.
    """

    trained: frozenset[str] = frozenset()
    rows: Mapping[str, RowAxis] = field(default_factory=dict)
    off: tuple[Site, ...] = ()
    one_row: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sets_flags: bool = False
    is_chain: bool = False
    grouped: frozenset[str] = frozenset()


class Watcher(HeldNoise):
    """Lets everything pass without noise, and takes notes."""

    per_row = False

    def __init__(self, model: nn.Module, trained: frozenset[str]) -> None:
        super().__init__(model, study=Study(trained))
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.values: dict[str, Tensor] = {}
        #: sites that draw their own numbers in something that is not called dropout
        self.unlike: set[str] = set()
        #: sites that were handed `self.training` itself
        self.flagged: set[str] = set()
        self.output: Any = None
        self.sets_flags = False

    def _after(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
        self.sets_flags = self.sets_flags or not self.flags_are_set()
        return super()._after(module, args, *rest)

    def open_site(self, kind: str, p: float, flag: Any) -> str | None:
        key = super().open_site(kind, p, flag)
        if key is not None and isinstance(flag, HeldFlag):
            self.flagged.add(key)
        return key

    def noise(
        self, module: nn.Module, name: str, shape: tuple[int, ...], like: Tensor, sample: Sampler
    ) -> None:
        return None

    def drop(
        self,
        x: Tensor,
        p: float,
        site: str,
        *,
        spatial: int | None = None,
        alpha: bool = False,
        attention: bool = False,
    ) -> Tensor:
        self._place(site, tuple(x.shape))
        self.values[site] = x.detach().clone()
        return x

    def drop_between(
        self, x: Tensor, p: float, site: str, *, batch_first: bool, sizes: Tensor | None = None
    ) -> Tensor:
        if sizes is None:
            self._place(site, tuple(x.shape))
            self.values[site] = x.detach().clone()
        return x

    def own_noise(self, kind: str, shape: tuple[int, ...], like: Tensor, sample: Sampler) -> Tensor:
        before = set(self.sites)
        noise = super().own_noise(kind, shape, like, sample)
        if not self._is_called_dropout():
            self.unlike.update(set(self.sites) - before)
        return noise

    def _place(
        self, site: str, shape: tuple[int, ...], *, channels: int | None = None, axis: int | None = None
    ) -> Layout:
        self.shapes[site] = shape
        return super()._place(site, shape, channels=channels, axis=axis)

    def _is_called_dropout(self) -> bool:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self")
            inside = isinstance(owner, nn.Module) and owner in self._paths
            names = frame.f_code.co_name + (type(owner).__name__ if inside else "")
            # The names of this library are no evidence.
            ours = frame.f_globals.get("__name__", "").startswith("bayesdrop.")
            if not ours and _DROPOUT.search(names):
                return True
            if inside:
                return False
            frame = frame.f_back
        return False

    def on(self, path: str, *, flagged: bool = False) -> Counter[float | None]:
        """Rates of the sites of a module that are on; only those that were handed a flag, if asked."""
        return Counter(
            site.p
            for key, site in self.sites.items()
            if site.path == path
            and site.random
            and key not in self.unlike
            and (key in self.flagged or not flagged)
        )

    def differs(self, other: Watcher, path: str) -> bool:
        """Whether training mode, as `other` saw it, would change which sites of a module are on.

        A site that is on without regard to any flag is on because the model wants it so; one that training
        mode does not come to, by chance or by choice, says nothing.
        """
        if other.on(path) - self.on(path):
            return True
        as_many = other.opened(path) >= self.opened(path)
        return as_many and bool(self.on(path, flagged=True) - other.on(path))

    def opened(self, path: str) -> int:
        """How many sites of a module were come to, on or off."""
        return sum(site.path == path for key, site in self.sites.items() if key not in self.unlike)


_DROPOUT = re.compile("drop|stochastic|noise", re.IGNORECASE)


def watched(subject: Subject, inputs: tuple[Any, Any], trained: frozenset[str]) -> Watcher:
    """A pass of a model, with the modules at some paths in training mode."""
    watcher, output = subject.run(
        lambda model: Watcher(model, trained), copied_arguments(inputs, tensors=True)
    )
    watcher.output = output
    return watcher
