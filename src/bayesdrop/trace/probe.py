"""What must be known of a model to hold its noise: by a look at its code, or by a few passes without noise.

The passes find where the rows of a batch are at every site, so that all rows can share noise; and which
modules pass a dropout rate on only in training mode, as `dropout_p=self.p if self.training else 0.0`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from dataclasses import replace
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.inputs import batch_rows, mapped, tensors_in
from bayesdrop.noise import Sampler
from bayesdrop.randomness import random_state_kept
from bayesdrop.trace.draw import Draw
from bayesdrop.trace.held import HeldNoise, Layout, ModelFindings, RowAxis, row_axis
from bayesdrop.trace.isolate import Subject, copied_arguments
from bayesdrop.trace.sites import Site, SiteBook, StochasticModule, is_chain

__all__ = ["first_look", "in_groups", "leaves_doubts", "probe", "script_sites", "settled"]

Arguments = tuple[Any, Any]


def first_look(subject: Subject) -> ModelFindings | None:
    """What is known of a model before any pass; None if only passes of one or two rows can show it.

    A recorded pass can then follow the rows of the batch by itself; `leaves_doubts` says whether it did.
    """
    if is_chain(subject.model):
        return ModelFindings(is_chain=True)
    modules = list(subject.model.modules())
    if any(isinstance(module, torch.jit.ScriptModule) for module in modules):
        return None
    if any(map(_mentions_training, filter(is_foreign, modules))) or not subject.runs_copies():
        return None
    return ModelFindings(is_first_look=True)


def leaves_doubts(noise: HeldNoise) -> bool:
    """Whether a pass after a first look leaves it open where the rows are, or what depends on training."""
    foreign = {path for module, path in noise.book.paths.items() if is_foreign(module)}
    return bool(noise.assumed) or _suggests_training(noise.book, foreign)


def probe(subject: Subject, inputs: Arguments, *, thorough: bool = True) -> ModelFindings:
    """What a few passes of one or two rows show of a model. Nothing is changed, nor is the random state.

    Every call studies the model again: a forward can read anything, so that findings may not hold later.

    Args:
        subject: the model.
        inputs: the positional and keyword arguments of the call.
        thorough: find the place of the rows at every site, in further passes. Otherwise a draw compares its
            shapes with those of one row, and lists the sites where that is uncertain: see `settled`.
    """
    model = subject.model
    if is_chain(model):
        return ModelFindings(is_chain=True)
    scripts = script_sites(model)
    rows = batch_rows(inputs)
    with torch.no_grad(), random_state_kept():
        sample = inputs if rows is None else _rows(inputs, rows, [0])
        try:
            quiet = _noted(subject, sample, frozenset())
        except Exception:
            if rows in (None, 1):
                raise
            # It may not take a single row; if the whole batch fails too, its error is for the user.
            sample, rows = inputs, None
            quiet = _noted(subject, sample, frozenset())
        trained, quiet, off = _training(subject, sample, quiet)
    shapes = {} if rows is None else quiet.shapes
    found = ModelFindings(trained, {}, (*off, *scripts), shapes, quiet.sets_flags)
    return settled(subject, inputs, found) if thorough else found


def settled(subject: Subject, inputs: Arguments, known: ModelFindings) -> ModelFindings:
    """The findings, with the place of the rows at every site."""
    rows = batch_rows(inputs)
    # With one row it does not matter where the row is.
    if rows in (None, 1) or not known.one_row:
        return replace(known, one_row={})
    with torch.no_grad(), random_state_kept():
        where = _row_axes(subject, inputs, rows, known)
    return replace(known, rows=where, one_row={})


def in_groups(subject: Subject, inputs: Arguments, known: ModelFindings) -> ModelFindings:
    """The findings, with the stochastic layers that get rows on axis 0, one row after another."""
    rows = batch_rows(inputs)
    if known.is_chain or rows is None:
        return known
    samples = (
        _rows(inputs, rows, [0]),
        _rows(inputs, rows, [0, 0]),
        _second_row_changed(inputs, rows),
    )
    with torch.no_grad(), random_state_kept():
        try:
            one, two, other = (_noted(subject, sample, known.trained).given for sample in samples)
        except Exception:
            return known  # the model does not take batches of another size
    found = frozenset(
        path
        for path, given in one.items()
        if len(given) == len(two.get(path, ())) == len(other.get(path, ()))
        and all(_is_row_after_row(*parts) for parts in zip(given, two[path], other[path], strict=True))
    )
    return replace(known, grouped=found)


def _rows(inputs: Arguments, rows: int, which: list[int]) -> Arguments:
    """Some rows of every tensor that has rows."""

    def take(tensor: Tensor) -> Tensor:
        return tensor[which] if tensor.dim() > 0 and tensor.shape[0] == rows else tensor

    taken: Arguments = mapped(inputs, Tensor, take)
    return taken


# a pass without noise


class _Notes(HeldNoise):
    """Gives no noise, and notes which sites there are and what their inputs are.

    Args:
        model: any module.
        trained: paths of modules that are in training mode.

    Attributes:
        shapes: of the input of every site.
        values: the input of every dropout call.
        given: the inputs of every stochastic layer, call by call.
        unlike: sites where a module that is not called dropout draws its own numbers.
        sets_flags: whether the model itself calls train() or eval().
        output: of the pass.
    """

    sees_all = True

    def __init__(self, model: nn.Module, trained: frozenset[str]) -> None:
        super().__init__(model, findings=ModelFindings(trained))
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.values: dict[str, Tensor] = {}
        self.given: dict[str, list[Tensor]] = {}
        self.unlike: set[str] = set()
        self.sets_flags = False
        self.output: Any = None

    def end_pass(self, *, flags_changed: bool) -> None:
        self.sets_flags = self.sets_flags or flags_changed

    def noise(
        self, module: nn.Module, name: str, shape: tuple[int, ...], like: Tensor, sample: Sampler
    ) -> None:
        self.given.setdefault(self.book.paths[module], []).append(like.detach().clone())

    def drop(self, x: Tensor, p: float, site: str, **_: Any) -> Tensor:
        self._place(site, tuple(x.shape))
        self.values[site] = x.detach().clone()
        return x

    def drop_between(
        self, x: Tensor, p: float, site: str, *, batch_first: bool, sizes: Tensor | None = None
    ) -> Tensor:
        return x if sizes is not None else self.drop(x, p, site)

    def own_noise(self, kind: str, shape: tuple[int, ...], like: Tensor, sample: Sampler) -> Tensor:
        before = set(self.book.sites)
        noise = super().own_noise(kind, shape, like, sample)
        if not self._is_called_dropout():
            self.unlike.update(set(self.book.sites) - before)
        return noise

    def _place(self, site: str, shape: tuple[int, ...], **known: Any) -> Layout:
        self.shapes[site] = shape
        return super()._place(site, shape, **known)

    def _is_called_dropout(self) -> bool:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            owner = frame.f_locals.get("self")
            inside = isinstance(owner, nn.Module) and owner in self.book.paths
            names = frame.f_code.co_name + (type(owner).__name__ if inside else "")
            # Names of functions of this library say nothing about the model.
            ours = frame.f_globals.get("__name__", "").startswith("bayesdrop.")
            if not ours and _DROPOUT.search(names):
                return True
            if inside:
                return False
            frame = frame.f_back
        return False

    def on(self, path: str, *, flagged: bool = False) -> Counter[float | None]:
        """Rates of a module's sites that are on; with `flagged`, only of those that got `self.training`."""
        return Counter(
            site.p
            for key, site in self.book.sites.items()
            if site.path == path
            and site.random
            and key not in self.unlike
            and (key in self.book.flagged or not flagged)
        )

    def differs(self, other: _Notes, path: str) -> bool:
        """Whether training mode, as `other` saw it, would change which sites of a module are on.

        A site that is on whatever the flag is on because the model wants it so. A site that the pass in
        training mode did not reach is no evidence.
        """
        if other.on(path) - self.on(path):
            return True
        as_many = other.opened(path) >= self.opened(path)
        return as_many and bool(self.on(path, flagged=True) - other.on(path))

    def opened(self, path: str) -> int:
        """How many sites of a module the pass reached, on or off."""
        return sum(site.path == path for key, site in self.book.sites.items() if key not in self.unlike)


