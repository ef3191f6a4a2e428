"""inject(): dropout for a network that was trained without it, its strength chosen on held-out rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.audit import audit
from bayesdrop.errors import (
    NoRandomness,
    is_one_of,
    must,
    must_be_finite,
    real_number,
    told_by,
    whole_number,
    whole_seed,
)
from bayesdrop.inject.report import Injection
from bayesdrop.inject.search import Measured, Search, chosen, cross_fitted, largest_rate
from bayesdrop.inputs import InputBatch, InputBatches, Items, as_tensors, is_batch, num_rows, take_rows
from bayesdrop.layers import BernoulliDropout, DropConnect, GaussianDropout, ScaledDropout, StochasticLayer
from bayesdrop.layers.convert import convert
from bayesdrop.layers.last import last_maps
from bayesdrop.layers.places import DROPOUTS, choose
from bayesdrop.likelihoods import Likelihood
from bayesdrop.predict.prediction import frozen_copy
from bayesdrop.predict.sampler import Output, check_output, picked, unwrapped
from bayesdrop.predict.sweep import NoiseSweep
from bayesdrop.progress import progress_bar
from bayesdrop.trace import Where

__all__ = ["inject"]

_KINDS: dict[str, type[StochasticLayer]] = {
    "bernoulli": BernoulliDropout,
    "gaussian": GaussianDropout,
    "dropconnect": DropConnect,
}
_RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
_SCALES = (0.1, 0.25, 0.5, 1.0)
#: targets by which a rate can be chosen at all
_FEWEST = 30


def inject(
    model: nn.Module,
    data: Any = None,
    *,
    likelihood: Likelihood,
    where: Where | Iterable[Where] = "last",
    kind: Literal["bernoulli", "gaussian", "dropconnect"] = "bernoulli",
    target: Literal["likelihood", "information"] = "likelihood",
    p: float | None = None,
    rates: Sequence[float] = _RATES,
    scales: Sequence[float] = _SCALES,
    tolerance: float = 0.01,
    bound: float = 0.05,
    num_draws: int = 100,
    seed: int = 0,
    batch_size: int = 500,
    output: Output | None = None,
    items: Items | None = None,
    progress: bool = False,
) -> Injection:
    """Give a trained network without dropout a spread that held-out rows bear out; its weights stay.

    By default the noise is before the last linear map. Every strength of it is tried on the held-out rows:

        target="likelihood"    the largest (1/M) sum_m log (1/T) sum_t p(y_m | f_t(x_m))
        target="information"   the largest p at which I(x; y), of rows and what is predicted for them, is at
                               least (1 - bound) times that of the network without noise; needs no targets

    What comes before the noise runs once for the whole search. A strength at which the mean prediction is
    worse than the network's own by more than `tolerance` is not chosen, and it is an error if all are. What
    comes out is a calibrated spread and not a posterior that was trained, and the result says so; `fit` with
    dropout, where you can train, gives a better one.

    Args:
        model: any trained `nn.Module` that `predict` takes, in which nothing is random; it is copied.
        data: rows that the network was not trained on: a pair (x, y), or an iterable of such pairs, as a
            `DataLoader`; x as `predict` takes it. For target="information" x alone. None if `p` is given.
        likelihood: what the outputs mean.
        where: "last": the linear maps after which no other comes, one for each head. "every layer": all
            weight layers and recurrent modules. Or paths, module types, functions of (path, module), or
            several of these, as in `convert`; an `nn.Dropout` of p = 0 may be one of them.
        kind: "bernoulli", "gaussian" or "dropconnect".
        target: what to choose by, see above.
        p: this rate, and nothing is chosen. If there are data, it is measured all the same.
        rates: those that are tried.
        scales: of the noise, tried with every rate: see `ScaledDropout`. 1 is plain dropout, and
            another one is taken only if it is better by more than a standard error. Used for
            target="likelihood" and "bernoulli" noise.
        tolerance: how much lower the accuracy may be (0.01 is one point in a hundred), or by which share
            larger the RMSE.
        bound: share of the information that may be lost.
        num_draws: draws of every measurement, T.
        seed: of the draws, as of `predict`.
        batch_size: rows of a pass, where `data` are no batches already.
        output: which tensor of several that the model returns, as in `predict`.
        items: what the parts of a batch are, as in `predict`, for target="information".
        progress: show a bar (needs the extra "cli").

    Returns: an `Injection`, whose `model` has the noise.

    The information is that of `bayesdrop.inject.information.prediction_information`. Reference: Ledda, Fumera
    & Roli (2023) on dropout that is injected into trained networks and its rate chosen on held-out data. The
    mode without targets is after Rate-In (Zeevi et al., 2025), which bounds the information that every layer
    loses; here it is bounded once, at the outputs.

    >>> import bayesdrop as bd
    >>> _ = torch.manual_seed(0)
    >>> net, x = nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 1)), torch.randn(200, 3)
    >>> y = net(x).detach() + 0.5 * torch.randn(200, 1)
    >>> injection = bd.inject(net, (x, y), likelihood=bd.Gaussian(0.3))
    >>> injection.paths, injection.improves
    (('2',), True)
    >>> bd.predict(injection.model, x, likelihood=bd.Gaussian(0.3)).epistemic.mean() > 0
    tensor(True)
    """
    _check(model, likelihood, kind, target, data, p)
    rates = _checked_rates("rates", rates)
    scales = _checked_scales(scales) if kind == "bernoulli" and target == "likelihood" else (1.0,)
    tolerance = real_number("inject", "tolerance", tolerance, "a number of at least 0", at_least=0)
    bound = real_number("inject", "bound", bound, "in (0, 1)", above=0, below=1)
    num_draws = whole_number("inject", "num_draws", num_draws, at_least=2)
    seed = whole_seed("inject", seed)
    whole_number("inject", "batch_size", batch_size, at_least=1)
    check_output(output, "inject")
    model = _copied(unwrapped(model))
    _must_be_quiet(model)
    if data is None:
        assert p is not None
        made = _noisy(model, kind, where, p, 1.0, None, output)
        return Injection(made, _paths(made), kind, p, 1.0, "given", 0, num_draws)
    batches = _batches(model, data, target, batch_size, items)
    first = take_rows(batches[0].inputs, slice(0, 2))
    scaled = p is None and tuple(scales) != (1.0,) and not _replaces_dropout(model, where, first, output)
    if not scaled:
        scales = (1.0,)
    studied = _noisy(model, ScaledDropout if scaled else kind, where, 0.5, 1.0, first, output)
    placed = frozen_copy(likelihood)
    assert placed is not None
    placed.to(next((part.device for part in (*model.parameters(), *model.buffers())), "cpu"))
    try:
        with told_by("inject", "data"):
            sweep = NoiseSweep(
                studied, batches, likelihood=placed, num_draws=num_draws, seed=seed, output=output,
                owner="inject",
            )  # fmt: skip
    except NoRandomness as error:
        want = "layers that the output depends on"
        raise ValueError(must("inject", "where", want, ", ".join(_paths(studied)))) from error
    _must_be_alone(sweep, _paths(studied))
    strengths = [(rate, scale) for scale, rate in product(scales, rates)] if p is None else [(p, 1.0)]
    total = len(strengths) if target == "likelihood" or p is not None else None
    bar = nullcontext(_silent) if progress is False else progress_bar("inject", total, show=progress)
    with bar as advance, told_by("inject", "data"):
        search = Search(sweep, informed=target == "information", tolerance=tolerance, advance=advance)
        _must_be_enough(search, batches)
        if p is None and target == "information":
            best, tried = largest_rate(search, rates, bound)
        else:
            tried = [search.at(*strength) for strength in strengths]
            _must_be_allowed(search, tried, tolerance)
            best = tried[chosen(tried)] if target == "likelihood" else tried[0]
    found = best.candidate
    made = _noisy(model, kind, where, found.p, found.scale, first, output)
    report = Injection(
        made, _paths(made), kind, found.p, found.scale, "given" if p is not None else target,
        sum(batch.rows for batch in batches), num_draws, candidates=tuple(one.candidate for one in tried),
    )  # fmt: skip
    return _with_measures(report, search, best, tried if p is None and target == "likelihood" else None)


def _silent(count: int, text: str) -> None:
    """Show no progress."""


def _with_measures(
    report: Injection, search: Search, best: Measured, tried: list[Measured] | None
) -> Injection:
    """The report with what was measured; `tried` is what the likelihood has chosen among."""
    before, after = search.bare.candidate, best.candidate
    if search.bare.points is not None and best.points is not None:
        points = best.points if tried is None else cross_fitted(tried)
        gain = points - search.bare.points
        report = replace(
            report, before=before.log_likelihood, after=(before.log_likelihood or 0.0) + float(gain.mean()),
            standard_error=float(gain.std()) / math.sqrt(len(gain)), metric=search.metric,
            quality_before=before.quality, quality_after=after.quality,
        )  # fmt: skip
    return replace(report, information_before=before.information, information_after=after.information)


# the noise


def _noisy(
    model: nn.Module,
    kind: str | type[StochasticLayer],
    where: Any,
    p: float,
    scale: float,
    x: Any,
    output: Output | None,
) -> nn.Module:
    """A copy of the model with noise."""
    made: Any = _KINDS[kind] if isinstance(kind, str) else kind
    options: dict[str, Any] = {}
    if scale != 1:
        made, options = ScaledDropout, {"scale": scale}
    paths = [paths[0] for paths in _chosen(model, where, x, output).values()]
    # A path of "" would be that of everything.
    places: Any = paths if paths != [""] else lambda path, module: path == ""
    return convert(_copied(model), made, where=places, p=p, inplace=True, x=x, **options)


def _chosen(model: nn.Module, where: Any, x: Any, output: Output | None) -> dict[nn.Module, list[str]]:
    def last() -> list[nn.Module]:
        return last_maps(model, x, lambda returned: picked(returned, output, "inject"))

    rule = "weights" if isinstance(where, str) and where == "every layer" else where
    return choose(model, rule, last=last, owner="inject")


def _replaces_dropout(model: nn.Module, where: Any, x: Any, output: Output | None) -> bool:
    return any(isinstance(module, DROPOUTS) for module in _chosen(model, where, x, output))


def _paths(model: nn.Module) -> tuple[str, ...]:
    return tuple(path for path, part in model.named_modules() if isinstance(part, StochasticLayer))


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise ValueError(f"inject: `model` cannot be copied: {error}") from error


# the data


def _batches(
    model: nn.Module, data: Any, target: str, batch_size: int, items: Items | None
) -> list[InputBatch]:
    """The held-out rows, with their targets where these are needed."""
    if target == "information":
        size = batch_size if is_batch(data) else None
        found = InputBatches(
            model, data, batch_size=size, targets=None, items=items, scored=False, owner="inject"
        )
        batches = list(found)
    else:
        pair = isinstance(data, tuple | list) and len(data) == 2 and is_batch(data[0])
        if pair and isinstance(data[1], Tensor | np.ndarray):
            y = torch.as_tensor(np.array(data[1]) if isinstance(data[1], np.ndarray) else data[1])
            rows = num_rows(as_tensors(data[0], None, "inject"), "inject")
            if rows != len(y):
                want = f"a pair (x, y) with as many targets as rows, {rows}"
                raise ValueError(must("inject", "data", want, len(y)))
            found = InputBatches(
                model, data[0], batch_size=batch_size, targets=y, items=None, scored=True, owner="inject"
            )
        elif is_batch(data):
            want = "a pair (x, y) of held-out rows, or batches of them"
            hint = "Without targets there is target='information'."
            raise TypeError(must("inject", "data", want, type(data), hint))
        else:
            found = InputBatches(
                model, data, batch_size=None, targets=None, items="pairs", scored=True, owner="inject"
            )
        batches = list(found)
        for batch in batches:
            if batch.targets is None:
                raise TypeError(must("inject", "data", "pairs (x, y)", "a batch without y"))
            must_be_finite("inject", "data", batch.targets)
    if not batches:
        raise ValueError(must("inject", "data", "at least one batch", "none"))
    return batches


# errors


def _check(model: Any, likelihood: Any, kind: Any, target: Any, data: Any, p: Any) -> None:
    if not isinstance(model, nn.Module) or isinstance(model, Likelihood):
        raise TypeError(must("inject", "model", "a trained network, an nn.Module", model))
    if not isinstance(likelihood, Likelihood):
        raise TypeError(must("inject", "likelihood", "a Likelihood, as Categorical()", likelihood))
    if not is_one_of(kind, _KINDS):
        hint = "Noise that is learned is given by convert(model, kind), and learned by fit."
        raise ValueError(must("inject", "kind", f"one of {', '.join(map(repr, _KINDS))}", kind, hint))
    if not is_one_of(target, ("likelihood", "information")):
        raise ValueError(must("inject", "target", "'likelihood' or 'information'", target))
    if p is not None:
        real_number("inject", "p", p, "in (0, 1)", above=0, below=1)
    elif data is None:
        raise ValueError(
            must("inject", "data", "held-out rows to choose the rate by, unless `p` is given", None)
        )


def _checked_rates(argument: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not len(values):
        raise ValueError(must("inject", argument, "numbers in (0, 1), as (0.05, 0.1)", values))
    return tuple(sorted(real_number("inject", argument, v, "in (0, 1)", above=0, below=1) for v in values))


def _checked_scales(values: Any) -> tuple[float, ...]:
    want = "positive numbers, as (0.5, 1.0)"
    if not isinstance(values, Sequence) or isinstance(values, str) or not len(values):
        raise ValueError(must("inject", "scales", want, values))
    found = (real_number("inject", "scales", v, want, at_least=1e-3, at_most=1e3) for v in values)
    return tuple(sorted(found))


_HAS_NOISE = (
    "inject: `model` must be a network in which nothing is random; got noise at {places}. Its dropout is "
    "what `predict` uses: there is nothing to inject. To change its rates use set_rates(model, p) or convert."
)


def _must_be_quiet(model: nn.Module) -> None:
    """Raise if the modules of a model show that it has dropout already."""
    random = [site.name for site in audit(model).sites if site.random]
    if random:
        raise ValueError(_HAS_NOISE.format(places=", ".join(random)))


def _must_be_alone(sweep: NoiseSweep, paths: Sequence[str]) -> None:
    """Raise if a pass has shown other noise than what was injected."""
    random = [site.name for site in sweep.sites.values() if site.random and site.path not in paths]
    if random or sweep.foreign:
        raise ValueError(_HAS_NOISE.format(places=", ".join([*random, *dict.fromkeys(sweep.foreign)])))


def _must_be_enough(search: Search, batches: Sequence[InputBatch]) -> None:
    points = search.bare.points
    count = sum(batch.rows for batch in batches) if points is None else len(points)
    if count < _FEWEST:
        want = f"at least {_FEWEST} {'rows' if points is None else 'targets'} that the network has not seen"
        hint = "With fewer, the choice would be chance. Give `p` if you know the rate."
        raise ValueError(must("inject", "data", want, count, hint))


def _must_be_allowed(search: Search, tried: Sequence[Measured], tolerance: float) -> None:
    if any(one.candidate.allowed for one in tried):
        return
    before, least = search.bare.candidate.quality, tried[0].candidate
    name = "an accuracy" if search.metric == "accuracy" else "an RMSE"
    raise ValueError(
        f"inject: refused, as the mean prediction becomes worse than `tolerance` = {tolerance:g} allows: "
        f"{name} of {before:.4g} without noise, and of {least.quality:.4g} at p = {least.p:g}. Try smaller "
        "`rates` or scales, another place, or a larger tolerance."
    )
