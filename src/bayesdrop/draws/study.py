"""What must be known of a model before its noise can be held, found by watching a few passes without noise.

Where its dropout sites keep the rows of a batch, so that noise can be shared by all rows; and which of its
modules pass a dropout rate on only in training mode, as `dropout_p=self.p if self.training else 0.0`.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.draws.held import HeldNoise
from bayesdrop.draws.layout import Layout, RowAxis, row_axis
from bayesdrop.draws.passes import map_tensors, tensors_in
from bayesdrop.draws.sites import HeldFlag, Site, StochasticModule
from bayesdrop.draws.source import Sampler
from bayesdrop.inputs import batch_rows
from bayesdrop.randomness import random_state_kept

__all__ = ["Study", "script_sites", "study"]


@dataclass(frozen=True)
class Study:
    """What is known of a model.

    Attributes:
        trained: paths of modules that are in training mode inside a draw, for the sake of their dropout.
        rows: where each site keeps the rows of a batch.
        off: sites that are on in training mode and cannot be on in a draw.
    """

    trained: frozenset[str] = frozenset()
    rows: Mapping[str, RowAxis] = field(default_factory=dict)
    off: tuple[Site, ...] = ()


_STUDIED: weakref.WeakKeyDictionary[nn.Module, tuple[Any, Study]] = weakref.WeakKeyDictionary()


def study(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Study:
    """Watch a few passes of one or two rows. Nothing is left changed, the random state neither.

    What was found is kept for as long as the model, its plain attributes and the shapes of its inputs
    stay the same.

    Args:
        model: any module.
        args: what it is called with.
        kwargs: what it is called with.
    """
    if _is_plain(model):
        return Study()
    signature = _signature(model, (args, kwargs))
    known = _STUDIED.get(model)
    if known is None or known[0] != signature:
        known = _STUDIED[model] = (signature, _studied(model, (args, kwargs)))
    return known[1]


def _signature(model: nn.Module, inputs: tuple[Any, Any]) -> list[Any]:
    """What a study depends on, as far as it can be seen: structure, settings, shapes of the inputs."""
    rows = batch_rows(inputs)
    found: list[Any] = [None if rows is None else min(rows, 2)]
    found += [(tensor.shape[1:], tensor.dtype) for tensor in tensors_in(inputs)]
    seen: set[int] = set()
    for path, module in model.named_modules():
        hooks = [h for h in _hooks(module) if not isinstance(getattr(h, "__self__", None), HeldNoise)]
        found.append((path, type(module), *map(id, hooks)))
        if isinstance(module, torch.jit.ScriptModule):
            continue
        for name, value in vars(module).items():
            if name not in _INTERNAL:
                _settings(value, found, seen, depth=4)
        if _is_foreign(module):
            found += _globals_of(type(module))
    return found


_INTERNAL = frozenset(vars(nn.Module())) - {"_parameters", "_buffers"}


def _settings(value: Any, found: list[Any], seen: set[int], depth: int) -> None:
    """Numbers, names and flags in a value, and in what it holds, that a rate may come from."""
    if value is None or isinstance(value, bool | int | float | str):
        found.append(value)
        return
    if isinstance(value, Tensor):
        # A rate may be a tensor; weights are none of our business.
        found.append(value.item() if value.numel() == 1 and not value.is_meta else tuple(value.shape))
        return
    if isinstance(value, nn.Module) or depth == 0 or id(value) in seen:
        found.append(id(value))
        return
    seen.add(id(value))
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    elif isinstance(value, FunctionType):
        parts = [cell.cell_contents for cell in value.__closure__ or () if cell != _EMPTY_CELL]
        parts += [
            *(value.__defaults__ or ()),
            id(value.__code__),
            *_values_of(value.__code__, value.__globals__),
        ]
    else:
        parts = [id(type(value)), *getattr(value, "__dict__", {}).values()]
    for part in parts[:200]:
        _settings(part, found, seen, depth - 1)


_EMPTY_CELL = CellType()


@cache
def _methods(kind: type) -> list[FunctionType]:
    """Functions of a class that its forward may call."""
    classes = [owner for owner in kind.__mro__ if owner not in (nn.Module, object)]
    return [
        member for owner in classes for member in vars(owner).values() if isinstance(member, FunctionType)
    ]


def _globals_of(kind: type) -> list[Any]:
    return [value for method in _methods(kind) for value in _values_of(method.__code__, method.__globals__)]


def _values_of(code: CodeType, names: dict[str, Any]) -> list[Any]:
    """Numbers and flags that a function reads from its module."""
    values = (names.get(name) for name in code.co_names)
    return [value for value in values if isinstance(value, bool | int | float)]


def _studied(model: nn.Module, inputs: tuple[Any, Any]) -> Study:
    scripts = script_sites(model)
    rows = batch_rows(inputs)
    with torch.no_grad(), random_state_kept():
        sample = inputs if rows is None else _rows(inputs, rows, [0])
        try:
            quiet = _watched(model, sample, frozenset())
        except Exception:
            if rows in (None, 1):
                raise
            # It may not take one row alone; what it says to the whole batch is its own business.
            sample, rows = inputs, None
            quiet = _watched(model, sample, frozenset())
        trained, quiet, off = _training(model, sample, quiet)
        where = {} if rows is None else _row_axes(model, inputs, rows, trained, quiet)
    return Study(trained, where, (*off, *scripts))


# watching


class _Watcher(HeldNoise):
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
        self, x: Tensor, p: float, site: str, *, spatial: int | None = None, alpha: bool = False
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

    def differs(self, other: _Watcher, path: str) -> bool:
        """Whether training mode, as `other` saw it, would change which sites of a module are on.

        A site that is on without regard to any flag is on because the model wants it so.
        """
        return bool(other.on(path) - self.on(path)) or bool(self.on(path, flagged=True) - other.on(path))


_DROPOUT = re.compile("drop|stochastic|noise", re.IGNORECASE)


def _watched(model: nn.Module, inputs: tuple[Any, Any], trained: frozenset[str]) -> _Watcher:
    args, kwargs = map_tensors(inputs, Tensor.clone)
    with _Watcher(model, trained) as watcher:
        watcher.output = model(*args, **kwargs)
    return watcher


def _rows(inputs: tuple[Any, Any], rows: int, which: list[int]) -> tuple[Any, Any]:
    """Some rows of every tensor that has rows."""

    def take(tensor: Tensor) -> Tensor:
        return tensor[which] if tensor.dim() > 0 and tensor.shape[0] == rows else tensor

    taken: tuple[Any, Any] = map_tensors(inputs, take)
    return taken


# modules that say nothing about their dropout unless they are in training mode


def _training(
    model: nn.Module, sample: tuple[Any, Any], quiet: _Watcher
) -> tuple[frozenset[str], _Watcher, tuple[Site, ...]]:
    """The modules to put into training mode, a pass with these, and what stays off."""
    modules = dict(model.named_modules())
    candidates = {path for path, module in modules.items() if _is_foreign(module)}
    loud = _loudest(model, sample, candidates, modules)
    if loud is None:
        return frozenset(), quiet, ()
    paths = {site.path for watcher in (quiet, loud) for site in watcher.sites.values()}
    trained: set[str] = set()
    latest = quiet
    while True:
        owners = {_owner(path, candidates - trained) for path in paths if latest.differs(loud, path)}
        owners.discard(None)
        if not owners:
            break
        trained |= {owner for owner in owners if owner is not None}
        latest = _watched(model, sample, frozenset(trained))
    trained, latest = _harmless(model, sample, trained, quiet, latest)
    off = []
    for key, site in loud.sites.items():
        if key in loud.unlike and key not in latest.sites:
            off.append(replace(site, random=False, reason="draws numbers of its own in training mode only"))
        elif site.random and not (key in latest.sites and latest.sites[key].random):
            reason = "on in training mode only, which does other things"
            off.append(replace(site, random=False, reason=reason))
    off += [
        Site("", 0, name, None, None, False, "draws numbers of its own in training mode only")
        for name in sorted(set(loud.foreign) - set(quiet.foreign))
    ]
    return frozenset(trained), latest, tuple(off)


def _loudest(
    model: nn.Module, sample: tuple[Any, Any], candidates: set[str], modules: dict[str, nn.Module]
) -> _Watcher | None:
    """A pass with all candidates in training mode, less those that then want more than their inputs."""
    while candidates:
        try:
            return _watched(model, sample, frozenset(candidates))
        except Exception as error:
            culprit = _raiser(error, {modules[path] for path in candidates})
            if culprit is None:
                return None
            candidates -= {path for path in candidates if type(modules[path]) is type(culprit)}
    return None


def _raiser(error: BaseException, modules: set[nn.Module]) -> nn.Module | None:
    """The innermost of some modules that an exception went through."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and owner in modules:
            found = owner
        trace = trace.tb_next
    return found