_DROPOUT = re.compile("drop|stochastic|noise", re.IGNORECASE)


def _noted(subject: Subject, inputs: Arguments, trained: frozenset[str]) -> _Notes:
    """The notes of a pass with the modules at the given paths in training mode."""
    made: list[_Notes] = []

    def draw_of(model: nn.Module) -> Draw:
        made.append(_Notes(model, trained))
        return Draw(model, made[-1])

    _, output = subject.run(draw_of, copied_arguments(inputs, tensors=True))
    made[-1].output = output
    return made[-1]


# modules that show their dropout only in training mode


def _training(
    subject: Subject, sample: Arguments, quiet: _Notes
) -> tuple[frozenset[str], _Notes, tuple[Site, ...]]:
    """The modules to put into training mode, the notes of a pass with these, and the sites that stay off."""
    modules = dict(subject.model.named_modules())
    candidates = {path for path, module in modules.items() if is_foreign(module)}
    if not _suggests_training(quiet.book, candidates) and not any(
        _mentions_training(modules[path]) for path in candidates
    ):
        return frozenset(), quiet, ()
    loud = _loudest(subject, sample, candidates, modules)
    if loud is None:
        return frozenset(), quiet, ()
    paths = {site.path for notes in (quiet, loud) for site in notes.book.sites.values()}
    if _only_dropout_differs(quiet, loud, paths):
        return frozenset(candidates), loud, ()
    trained: set[str] = set()
    latest = quiet
    while True:
        owners = {_owner(path, candidates - trained) for path in paths if latest.differs(loud, path)}
        owners.discard(None)
        if not owners:
            break
        trained |= {owner for owner in owners if owner is not None}
        seen = _attempt(subject, sample, trained)
        if seen is None:
            # It works with all of them, so it may need the modules above, which may prepare something.
            trained |= {path for path in candidates for inner in trained if _is_above(path, inner)}
            seen = _attempt(subject, sample, trained)
        if seen is None:
            trained, latest = set(), quiet
            break
        latest = seen
    trained, latest = _harmless(subject, sample, trained, quiet, latest)
    off = []
    for key, site in loud.book.sites.items():
        if key in loud.unlike and key not in latest.book.sites:
            off.append(replace(site, random=False, reason="draws numbers of its own in training mode only"))
        elif site.random and not (key in latest.book.sites and latest.book.sites[key].random):
            reason = "on in training mode only, which does other things"
            off.append(replace(site, random=False, reason=reason))
    off += [
        Site("", 0, name, None, None, False, "draws numbers of its own in training mode only")
        for name in sorted(set(loud.book.foreign) - set(quiet.book.foreign))
    ]
    return frozenset(trained), latest, tuple(off)


