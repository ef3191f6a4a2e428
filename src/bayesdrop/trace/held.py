"""The noise that a draw gives to the sites of a model: made once, shared by all rows, then held.

Noise depends on (seed, draw, site) and on nothing else, so that a draw is the same function in every call,
for every batch, batch size and order of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import must, whole_number
from bayesdrop.inputs import batch_rows, tensors_in
from bayesdrop.noise import KeepNoise, NoiseSource, PixelNoise, PixelSource, Sampler
from bayesdrop.noise.bits import random_bits
from bayesdrop.trace.sites import Selection, Site, SiteBook, StochasticModule
from bayesdrop.trace.tape import Recorder

__all__ = [
    "NOT_READY",
    "HeldNoise",
    "Layout",
    "ModelFindings",
    "RowAxis",
    "cannot_group",
    "check_groups",
    "layout",
    "row_axis",
]

#: a layer has not asked for noise yet; None, in contrast, says that its noise is off
NOT_READY: Any = object()
_Shape = tuple[int, ...]
#: from the number of rows with their own noise to the noise's shape
_ShapeOf = Callable[[int], _Shape]


@dataclass(frozen=True)
class RowAxis:
    """Where the rows of a batch are in a tensor.

    Attributes:
        axis: the axis of the rows; None for a tensor without rows, as a weight matrix.
        innermost: where the axis holds rows times something else (heads, positions): whether the rows vary
            fastest, so that neighbours on the axis belong to different rows.
    """

    axis: int | None
    innermost: bool = False


@dataclass(frozen=True)
class Layout:
    """How noise multiplies a tensor.

    Attributes:
        shape: of the noise.
        split: shape to give the tensor first, if rows share an axis with something else; else None.
        row: the axis of the noise that stands for the rows, of length one; None if there is none.
    """

    shape: _Shape
    split: _Shape | None
    row: int | None = None

    def multiply(self, x: Tensor, noise: Tensor) -> Tensor:
        """x * noise, with the shape of x."""
        if self.split is None:
            return x * noise
        return (x.reshape(self.split) * noise).reshape(x.shape)

    def spread(self, noise: Tensor, shape: _Shape) -> Tensor:
        """The noise expanded to a tensor of this shape."""
        if self.split is None:
            return noise.expand(shape)
        return noise.expand(self.split).reshape(shape)

    def for_groups(self, noise: Tensor, rows: int) -> Tensor:
        """The noise of K functions, (K, *shape), laid out so that each group of rows meets its function's.

        Args:
            noise: of all K functions.
            rows: number of rows of the whole batch.
        """
        if self.row is None:
            raise ValueError("there are no rows")
        merged = noise.squeeze(self.row + 1).movedim(0, self.row)
        return merged.repeat_interleave(rows // noise.shape[0], self.row)


def row_axis(one: _Shape, many: _Shape, rows: int) -> RowAxis | None:
    """Where rows are, from the shapes that a tensor has for one row and for several.

    None if the shapes do not show it, as in a product of rows with rows, (N, N).
    """
    if len(one) != len(many):
        return None
    grown = [axis for axis, (small, large) in enumerate(zip(one, many, strict=True)) if small != large]
    if not grown:
        return RowAxis(None)
    if len(grown) > 1 or many[grown[0]] != rows * one[grown[0]]:
        return None
    return RowAxis(grown[0])


def layout(
    x: Tensor | _Shape,
    rows: int | None,
    *,
    per_row: bool,
    channels: int | bool | None = None,
    axis: int | RowAxis | None = None,
) -> Layout:
    """The noise that a tensor needs in a batch of `rows` rows.

    Noise that all rows share has the same numbers in the same order, wherever the rows are and however many
    there are: the numbers for the tensor that a single row would give.

    Args:
        x: the tensor to be multiplied, or its shape.
        rows: rows of the model's batch. None if not known: the length of axis 0.
        per_row: every row has its own noise.
        channels: an axis; all axes after it share its noise. None: every element has its own noise.
        axis: where the rows are. None if not known: axis 0 or 1 if its length is `rows`, else axis 0, shared
            with something else, rows outermost.
    """
    shape = list(x.shape if isinstance(x, Tensor) else x)
    if isinstance(channels, bool):
        channels = 1 if channels else None
    noise = list(shape)
    if channels is not None:
        noise[channels + 1 :] = [1] * len(noise[channels + 1 :])
    whole = Layout(tuple(noise), None)
    if per_row or not shape:
        return whole
    if rows is None:
        rows = shape[0] if len(shape) > 1 else 1
    place = RowAxis(axis) if isinstance(axis, int) else axis
    if place is None:
        second = len(shape) > 2 and shape[1] == rows and channels is None
        place = RowAxis(1 if second and shape[0] != rows else 0)
    at = place.axis
    if at is None or rows == 0 or shape[at] % rows:
        return whole
    inner = shape[at] // rows
    if noise[at] == 1 or inner == 1:
        noise[at] = 1
        return Layout(tuple(noise), None, at if inner == 1 else None)
    parts, sizes = ([inner, rows], [inner, 1]) if place.innermost else ([rows, inner], [1, inner])
    noise[at : at + 1] = sizes
    return Layout(tuple(noise), (*shape[:at], *parts, *shape[at + 1 :]), at + 1 if place.innermost else at)


@dataclass(frozen=True)
class ModelFindings:
    """What passes without noise have shown of a model; see `bayesdrop.trace.probe`.

    Attributes:
        trained: paths of modules that are in training mode inside a draw, because of their dropout.
        rows: where the rows of a batch are at each site.
        off: sites that are on in training mode and cannot be on in a draw.
        one_row: the shape at each site in a pass of one row, where that is all that is known.
        sets_flags: whether the model itself calls train() or eval() in its forward.
        is_chain: whether it is a chain of known layers, where rows are on axis 0 everywhere.
        is_first_look: whether no pass has been made yet. A draw then finds the rows where its recorder has
            followed them, and assumes where they are elsewhere; see `HeldNoise.assumed`.
        grouped: paths of stochastic layers that get the rows on axis 0, in order, so that each group of rows
            can have its own noise; looked for only where several functions are held at once.
    """

    trained: frozenset[str] = frozenset()
    rows: Mapping[str, RowAxis] = field(default_factory=dict)
    off: tuple[Site, ...] = ()
    one_row: Mapping[str, _Shape] = field(default_factory=dict)
    sets_flags: bool = False
    is_chain: bool = False
    is_first_look: bool = False
    grouped: frozenset[str] = frozenset()


class HeldNoise:
    """The noise of every site of a model, made on first use and then held.

    Args:
        model: any module.
        owner: the class that errors name.
        seed: names a sequence of functions.
        index: which function of the sequence: a whole number, or several where rows share noise.
        selection: which sites are on; all if None.
        source: where noise comes from; shared between draws, so that none is made twice.
        findings: what is known of the model; None if it has not been studied yet.
        variational: one mask over time between recurrent layers, instead of one for each step.
        per_row: every row has its own noise.
        offset: number of the first row of the batch, with `per_row`.
        recorder: records what is done with the noise; None if nothing is recorded.

    Attributes:
        num_functions: how many functions are held, each for its own group of rows.
        rows: number of rows of the current pass; None if it is not known.
        unsure: sites where the shapes of one row and of several do not show where the rows are, and the place
            that was assumed.
        assumed: after a first look alone, the layouts at sites whose rows the recorder could not follow, each
            with what it was chosen by.
        is_watched: whether passes of the model are watched; those of a chain of known layers need not be.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        owner: str = "FunctionDraw",
        seed: int = 0,
        index: int | Sequence[int] = 0,
        selection: Selection | None = None,
        source: NoiseSource | None = None,
        findings: ModelFindings | None = None,
        variational: bool = False,
        per_row: bool = False,
        offset: int = 0,
        recorder: Recorder | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(must(owner, "model", "an nn.Module", model))
        self.owner = owner
        self.seed = whole_number(owner, "seed", seed)
        self.index = _indices(owner, index, several=not per_row)
        self.book = SiteBook(model, selection)
        self.findings = findings
        self.per_row = per_row
        self.recorder = recorder
        self.rows: int | None = None
        self.unsure: dict[str, RowAxis | None] = {}
        self.assumed: dict[str, tuple[Layout, tuple[_Shape, int | None, int | None]]] = {}
        self.is_watched = True
        self._indices = (self.index,) if isinstance(self.index, int) else self.index
        self.num_functions = len(self._indices)
        self._source = source or NoiseSource(seed, once=True)
        self._variational = variational
        self._suffix = f"@{offset}" if per_row else ""
        self._held: dict[tuple[str, _Shape, int | None], Tensor] = {}
        self._ready: dict[Any, Tensor | None] = {}
        # For a model that is called with tokens: how many there are, and how many its cache holds already.
        self._length: int | None = None
        self._past = 0

    @property
    def sees_all(self) -> bool:
        """Whether every request for noise must be seen, as a recorder needs."""
        return self.recorder is not None

    def open(self) -> None:
        """Begin a draw: what layers were given is forgotten, as they may have been changed since."""
        self._ready.clear()

    def start_pass(self, inputs: tuple[Any, dict[str, Any]]) -> None:
        """Begin a pass of the whole model."""
        self.rows = batch_rows(inputs)
        self._length, self._past = _tokens(inputs)
        self.book.start_pass()

    def end_pass(self, *, flags_changed: bool) -> None:
        """End a pass; `flags_changed` if the model has set training flags in it. Does nothing here."""

    # stochastic layers

    def ready(self, module: nn.Module, name: Any, x: Tensor) -> Any:
        """The noise that a layer got before for an input like `x`; NOT_READY if it got none yet."""
        if self.sees_all:
            return NOT_READY
        with torch._C.DisableTorchFunction():
            return self._ready.get((module, name, x.shape, x.dtype, x.device), NOT_READY)

    def remember(self, module: nn.Module, name: Any, x: Tensor, noise: Tensor | None) -> None:
        """Keep the noise that `ready` gives from now on."""
        if not self.sees_all:
            with torch._C.DisableTorchFunction():
                self._ready[module, name, x.shape, x.dtype, x.device] = noise

    def layer_noise(
        self,
        module: nn.Module,
        name: str,
        x: Tensor,
        rows: int | None,
        shape: _ShapeOf,
        sample: Sampler,
        *,
        sets: bool = False,
    ) -> Tensor | None:
        """The noise called `name` of a stochastic layer, in a shape that broadcasts against its input.

        Args:
            module: the layer.
            name: which of its noises.
            x: its input.
            rows: of the input; None if it has no axis of rows.
            shape: from the number of rows with their own noise to the noise's shape.
            sample: makes noise on the CPU.
            sets: with K functions, give their noise as (K, ...), not repeated for all rows.
        """
        noise = self.ready(module, name, x)
        if noise is not NOT_READY:
            return noise  # type: ignore[no-any-return]
        if self.num_functions > 1:
            self._check_grouped(module, rows)
        noise = self.noise(module, name, shape(self._own_rows(rows)), x, sample)
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
        shape: _ShapeOf,
        make: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """`make(bits)` of the random bits that a layer's mask is made of, in the layout of the mask.

        Args:
            module: the layer.
            name: which of its noises.
            x: its input.
            rows: as in `layer_noise`.
            shape: as in `layer_noise`.
            make: from bits, on the CPU, to numbers, element by element.
        """
        with torch._C.DisableTorchFunction(), torch.inference_mode(False):
            # Not from `self._source`, which would keep these bits in the place of the mask.
            source = NoiseSource(self._source.seed)
            bits = self._made(f"{self.book.paths[module]}.{name}", shape(self._own_rows(rows)), _bits, source)
            made = make(bits).to(device=x.device, dtype=x.dtype)
            return made if self.num_functions == 1 else self._for_rows(made, rows, shape, sets=False)

    def noise(
        self, module: nn.Module, name: str, shape: _Shape, like: Tensor, sample: Sampler
    ) -> Tensor | None:
        """The noise called `name` of a stochastic layer: made once, then held. None if it is off.

        Args:
            module: a module of the model.
            name: which of the module's noises.
            shape: of the noise.
            like: the result has its dtype and device.
            sample: makes noise on the CPU, so that a draw is the same function on every device.
        """
        path = self.book.paths[module]
        key = f"{path}.{name}"
        selected = self.book.selected(path)
        if key not in self.book.sites:
            rate = getattr(module, "p", None)
            p = float(rate.detach()) if isinstance(rate, Tensor) and rate.dim() == 0 else None
            random = not isinstance(module, StochasticModule) or module.is_random()
            reason = "on" if random and selected else "p = 0" if selected else "excluded"
            kind = f"{type(module).__name__}.{name}"
            self.book.sites[key] = Site(path, 0, kind, p, shape, random and selected, reason)
        return self._hold(key, shape, like, self._placed(like, shape, sample)) if selected else None

    def _own_rows(self, rows: int | None) -> int:
        return rows if self.per_row and rows is not None else 1

    def _for_rows(self, noise: Tensor, rows: int | None, shape: _ShapeOf, *, sets: bool) -> Tensor:
        """The noise of all functions, (K, *shape(1)), repeated for the rows of a layer's input."""
        with torch._C.DisableTorchFunction():
            noise = noise.reshape(shape(self.num_functions))
            each = 1 if sets else _rows_in_group(self.owner, rows, self.num_functions)
            return noise if each == 1 else noise.repeat_interleave(each, 0)

    def _check_grouped(self, module: nn.Module, rows: int | None) -> None:
        """Raise unless a layer gets its rows in groups, one function's after another's."""
        path, known = self.book.paths[module], self.findings
        grouped = known is not None and (known.is_chain or path in known.grouped)
        if rows is None or not (grouped or not self.is_watched):
            why = f"it is not known which rows {path or 'the model'!r} is given"
            raise cannot_group(self.owner, self.num_functions, why)
        _rows_in_group(self.owner, rows, self.num_functions)

    # dropout

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
        followed = self.recorder is not None and self.recorder.has_rows(x)
        place = self._place(site, tuple(x.shape), channels=channels, followed=followed)
        positions = (None, False) if channels is not None else self._positions(x, attention=attention)
        noise = self._in_groups(site, place, self._keep(site, place.shape, p, x, *positions))
        if not alpha:
            return place.multiply(x, noise)
        limit = -1.7580993408473766
        scale = ((1 - p) * (1 + p * limit**2)) ** -0.5
        kept = place.multiply(torch.ones_like(x), noise) != 0
        dropped: Tensor = torch.where(kept, x, limit) * scale - scale * limit * p
        return dropped

    def drop_between(
        self, x: Tensor, p: float, site: str, *, batch_first: bool, sizes: Tensor | None = None
    ) -> Tensor:
        """The output of one recurrent layer with held dropout noise, as input of the next.

        Args:
            x: (L, N, D), (N, L, D), or packed (steps of all rows, D).
            p: the rate.
            site: its key.
            batch_first: whether rows come before time.
            sizes: rows at each time step, of a packed sequence.
        """
        if p >= 1:
            return torch.zeros_like(x)
        if sizes is not None:
            return self._drop_packed(x, p, site, sizes)
        shape = list(x.shape)
        if self._variational:
            shape[1 if batch_first else 0] = 1
        place = self._place(site, tuple(shape), axis=0 if batch_first else 1)
        noise = self._in_groups(site, place, self._keep(site, place.shape, p, x))
        return x * (noise if place.split is None else place.spread(noise, tuple(shape)))

    def _drop_packed(self, x: Tensor, p: float, site: str, sizes: Tensor) -> Tensor:
        if self.num_functions > 1:
            why = "sequences that are packed are not in the order of their rows"
            raise cannot_group(self.owner, self.num_functions, why)
        if self.per_row:
            return x * self._keep(site, tuple(x.shape), p, x)
        if self._variational:
            return x * self._keep(site, (1, x.shape[1]), p, x)
        # Step by step, so that the longest sequence of a batch does not change a draw.
        steps = [self._keep(f"{site}.step{t}", (x.shape[1],), p, x) for t in range(len(sizes))]
        at = torch.repeat_interleave(torch.arange(len(sizes)), sizes).to(x.device)
        return x * torch.stack(steps)[at]

    def own_noise(self, kind: str, shape: _Shape, like: Tensor, sample: Sampler) -> Tensor:
        """Held noise for a model that calls a random function itself.

        Args:
            kind: what was called.
            shape: of the numbers that it wants.
            like: the result has its dtype and device.
            sample: makes noise on the CPU.
        """
        key, path, call = self.book.next_call()
        place = self._place(key, shape)
        on = self.book.selected(path)
        reason = "on" if on else "excluded: the same in every draw"
        self.book.sites[key] = Site(path, call, kind, None, place.shape, on, reason)
        if on:
            noise = self._in_groups(key, place, self._hold(key, place.shape, like, sample))
            return place.spread(noise, shape)
        with torch._C.DisableTorchFunction():
            fixed = self._source.rows(key, 0, 1, place.shape, sample)[0]
            fixed = fixed.to(device=like.device, dtype=like.dtype)
        if self.recorder is not None:
            self.recorder.constant(fixed)
        return place.spread(fixed, shape)

    # making and holding

    def _hold(self, key: str, shape: _Shape, like: Tensor, sample: Sampler) -> Tensor:
        """Noise of a site, made on first use; the mode that watches the model does not see it made."""
        with torch._C.DisableTorchFunction():
            start = getattr(sample, "start", None)
            noise = self._held.get((key, shape, start))
            if noise is None or noise.dtype != like.dtype or noise.device != like.device:
                with torch.inference_mode(False):
                    noise = self._made(key, shape, sample).to(device=like.device, dtype=like.dtype)
                self._held[key, shape, start] = noise
            if self.recorder is not None:
                self.recorder.leaf(noise, key, sample)
        return noise

    def _made(self, key: str, shape: _Shape, sample: Sampler, source: NoiseSource | None = None) -> Tensor:
        """Noise of a site: (*shape) for one function, (K, *shape) for several."""
        made = (source or self._source).chosen(key + self._suffix, self._indices, shape, sample)
        return made if self.num_functions > 1 else made[0]

    def _keep(
        self, site: str, shape: _Shape, p: float, like: Tensor, start: int | None = None, tiled: bool = False
    ) -> Tensor:
        path, _, call = site.rpartition(":")
        name = f"{path}:{call.partition('.')[0]}"
        known = self.book.sites.get(name)
        if known is not None and known.shape is None:
            self.book.sites[name] = replace(known, shape=shape)
        sample: Sampler = KeepNoise(torch.tensor(p), start, tiled)
        return self._hold(
            site, shape, like, sample if start is not None else self._placed(like, shape, sample)
        )

    def _placed(self, x: Tensor, shape: _Shape, sample: Sampler) -> Sampler:
        """The sampler for the noise of `x`, as a `PixelNoise` where every pixel of an image has its own."""
        if not isinstance(self._source, PixelSource) or x.dim() != 4 or min(x.shape[-2:]) == 1:
            return sample
        return PixelNoise(sample) if shape == (self._own_rows(x.shape[0]), *x.shape[1:]) else sample

    # where the rows and the positions of a tensor are

    def agrees(self, findings: ModelFindings) -> bool:
        """Whether findings that were made after a pass show the rows where the pass assumed them.

        As in a pass with these findings, `unsure` lists the sites where they do not show it for certain.
        """
        assumed, self.assumed, self.findings = self.assumed, {}, findings
        layouts = [
            (given, self._place(site, shape, channels=channels, axis=axis))
            for site, (given, (shape, channels, axis)) in assumed.items()
        ]
        return all(given == found for given, found in layouts)

    def _place(
        self,
        site: str,
        shape: _Shape,
        *,
        channels: int | None = None,
        axis: int | None = None,
        followed: bool = False,
    ) -> Layout:
        known = self.findings
        rows: RowAxis | None = None
        # With one row it does not matter where the row is.
        if known is not None and not self.per_row and self.rows is not None and self.rows != 1:
            if not known.is_first_look:
                rows = self._rows_at(known, site, shape, self.rows)
            elif followed:
                rows = RowAxis(0)
            else:
                assumed = layout(shape, self.rows, per_row=False, channels=channels, axis=axis)
                self.assumed[site] = assumed, (shape, channels, axis)
        return layout(shape, self.rows, per_row=self.per_row, channels=channels, axis=rows or axis)

    def _rows_at(self, known: ModelFindings, site: str, shape: _Shape, rows: int) -> RowAxis | None:
        """Where the rows are at a site, as far as passes of one row and of several have shown it."""
        place, one = known.rows.get(site), known.one_row.get(site)
        if place is None and one is not None:
            place = row_axis(one, shape, rows)
            if place is None or (place.axis is not None and one[place.axis] > 1):
                self.unsure[site] = place
        return place

    def _in_groups(self, site: str, place: Layout, noise: Tensor) -> Tensor:
        """The noise of a dropout call; with several functions, each group of rows has its function's."""
        if self.num_functions == 1:
            return noise
        known = self.findings
        sure = known is not None and (known.is_chain or site in known.rows)
        if not sure or place.row is None or self.rows is None:
            path = site.rpartition(":")[0] or "the model"
            why = f"it is not known where the rows of a batch are in the dropout of {path!r}"
            raise cannot_group(self.owner, self.num_functions, why)
        with torch._C.DisableTorchFunction():
            return place.for_groups(noise, self.rows)

    def _positions(self, x: Tensor, *, attention: bool) -> tuple[int | None, bool]:
        """The position that the noise of `x` starts from, and whether it is noise of pairs of positions.

        A model that continues from a cache is called with the positions that follow. They must have the noise
        that they would have in a pass of the whole sequence.
        """
        if self.per_row:
            return None, False
        if x.dim() == 3:
            return (self._past if self._length in x.shape[:2] else 0), False
        if x.dim() == 4 and (attention or x.shape[2] == self._length):
            return self._past, True
        return None, False