def _owner(path: str, candidates: set[str]) -> str | None:
    """The nearest candidate at or above a path."""
    while path and path not in candidates:
        path = path.rpartition(".")[0]
    return path if path in candidates else None


def _harmless(
    model: nn.Module, sample: tuple[Any, Any], trained: set[str], quiet: _Watcher, latest: _Watcher
) -> tuple[set[str], _Watcher]:
    """Those modules whose training mode changes nothing but dropout: the same output without noise."""
    if not trained or _same_function(quiet, latest):
        return trained, latest
    kept = {path for path in trained if _same_function(quiet, _watched(model, sample, frozenset({path})))}
    together = _watched(model, sample, frozenset(kept)) if kept else quiet
    return (kept, together) if _same_function(quiet, together) else (set(), quiet)


def _same_function(first: _Watcher, second: _Watcher) -> bool:
    one, two = list(tensors_in(first.output)), list(tensors_in(second.output))
    if type(first.output) is not type(second.output) or [t.shape for t in one] != [t.shape for t in two]:
        return False
    if any(site.p is None for site in second.sites.values() if site.kind.startswith("torch.")):
        return True  # noise of the model's own cannot be taken away to compare
    return all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-3 * float(a.abs().nan_to_num().max()), equal_nan=True)
        for a, b in zip(one, two, strict=True)
        if a.is_floating_point() and a.numel()
    )


