"""audit(): a list of every source of randomness in a model, whether it is on or off, and why."""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from bayesdrop.errors import must, require
from bayesdrop.inputs import InputBatches, Inputs, Items, arguments
from bayesdrop.layers import RecurrentDropout
from bayesdrop.likelihoods import Likelihood
from bayesdrop.predict.sampler import unwrapped
from bayesdrop.randomness import random_state_kept
from bayesdrop.trace import Site, StochasticModule, Subject, probe, randomness_of, recorded, script_sites

__all__ = ["Audit", "audit", "audit_target", "built_from"]

_UNSEEN = "functional call, seen only with x"
_NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Audit:
    """What is random in a model: `print` it, or read `sites`.

    Attributes:
        model: class name of the model.
        sites: every source of randomness: `path`, `call`, `kind`, `p`, `shape` of the noise of one draw,
            `random` (on or off), `reason`.
        ran: whether the list comes from a pass of the model, and not from its modules alone.
        notes: sentences about the model as a whole.
    """

    model: str
    sites: tuple[Site, ...]
    ran: bool
    notes: tuple[str, ...] = ()

    @property
    def random(self) -> bool:
        """Whether any site is on."""
        return any(site.random for site in self.sites)

    @property
    def off(self) -> tuple[Site, ...]:
        """The sites that are off, or cannot be seen without inputs."""
        return tuple(site for site in self.sites if not site.random)

    @property
    def title(self) -> str:
        """One line: how many sites are on."""
        on = sum(site.random for site in self.sites)
        how = "one pass was run" if self.ran else "no pass was run: give x to see what really happens"
        sites = "site is" if len(self.sites) == 1 else "sites are"
        return f"{self.model}: {on} of {len(self.sites)} {sites} random ({how})"

    def __str__(self) -> str:
        rows = [_COLUMNS, *(_cells(site) for site in self.sites)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        lines = [self.title]
        for row in rows if self.sites else ():
            lines.append(
                "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"Audit({self.title})"

    def rich(self) -> Any:
        """The audit as a table for rich (needs the extra "cli")."""
        table = require("rich.table", extra="cli", owner="Audit.rich").Table(
            title=self.title,
            title_justify="left",
            caption="\n".join(self.notes) or None,
            caption_justify="left",
        )
        text = require("rich.text", extra="cli", owner="Audit.rich").Text
        for name in _COLUMNS:
            table.add_column(name, justify="right" if name == "p" else "left", no_wrap=name == "site")
        for site in self.sites:
            style = "green" if site.random else "yellow" if site.reason == _UNSEEN else "red"
            *cells, state = _cells(site)
            table.add_row(*(text(cell) for cell in cells), text(state, style=style))
        return table

    def __rich__(self) -> Any:
        return self.rich()


_COLUMNS = ("site", "kind", "p", "noise", "state")


def _cells(site: Site) -> tuple[str, ...]:
    p = "" if site.p is None else f"{site.p:.4g}"
    shape = "" if site.shape is None else " x ".join(map(str, site.shape)) or "1"
    state = "on" if site.random else "?" if site.reason == _UNSEEN else "off"
    return site.name, site.kind, p, shape, state if site.reason == state else f"{state}: {site.reason}"


def audit(model: nn.Module, x: Inputs | Any = None, *, items: Items | None = None) -> Audit:
    """A list of every source of randomness in a model: its place, kind and rate, whether it is on, and why.

    With inputs, one pass is run, and the list shows what `predict` would do; modules with dropout that the
    pass did not call are "not reached". Without inputs, the list comes from the modules and their code, and
    a dropout that is called as a function is marked "?": only a pass shows whether it is on.

    Args:
        model: any `nn.Module`; nothing in it is changed.
        x: inputs as for `predict`, or an iterable of batches, of which the first is used.
        items: what the parts of a batch are, as for `predict`.

    >>> from torch import nn
    >>> print(audit(nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)), torch.zeros(4, 3)))
    Sequential: 1 of 1 site is random (one pass was run)
    site  kind     p    noise  state
    1     Dropout  0.5  1 x 8  on
    """
    if not isinstance(model, nn.Module):
        raise TypeError(must("audit", "model", "an nn.Module", model))
    if isinstance(model, Likelihood):
        raise TypeError(must("audit", "model", "a network, not a likelihood", model))
    model = unwrapped(model)
    expected = tuple(_expected(model))
    if x is None:
        return Audit(type(model).__name__, expected, ran=False)
    batches = InputBatches(model, x, batch_size=None, targets=None, items=items, scored=False, owner="audit")
    batch = next(iter(batches), None)
    if batch is None:
        raise ValueError(must("audit", "x", "at least one batch", "none"))
    sites, notes = _ran(model, batch.inputs)
    reached = {site.path for site in sites}
    missed = [
        Site(site.path, 0, site.kind, site.p, None, False, _NOT_REACHED)
        for site in expected
        if site.path not in reached and site.reason not in (_UNSEEN, _NO_LAYER)
    ]
    idle = [site for site in expected if site.reason == _NO_LAYER]
    return Audit(type(model).__name__, (*sites, *missed, *idle), ran=True, notes=notes)


# with inputs


def _ran(model: nn.Module, batch: Inputs) -> tuple[tuple[Site, ...], tuple[str, ...]]:
    with torch.no_grad(), random_state_kept():
        subject, inputs = Subject(model), arguments(batch)
        known = probe(subject, inputs)
        draw, recorder, output = recorded(subject, inputs, findings=known)
    suspended = {(site.path, site.call) for site in known.off}
    sites = [
        site
        for site in draw.sites.values()
        if site in known.off or site.random or (site.path, site.call) not in suspended
    ]
    notes = []
    if draw.foreign:
        names = ", ".join(dict.fromkeys(draw.foreign))
        notes.append(f"the model draws numbers that no seed can repeat: {names}")
    tensor = output if isinstance(output, torch.Tensor) else getattr(output, "logits", None)
    if isinstance(tensor, torch.Tensor) and any(site.random for site in sites):
        recorder.tape(tensor)
        if not recorder.is_random:
            notes.append("no noise reaches the output")
        elif recorder.broken is not None:
            notes.append(f"every draw runs the whole model: {recorder.broken}")
    return tuple(sites), tuple(notes)


# without inputs

_NO_LAYER = "no layer after it"


def _expected(model: nn.Module) -> Iterator[Site]:
    """The sites that can be read off the modules of a model, without a pass."""
    scripts: list[str] = []
    # A recurrent layer inside RecurrentDropout draws no noise itself.
    inner = {module.layer for module in model.modules() if isinstance(module, RecurrentDropout)}
    for path, module in model.named_modules():
        if module in inner:
            continue
        if any(path.startswith(f"{script}.") or not script for script in scripts):
            continue
        if isinstance(module, torch.jit.ScriptModule):
            scripts.append(path)
            yield from (replace(site, path=path) for site in script_sites(module))
            continue
        kind = type(module).__name__
        if isinstance(module, StochasticModule):
            random = module.is_random()
            yield Site(path, 0, kind, _single_rate(module), None, random, "on" if random else "p = 0")
        elif isinstance(module, nn.modules.dropout._DropoutNd):
            yield _by_rate(path, kind, module.p)
        elif isinstance(module, nn.MultiheadAttention):
            yield _by_rate(path, "attention", module.dropout)
        elif isinstance(module, nn.RNNBase):
            if module.num_layers > 1 or module.dropout == 0:
                yield _by_rate(path, module.mode.partition("_")[0], module.dropout)
            else:
                yield Site(path, 0, module.mode, module.dropout, None, False, _NO_LAYER)
        elif not type(module).__module__.startswith("torch.nn."):
            for name in dict.fromkeys(_functional(type(module))):
                yield Site(path, 0, name, None, None, False, _UNSEEN)


def _by_rate(path: str, kind: str, p: float) -> Site:
    return Site(path, 0, kind, float(p), None, p > 0, "on" if p > 0 else "p = 0")


def _single_rate(module: StochasticModule) -> float | None:
    p = getattr(module, "p", None)
    return float(p.detach()) if isinstance(p, torch.Tensor) and p.dim() == 0 else None


def _functional(kind: type) -> Iterator[str]:
    """Random functions of torch that the code of a class calls, directly or through other functions."""
    seen: set[CodeType] = set()
    for owner in kind.__mro__:
        if owner is nn.Module or owner.__module__.startswith("torch.nn."):
            continue
        for name, member in vars(owner).items():
            if "init" in name or "reset" in name:
                continue  # random initial values are not noise of the model
            function = getattr(member, "__func__", member)
            function = getattr(function, "__wrapped__", function)
            if isinstance(function, FunctionType):
                yield from _called(function.__code__, function.__globals__, seen, depth=2)


def _called(code: CodeType, names: dict[str, Any], seen: set[CodeType], depth: int) -> Iterator[str]:
    if code in seen:
        return
    seen.add(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _called(constant, names, seen, depth)
    value: Any = None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            value = names.get(str(step.argval))
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            name = str(step.argval)
            if name in ("bernoulli_", "uniform_", "normal_", "exponential_"):
                yield f"Tensor.{name}"
            value = getattr(value, name, None) if isinstance(value, ModuleType) else None
        else:
            value = None
            continue
        known = randomness_of(value)
        if known is not None:
            yield known
        elif isinstance(value, FunctionType) and depth and not value.__module__.startswith("torch"):
            yield from _called(value.__code__, value.__globals__, seen, depth - 1)


# from the command line


def audit_target(target: str, *, directory: Path | None = None) -> Audit:
    """Audit the model that a function builds: "package.module:function".

    Args:
        target: names a function without arguments that returns an `nn.Module`, or a pair (model, example
            inputs); the name of a module class, or of a model, works too.
        directory: where the package is looked for first; the current directory if None.

    Raises:
        ValueError: there is no such module or attribute, or the function fails.
        TypeError: `target` names no function, or one that does not return a model.
    """
    made = built_from(target, directory=directory)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        return audit(made[0], made[1])
    if not isinstance(made, nn.Module):
        want = "a function that returns an nn.Module, or (model, example inputs)"
        raise TypeError(must("audit", "target", want, f"{target}, which returns {type(made).__name__}"))
    return audit(made)


def built_from(target: str, *, directory: Path | None = None, owner: str = "audit") -> Any:
    """What a function that is named on the command line returns.

    Args:
        target: "package.module:function"; a module class, or a model, works too.
        directory: where the package is looked for first; the current directory if None.
        owner: the command, for errors.

    Raises:
        ValueError: there is no such module or attribute, or the function fails.
        TypeError: `target` names no function.
    """
    name, colon, attribute = target.partition(":")
    if not (name and colon and attribute):
        raise ValueError(must(owner, "target", "'package.module:function'", target))
    module = _imported(target, name, directory, owner)
    return _built(target, _attribute(target, module, attribute, owner), owner)


def _imported(target: str, name: str, directory: Path | None, owner: str) -> ModuleType:
    where = str((directory or Path.cwd()).resolve())
    sys.path.insert(0, where)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            looked = f"in {where} or where Python looks"
            raise ValueError(
                f"{owner}: there is no module {error.name!r}, {looked}; got {target!r}."
            ) from error
        raise ValueError(f"{owner}: importing {name!r} failed: {type(error).__name__}: {error}") from error
    except Exception as error:
        raise ValueError(f"{owner}: importing {name!r} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(where)


def _attribute(target: str, module: ModuleType, attribute: str, owner: str) -> Any:
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            names = [n for n in vars(value) if not n.startswith("_") and callable(getattr(value, n, None))]
            hint = f"There are: {', '.join(names[:10])}." if names else "It has nothing that can be called."
            raise ValueError(must(owner, "target", f"something that {module.__name__} has", target, hint))
        value = getattr(value, part)
    return value


def _built(target: str, value: Any, owner: str) -> Any:
    if isinstance(value, nn.Module):
        return value
    if not callable(value):
        raise TypeError(must(owner, "target", "a function", f"{target}, a {type(value).__name__}"))
    try:
        return value()
    except Exception as error:
        raise ValueError(f"{owner}: {target} failed: {type(error).__name__}: {error}") from error