def _only_dropout_differs(quiet: _Notes, loud: _Notes, paths: set[str]) -> bool:
    """Whether training mode turns dropout on, turns none off, and changes nothing else."""
    if not any(loud.on(path) - quiet.on(path) for path in paths):
        return False
    if any(quiet.on(path) - loud.on(path) for path in paths) or loud.book.foreign != quiet.book.foreign:
        return False
    own = any(site.p is None and site.kind.startswith("torch.") for site in loud.book.sites.values())
    return not own and not loud.unlike and _same_function(quiet, loud)


def _attempt(subject: Subject, sample: Arguments, trained: set[str]) -> _Notes | None:
    """The notes of a pass with some modules in training mode; None if the pass fails."""
    try:
        return _noted(subject, sample, frozenset(trained))
    except Exception:
        return None


def _is_above(path: str, inner: str) -> bool:
    return path in ("", inner) or inner.startswith(f"{path}.")


def _loudest(
    subject: Subject, sample: Arguments, candidates: set[str], modules: dict[str, nn.Module]
) -> _Notes | None:
    """The notes of a pass with all candidates in training mode, except those that then raise an error."""
    while candidates:
        try:
            return _noted(subject, sample, frozenset(candidates))
        except Exception as error:
            kinds = {type(modules[path]) for path in candidates}
            culprit = _raiser(error, kinds)
            if culprit is None:
                return None
            candidates -= {path for path in candidates if type(modules[path]) is culprit}
    return None