def _is_foreign(module: nn.Module) -> bool:
    """Whether what a module does in training mode is not known: its class is neither torch's nor ours."""
    known = isinstance(module, StochasticModule | torch.jit.ScriptModule)
    return not known and not type(module).__module__.startswith("torch.nn.")


# where the rows are


def _row_axes(
    model: nn.Module, inputs: tuple[Any, Any], rows: int, trained: frozenset[str], one: _Watcher
) -> dict[str, RowAxis]:
    try:
        two = _watched(model, _rows(inputs, rows, [0, 0]), trained)
    except Exception:
        return {}  # it takes one row at a time
    found = {}
    for site, shape in one.shapes.items():
        place = row_axis(shape, two.shapes.get(site, ()))
        if place is not None:
            found[site] = place
    shared = [site for site, place in found.items() if _shares_axis(one.shapes[site], place)]
    if shared:
        other = _watched(model, _second_row_changed(inputs, rows), trained)
        for site in shared:
            axis = found[site].axis
            if axis is not None and site in two.values and site in other.values:
                found[site] = RowAxis(axis, _is_innermost(two.values[site], other.values[site], axis))
    return found


def _shares_axis(one: tuple[int, ...], place: RowAxis) -> bool:
    return place.axis is not None and one[place.axis] > 1


def _second_row_changed(inputs: tuple[Any, Any], rows: int) -> tuple[Any, Any]:
    """Two rows, the first as before, the second another one."""

    def change(tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or tensor.shape[0] != rows:
            return tensor
        first, second = tensor[0], tensor[-1]
        if torch.equal(first, second) and first.is_floating_point():
            second = first * 1.5 + 0.1
        return torch.stack([first, second])

    changed: tuple[Any, Any] = map_tensors(inputs, change)
    return changed


def _is_innermost(same: Tensor, other: Tensor, axis: int) -> bool:
    """Which of two orders, rows outermost or innermost, leaves the first row of two as it was."""
    if same.shape != other.shape:
        return False
    changed = (same != other) & ~(same.isnan() & other.isnan())
    inner = same.shape[axis] // 2
    before, after = same.shape[:axis], same.shape[axis + 1 :]
    outermost = changed.reshape(*before, 2, inner, *after).select(axis, 0).any()
    innermost = changed.reshape(*before, inner, 2, *after).select(axis + 1, 0).any()
    return bool(outermost) and not bool(innermost)


_PLAIN = (
    nn.Sequential,
    nn.Identity,
    nn.Linear,
    nn.Embedding,
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.modules.dropout._DropoutNd,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)


def _hooks(module: nn.Module) -> list[Any]:
    return [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]


def _is_plain(model: nn.Module) -> bool:
    """Whether rows are on axis 0 everywhere, whatever the model is given: a chain of torch's own layers."""
    for module in model.modules():
        kind = type(module)
        if isinstance(module, StochasticModule):
            continue
        activation = kind.__module__ == "torch.nn.modules.activation" and kind is not nn.MultiheadAttention
        flatten = isinstance(module, nn.Flatten) and module.start_dim >= 1
        layer = isinstance(module, _PLAIN) and kind.__module__.startswith("torch.nn.modules.")
        if not (activation or flatten or layer):
            return False
        if any(not isinstance(getattr(hook, "__self__", None), HeldNoise) for hook in _hooks(module)):
            return False
    return True


def script_sites(model: nn.Module) -> tuple[Site, ...]:
    """Script modules with dropout inside: they run where no mode sees them."""
    found: list[Site] = []
    for path, module in model.named_modules():
        inner = any(path.startswith(f"{site.path}.") or not site.path for site in found)
        if isinstance(module, torch.jit.ScriptModule) and not inner and _drops(module):
            reason = "a script: its dropout cannot be held"
            found.append(Site(path, 0, "script", None, None, False, reason))
    return tuple(found)


def _drops(module: torch.jit.ScriptModule) -> bool:
    try:
        text = str(module.inlined_graph)
    except (AttributeError, RuntimeError):
        return False
    return re.search(r"aten::\w*(dropout|bernoulli|rand)", text) is not None
