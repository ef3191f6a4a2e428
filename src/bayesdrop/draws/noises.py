"""The noise of every site of a model: what layers and the function mode ask a draw for.

Noise is keyed by (seed, draw, site): it depends on nothing else, so that a draw is the same function in every
call, for every batch, batch size and order of batches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.draws.indices import cannot_group, draw_indices, rows_in_group
from bayesdrop.draws.layout import Layout, RowAxis, layout, row_axis
from bayesdrop.draws.sites import HeldFlag, Selection, Site, StochasticModule
from bayesdrop.draws.source import NoiseSource, Sampler
from bayesdrop.errors import must, whole_number
from bayesdrop.functional.bits import random_bits
from bayesdrop.functional.noise import KeepNoise
from bayesdrop.inputs import batch_rows

if TYPE_CHECKING:
    from bayesdrop.draws.watch import Study

__all__ = ["NOT_READY", "SiteNoise"]

#: no noise, not even none, was given to a layer yet
NOT_READY: Any = object()


class SiteNoise:
    """Noise of every site of a model, made on first use and then held. See `HeldNoise` for the arguments."""

    #: by which its hooks on a module are known
    is_draw_of_model = True
    #: whether every row has noise of its own
    per_row: bool
    #: whether every request for noise must be seen, as by a draw that takes notes
    sees_all = True
    #: whether passes of the model are watched; those of a chain of known layers need not be
    _is_watched = True

    def __init__(
        self,
        model: nn.Module,
        *,
        seed: int = 0,
        index: int | Sequence[int] = 0,
        selection: Selection | None = None,
        source: NoiseSource | None = None,
        study: Study | None = None,
        variational: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(must(type(self).__name__, "model", "an nn.Module", model))
        self.model = model
        self.seed = whole_number(type(self).__name__, "seed", seed)
        self.index = draw_indices(type(self).__name__, index, several=not self.per_row)
        indices = (self.index,) if isinstance(self.index, int) else self.index
        #: how many functions the rows of a batch are shared among
        self.num_functions = len(indices)
        self._indices = indices
        self.rows: int | None = None
        #: every site of the latest pass, on or off
        self.sites: dict[str, Site] = {}
        #: names of functions in the model that draw from the global generator
        self.foreign: list[str] = []
        self._selection = selection or Selection()
        self._source = source or NoiseSource(seed, once=True)
        self._study = study
        self._variational = variational
        self._paths = {module: path for path, module in model.named_modules()}
        self._held: dict[tuple[str, tuple[int, ...], int | None], Tensor] = {}
        self._ready: dict[Any, Tensor | None] = {}
        # Of a model that is called with tokens: how many, and how many came before them.
        self._length: int | None = None
        self._past = 0
        self._calls: dict[str, int] = {}
        self._inside: str | None = None
        #: sites of which the shapes of one row and of several do not tell how the rows lie, and what was
        #: assumed
        self.unsure: dict[str, RowAxis | None] = {}
        #: paths of modules whose training flag was looked at, and not only handed on
        self.asked: set[str] = set()
        #: whether a module of the model itself ran, where `model` is a private copy of it
        self.escaped = False
        self._originals: Mapping[nn.Module, nn.Module] = {}
        self._chosen: Mapping[nn.Module, nn.Module] = {}
        self._shared_tensors: Sequence[Tensor] = ()

    def watch_over(self, tensors: Sequence[Tensor], copies: Mapping[nn.Module, nn.Module]) -> None:
        """`model` is a private copy: what it shares with the model itself, and every module's copy."""
        self._shared_tensors = tensors
        self._originals = copies
        self._chosen = {copy: original for original, copy in copies.items()}

    # what layers and the function mode ask for

    def holds(self, module: nn.Module) -> bool:
        """Whether `module` is part of the model of this draw."""
        return module in self._paths

    def selected(self, path: str) -> bool:
        """Whether the sites of the module at `path` are on."""
        return self._selection.allows(path, self._users_module(path))

    def ready(self, module: nn.Module, name: Any, x: Tensor) -> Any:
        """What a layer was given for an input like `x` before; NOT_READY if nothing."""
        if self.sees_all:
            return NOT_READY
        with torch._C.DisableTorchFunction():
            return self._ready.get((module, name, x.shape, x.dtype, x.device), NOT_READY)

    def remember(self, module: nn.Module, name: Any, x: Tensor, noise: Tensor | None) -> None:
        """What `ready` gives from now on."""
        if not self.sees_all:
            with torch._C.DisableTorchFunction():
                self._ready[module, name, x.shape, x.dtype, x.device] = noise

    def layer_noise(
        self,
        module: nn.Module,
        name: str,
        x: Tensor,
        rows: int | None,
        shape: Callable[[int], tuple[int, ...]],
        sample: Sampler,
        *,
        sets: bool = False,
    ) -> Tensor | None:
        """The noise called `name` of a stochastic layer, so as to broadcast against what it multiplies.

        Args:
            module: the layer.
            name: which of its noises.
            x: its input.
            rows: of the input; None if it has no axis of rows.
            shape: from the number of rows that need noise of their own to the noise's shape.
            sample: makes noise on the CPU.
            sets: where each of several functions has its own: (K, ...) instead of noise of all rows.
        """
        noise = self.ready(module, name, x)
        if noise is not NOT_READY:
            return noise  # type: ignore[no-any-return]
        if self.num_functions > 1:
            self._check_grouped(module, rows)
        own = rows if self.per_row and rows is not None else 1
        noise = self.noise(module, name, shape(own), x, sample)
        if noise is not None and self.num_functions > 1:
            noise = self._for_rows(noise, rows, shape, sets=sets)
        self.remember(module, name, x, noise)
        return noise  # type: ignore[no-any-return]

    def made_of_bits(
        self,
        module: nn.Module,
        name: str,
        x: Tensor,
        rows: int | None,
        shape: Callable[[int], tuple[int, ...]],
        make: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """What `make` makes of the random bits of a layer's mask, laid out as the mask is.

        Args:
            module: the layer.
            name: which of its noises.
            x: its input.
            rows: as in `layer_noise`.
            shape: as in `layer_noise`.
            make: from bits, on the CPU, to numbers, element by element.
        """
        own = rows if self.per_row and rows is not None else 1
        with torch._C.DisableTorchFunction(), torch.inference_mode(False):
            # From a source of their own: that of the noise keeps blocks of noise.
            source = NoiseSource(self._source.seed)
            bits = self._made(f"{self._paths[module]}.{name}", shape(own), _bits, source)
            made = make(bits).to(device=x.device, dtype=x.dtype)
            return made if self.num_functions == 1 else self._for_rows(made, rows, shape, sets=False)

    def _for_rows(
        self, noise: Tensor, rows: int | None, shape: Callable[[int], tuple[int, ...]], *, sets: bool
    ) -> Tensor:
        """Noises of all functions, (K, *shape(1)), for the rows of a layer's input."""
        with torch._C.DisableTorchFunction():
            count = self.num_functions
            noise = noise.reshape(shape(count))
            each = 1 if sets else rows_in_group(type(self).__name__, rows, count)
            return noise if each == 1 else noise.repeat_interleave(each, 0)

    def _check_grouped(self, module: nn.Module, rows: int | None) -> None:
        """Raise unless rows come to a layer in groups, one function's after another's."""
        owner, path, known = type(self).__name__, self._paths[module], self._study
        grouped = known is not None and (known.is_chain or path in known.grouped)
        if rows is None or not (grouped or not self._is_watched):
            why = f"it cannot be told which rows {path or 'the model'!r} is given"
            raise cannot_group(owner, self.num_functions, why)
        rows_in_group(owner, rows, self.num_functions)

    def noise(
        self, module: nn.Module, name: str, shape: tuple[int, ...], like: Tensor, sample: Sampler
    ) -> Tensor | None:
        """The noise called `name` of a stochastic layer: made once, then held. None if it is off.

        Args:
            module: a module of the model.
            name: which of the module's noises.
            shape: of the noise.
            like: the result has its dtype and device.
            sample: makes noise on the CPU, so that a draw is the same function on every device.
        """
        path = self._paths[module]
        key = f"{path}.{name}"
        random = not isinstance(module, StochasticModule) or module.is_random()
        selected = self.selected(path)
        if key not in self.sites:
            rate = getattr(module, "p", None)
            p = float(rate.detach()) if isinstance(rate, Tensor) and rate.dim() == 0 else None
            reason = "on" if random and selected else "p = 0" if selected else "excluded"
            kind = f"{type(module).__name__}.{name}"
            self.sites[key] = Site(path, 0, kind, p, shape, random and selected, reason)
        return self.held(key, shape, like, sample) if selected else None

    def held(self, key: str, shape: tuple[int, ...], like: Tensor, sample: Sampler) -> Tensor:
        """Noise of a site, made on first use."""
        start = getattr(sample, "start", None)
        noise = self._held.get((key, shape, start))
        if noise is None or noise.dtype != like.dtype or noise.device != like.device:
            # Made out of sight of the mode that watches the model.
            with torch._C.DisableTorchFunction(), torch.inference_mode(False):
                noise = self._made(key, shape, sample).to(device=like.device, dtype=like.dtype)
            self._held[key, shape, start] = noise
        return noise

    def _made(
        self, key: str, shape: tuple[int, ...], sample: Sampler, source: NoiseSource | None = None
    ) -> Tensor:
        """Noise of a site: that of one function, or (K, *shape) of several."""
        made = (source or self._source).chosen(key, self._indices, shape, sample)
        return made if self.num_functions > 1 else made[0]

    def open_site(self, kind: str, p: float, flag: Any) -> str | None:
        """The key of a dropout call's noise, or None if the call is off.

        Args:
            kind: what was called.
            p: its rate.
            flag: its training argument: a `HeldFlag` if that came from `self.training`.
        """
        path = self._path_of(flag)
        key, call = self._next_call(path)
        module = self._module(path)
        if isinstance(module, nn.Dropout | nn.modules.dropout._DropoutNd):
            kind = type(module).__name__
        if not isinstance(flag, HeldFlag) and not flag:
            reason = "called with training=False"
        elif p == 0:
            reason = "p = 0"
        elif not self.selected(path):
            reason = "excluded"
        else:
            reason = "on"
        self.sites[key] = Site(path, call, kind, p, None, reason == "on", reason)
        return key if reason == "on" else None

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
        """`x` with held dropout noise.

        Args:
            x: any tensor.
            p: the rate.
            site: its key.
            spatial: for channel-wise noise, the number of position axes; 0 for any number.
            alpha: dropped units take SELU's negative limit.
            attention: `x` are weights of attention, (..., heads, queries, keys).
        """
        if p >= 1:
            return torch.zeros_like(x)
        channels = None
        if spatial is not None:
            # Without a batch axis the channels come first; F.dropout2d takes three axes for (N, C, L).
            channels = 0 if spatial in (1, 3) and x.dim() == spatial + 1 else 1
        place = self._place(site, tuple(x.shape), channels=channels)
        positions = (None, False) if channels is not None else self._positions(x, attention=attention)
        of_pixels = channels is None and positions[0] is None and self._is_map(x) and place.split is None
        kept = self._keep(site, place.shape, p, x, *positions, of_pixels=of_pixels)
        noise = self._in_groups(site, place, kept)
        if not alpha:
            return place.multiply(x, noise)
        limit = -1.7580993408473766
        scale = ((1 - p) * (1 + p * limit**2)) ** -0.5
        is_kept = place.multiply(torch.ones_like(x), noise) != 0
        dropped: Tensor = torch.where(is_kept, x, limit) * scale - scale * limit * p
        return dropped

    def drop_between(
        self, x: Tensor, p: float, site: str, *, batch_first: bool, sizes: Tensor | None = None
    ) -> Tensor:
        """The output of one recurrent layer on its way to the next.

        Args:
            x: (L, N, D), (N, L, D), or packed (steps of all rows, D).
            p: the rate.
            site: its key.
            batch_first: whether rows come before time.
            sizes: rows at each time step, of a packed sequence.
        """
        if p >= 1:
            return torch.zeros_like(x)
        if sizes is not None and self.num_functions > 1:
            why = "sequences that are packed are not in the order of their rows"
            raise cannot_group(type(self).__name__, self.num_functions, why)
        if sizes is not None and not self.per_row:
            if self._variational:
                return x * self._keep(site, (1, x.shape[1]), p, x)
            # Step by step: how long the longest sequence of a batch is must not change a draw.
            steps = [self._keep(f"{site}.step{t}", (x.shape[1],), p, x) for t in range(len(sizes))]
            at = torch.repeat_interleave(torch.arange(len(sizes)), sizes).to(x.device)
            return x * torch.stack(steps)[at]
        if sizes is not None:
            return x * self._keep(site, tuple(x.shape), p, x)
        shape = list(x.shape)
        if self._variational:
            shape[1 if batch_first else 0] = 1
        place = self._place(site, tuple(shape), axis=0 if batch_first else 1)
        noise = self._in_groups(site, place, self._keep(site, place.shape, p, x))
        return x * (noise if place.split is None else place.spread(noise, tuple(shape)))

    def own_noise(self, kind: str, shape: tuple[int, ...], like: Tensor, sample: Sampler) -> Tensor:
        """Held noise for a model that calls a random function itself.

        Args:
            kind: what was called.
            shape: of what it asks for.
            like: the result has its dtype and device.
            sample: makes noise on the CPU.
        """
        path = self._path_of(None)
        key, call = self._next_call(path)
        place = self._place(key, shape)
        on = self.selected(path)
        reason = "on" if on else "excluded: the same in every draw"
        self.sites[key] = Site(path, call, kind, None, place.shape, on, reason)
        if not on:
            return place.spread(self._fixed(key, place.shape, like, sample), shape)
        return place.spread(self._in_groups(key, place, self.held(key, place.shape, like, sample)), shape)

    def _fixed(self, key: str, shape: tuple[int, ...], like: Tensor, sample: Sampler) -> Tensor:
        """Noise that is the same in every draw."""
        with torch._C.DisableTorchFunction():
            return self._source.rows(key, 0, 1, shape, sample)[0].to(device=like.device, dtype=like.dtype)

    def _place(
        self, site: str, shape: tuple[int, ...], *, channels: int | None = None, axis: int | None = None
    ) -> Layout:
        return layout(
            shape, self.rows, per_row=self.per_row, channels=channels, axis=self._rows_at(site, shape) or axis
        )

    def _in_groups(self, site: str, place: Layout, noise: Tensor) -> Tensor:
        """The noise of a call of dropout; of several functions, for every group of rows its own."""
        if self.num_functions == 1:
            return noise
        known = self._study
        sure = known is not None and (known.is_chain or site in known.rows)
        if not sure or place.row is None or self.rows is None:
            path = site.rpartition(":")[0] or "the model"
            why = f"it cannot be told where the rows of a batch are in the dropout of {path!r}"
            raise cannot_group(type(self).__name__, self.num_functions, why)
        with torch._C.DisableTorchFunction():
            return place.for_groups(noise, self.rows)

    def _rows_at(self, site: str, shape: tuple[int, ...]) -> RowAxis | None:
        """Where a site keeps the rows, as far as that is known."""
        known = self._study
        if known is None or self.per_row or self.rows in (None, 1):
            return None
        place, one = known.rows.get(site), known.one_row.get(site)
        if place is None and one is not None:
            place = row_axis(one, shape, self.rows)
            if place is None or (place.axis is not None and one[place.axis] > 1):
                self.unsure[site] = place
        return place

    def _positions(self, x: Tensor, *, attention: bool) -> tuple[int | None, bool]:
        """The position that noise of every element of `x` starts from, and whether it is one of pairs of
        positions.

        A model that goes on from a cache is called with the positions that follow. What it adds to the
        cache must be what it would have been in a pass of the whole sequence.
        """
        if self.per_row:
            return None, False
        if x.dim() == 3:
            return (self._past if self._length in x.shape[:2] else 0), False
        if x.dim() == 4 and (attention or x.shape[2] == self._length):
            return self._past, True
        return None, False

    def _is_map(self, x: Tensor) -> bool:
        """Whether it is (N, C, H, W), and not a weight."""
        return x.dim() == 4 and x.shape[0] == self.rows

    def _keep(
        self,
        site: str,
        shape: tuple[int, ...],
        p: float,
        like: Tensor,
        start: int | None = None,
        tiled: bool = False,
        *,
        of_pixels: bool = False,
    ) -> Tensor:
        path, _, call = site.rpartition(":")
        name = f"{path}:{call.partition('.')[0]}"
        known = self.sites.get(name)
        if known is not None and known.shape is None:
            self.sites[name] = replace(known, shape=shape)
        return self.held(site, shape, like, KeepNoise(torch.tensor(p), start, tiled, of_pixels))

    def saw_foreign_randomness(self, name: str) -> None:
        """Note that the model draws from the global generator itself."""
        self.foreign.append(name)

    @contextmanager
    def inside(self, path: str | None) -> Iterator[None]:
        """Dropout calls made here belong to the module at `path`."""
        before, self._inside = self._inside, path
        try:
            yield
        finally:
            self._inside = before

    # where a call comes from

    def is_running(self) -> bool:
        """Whether code of the model is on the stack: one of its modules may be called alone."""
        return self._path_on_stack() is not None

    def _path_of(self, flag: Any) -> str:
        if isinstance(flag, HeldFlag):
            return flag.path
        if self._inside is not None:
            return self._inside
        # A call without self.training: the innermost module on the stack made it.
        return self._path_on_stack() or ""

    def _path_on_stack(self) -> str | None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self")
            path: str | None = self._paths.get(owner) if isinstance(owner, nn.Module) else None
            if path is not None:
                return path
            if isinstance(owner, nn.Module) and owner in self._originals:
                self.escaped = True
            frame = frame.f_back
        return None

    def _module(self, path: str) -> nn.Module | None:
        module: nn.Module = self.model
        for name in path.split(".") if path else ():
            inner = module._modules.get(name)
            if inner is None:
                return None
            module = inner
        return module

    def _users_module(self, path: str) -> nn.Module | None:
        """The module that the user knows, not a copy of it."""
        module = self._module(path)
        return module if module is None else self._chosen.get(module, module)

    def _next_call(self, path: str) -> tuple[str, int]:
        call = self._calls.get(path, 0)
        self._calls[path] = call + 1
        return f"{path}:{call}", call

    # a pass

    def in_training(self) -> bool:
        """Whether the module that is running is in training mode, for the sake of its dropout."""
        trained = self._study.trained if self._study is not None else ()
        return bool(trained) and self._path_of(None) in trained

    def start_pass(self, inputs: tuple[Any, Any]) -> None:
        """A pass of the whole model begins: the calls of each module are counted anew."""
        self.rows = batch_rows(inputs)
        self._length, self._past = _tokens(inputs)
        self._calls.clear()


def _bits(shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    return random_bits(shape, torch.device("cpu"), generator)


def _tokens(inputs: tuple[Any, dict[str, Any]]) -> tuple[int | None, int]:
    """How many tokens a model is called with, and how many of the same sequences it has in a cache."""
    values = (*inputs[0], *inputs[1].values())
    embedded = inputs[1].get("inputs_embeds")
    tokens = [
        v for v in values if isinstance(v, Tensor) and v.dim() == 2 and v.dtype in (torch.int64, torch.int32)
    ]
    length = embedded.shape[1] if isinstance(embedded, Tensor) else tokens[0].shape[1] if tokens else None
    cached = next((value for value in values if callable(getattr(value, "get_seq_length", None))), None)
    return length, 0 if cached is None else int(cached.get_seq_length())