def _bits(shape: _Shape, generator: np.random.Generator) -> Tensor:
    return random_bits(shape, torch.device("cpu"), generator)


def _tokens(inputs: tuple[Any, dict[str, Any]]) -> tuple[int | None, int]:
    """How many tokens a model is called with, and how many tokens before them its cache holds."""
    values = (*inputs[0], *inputs[1].values())
    embedded = inputs[1].get("inputs_embeds")
    tokens = [
        v for v in values if isinstance(v, Tensor) and v.dim() == 2 and v.dtype in (torch.int64, torch.int32)
    ]
    length = embedded.shape[1] if isinstance(embedded, Tensor) else tokens[0].shape[1] if tokens else None
    cached = next((value for value in values if callable(getattr(value, "get_seq_length", None))), None)
    return length, 0 if cached is None else int(cached.get_seq_length())


# several functions, each for its own group of rows


def _indices(owner: str, index: Any, *, several: bool) -> int | tuple[int, ...]:
    """`index` as an int, or as a tuple of them; raise if it is neither."""
    if several and isinstance(index, Sequence | np.ndarray | Tensor) and not isinstance(index, str | bytes):
        parts = index.tolist() if isinstance(index, np.ndarray | Tensor) else list(index)
        if not isinstance(parts, list) or not parts:
            want = "an int of at least 0, or a sequence of at least one of them"
            raise ValueError(must(owner, "index", want, index))
        return tuple(whole_number(owner, "index", part, at_least=0) for part in parts)
    return whole_number(owner, "index", index, at_least=0)


def cannot_group(owner: str, count: int, why: str) -> ValueError:
    """The error that several functions cannot be held at once, and why."""
    return ValueError(
        f"{owner}: {count} functions cannot be held at once: {why}. Open one draw for each of them instead."
    )


def _rows_in_group(owner: str, rows: int | None, count: int) -> int:
    """How many rows go through each of `count` functions."""
    if rows is None:
        raise cannot_group(owner, count, "the model's inputs do not agree on a number of rows")
    if rows % count or rows == 0:
        want = f"a multiple of {count}, the number of functions"
        hint = "The batch is one group of rows after another, as torch.cat([x] * K) or x.repeat(K, 1)."
        raise ValueError(must(owner, "rows of the batch", want, rows, hint))
    return rows // count


def check_groups(owner: str, inputs: Any, count: int) -> None:
    """Raise unless a model is called with a batch that divides into `count` groups of rows."""
    _rows_in_group(owner, batch_rows(inputs), count)
    tensors = [tensor for tensor in tensors_in(inputs) if tensor.dim() > 0]
    if all(tensor.dim() == 1 and tensor.is_floating_point() for tensor in tensors):
        raise cannot_group(owner, count, "its input has one axis, which may be a single row")