def _raiser(error: BaseException, kinds: set[type[nn.Module]]) -> type[nn.Module] | None:
    """The class of the innermost module, among `kinds`, that an exception passed through."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and type(owner) in kinds:
            found = type(owner)
        trace = trace.tb_next
    return found


def _suggests_training(book: SiteBook, candidates: set[str]) -> bool:
    """Whether a pass suggests that modules of the user behave differently in training mode.

    That is: one has read its flag; a site was off; or there was no site at all.
    """
    if book.asked & candidates:
        return True
    return not book.sites or not all(site.random for site in book.sites.values())


def _mentions_training(module: nn.Module) -> bool:
    """Whether the code of a module, or of a function that it holds, has the word "training"."""
    kinds = [k for k in type(module).__mro__ if k is not object and not k.__module__.startswith("torch.nn.")]
    members = [member for kind in kinds for member in vars(kind).values()]
    kept = [value for value in vars(module).values() if callable(value) and not isinstance(value, nn.Module)]
    return any(_names_training(member) for member in (*members, *kept))


def _names_training(member: Any) -> bool:
    """Whether code mentions "training"; true for callable objects, whose code is not known."""
    inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
    inner = inspect.unwrap(inner) if callable(inner) else inner
    if not isinstance(inner, FunctionType):
        return callable(inner) and not isinstance(inner, type | BuiltinFunctionType)
    waiting = [inner.__code__]
    while waiting:
        code = waiting.pop()
        if "training" in code.co_names or "training" in code.co_consts:
            return True
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return False


def _owner(path: str, candidates: set[str]) -> str | None:
    """The nearest candidate at or above a path."""
    while path and path not in candidates:
        path = path.rpartition(".")[0]
    return path if path in candidates else None


def _harmless(
    subject: Subject, sample: Arguments, trained: set[str], quiet: _Notes, latest: _Notes
) -> tuple[set[str], _Notes]:
    """The modules whose training mode changes nothing but dropout: without noise the output is the same."""
    if not trained or _same_function(quiet, latest):
        return trained, latest
    alone = {path: _attempt(subject, sample, {path}) for path in trained}
    kept = {path for path, seen in alone.items() if seen is not None and _same_function(quiet, seen)}
    together = _attempt(subject, sample, kept) if kept else None
    return (kept, together) if together is not None and _same_function(quiet, together) else (set(), quiet)


def _same_function(first: _Notes, second: _Notes) -> bool:
    one, two = list(tensors_in(first.output)), list(tensors_in(second.output))
    if type(first.output) is not type(second.output) or [t.shape for t in one] != [t.shape for t in two]:
        return False
    if any(site.p is None for site in second.book.sites.values() if site.kind.startswith("torch.")):
        return True  # the outputs cannot be compared: they contain noise that the model draws itself
    return all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-3 * float(a.abs().nan_to_num().max()), equal_nan=True)
        for a, b in zip(one, two, strict=True)
        if a.is_floating_point() and a.numel()
    )


# where the rows are


def _row_axes(subject: Subject, inputs: Arguments, rows: int, known: ModelFindings) -> dict[str, RowAxis]:
    two = _attempt(subject, _rows(inputs, rows, [0, 0]), set(known.trained))
    if two is None:
        return {}  # the model takes one row at a time
    found = {}
    for site, shape in known.one_row.items():
        place = row_axis(shape, two.shapes.get(site, ()), 2)
        if place is not None:
            found[site] = place
    shared = [site for site, place in found.items() if _shares_axis(known.one_row[site], place)]
    other = _attempt(subject, _second_row_changed(inputs, rows), set(known.trained)) if shared else None
    if other is not None:
        for site in shared:
            axis = found[site].axis
            if axis is not None and site in two.values and site in other.values:
                found[site] = RowAxis(axis, _is_innermost(two.values[site], other.values[site], axis))
    return found


def _shares_axis(one: tuple[int, ...], place: RowAxis) -> bool:
    return place.axis is not None and one[place.axis] > 1


def _second_row_changed(inputs: Arguments, rows: int) -> Arguments:
    """Inputs of two rows: the first row, and another one."""

    def change(tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or tensor.shape[0] != rows:
            return tensor
        first, second = tensor[0], tensor[-1]
        if torch.equal(first, second) and first.is_floating_point():
            second = first * 1.5 + 0.1
        return torch.stack([first, second])

    changed: Arguments = mapped(inputs, Tensor, change)
    return changed


def _is_innermost(same: Tensor, other: Tensor, axis: int) -> bool:
    """Whether the rows are innermost on their axis: only then has the first of two rows not changed."""
    if same.shape != other.shape:
        return False
    changed = (same != other) & ~(same.isnan() & other.isnan())
    inner = same.shape[axis] // 2
    before, after = same.shape[:axis], same.shape[axis + 1 :]
    outermost = changed.reshape(*before, 2, inner, *after).select(axis, 0).any()
    innermost = changed.reshape(*before, inner, 2, *after).select(axis + 1, 0).any()
    return bool(outermost) and not bool(innermost)


def _is_row_after_row(one: Tensor, two: Tensor, other: Tensor) -> bool:
    """Whether a layer's input for two rows is its input for the first and then that for the second."""
    place = row_axis(tuple(one.shape), tuple(two.shape), 2)
    if place is None or place.axis != 0 or two.shape != other.shape:
        return False
    inner = one.shape[0]
    if inner == 1:
        return True
    changed = (two != other) & ~(two.isnan() & other.isnan())
    return not bool(changed[:inner].any()) and bool(changed[inner:].any())


def is_foreign(module: nn.Module) -> bool:
    """Whether it is not known what a module does in training mode: its class is neither torch's nor ours."""
    known = isinstance(module, StochasticModule | torch.jit.ScriptModule)
    return not known and not type(module).__module__.startswith("torch.nn.")


def script_sites(model: nn.Module) -> tuple[Site, ...]:
    """Script modules with dropout inside, which no function mode sees."""
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
