"""inject(): dropout for a network that was trained without it, its strength chosen on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from typing import Any, Literal

from torch import nn

from bayesdrop.errors import NoRandomness, must, real_number, told_by, whole_number, whole_seed
from bayesdrop.inject.checks import (
    check_arguments,
    checked_rates,
    checked_scales,
    must_be_allowed,
    must_be_alone,
    must_be_enough,
    must_be_quiet,
)
from bayesdrop.inject.place import KINDS, Placement, copied, noise_paths
from bayesdrop.inject.report import Injection
from bayesdrop.inject.rows import held_out_batches
from bayesdrop.inject.search import Measured, Search, chosen, cross_fitted, largest_rate
from bayesdrop.inputs import Items, take_rows
from bayesdrop.layers import ScaledDropout
from bayesdrop.likelihoods import Likelihood
from bayesdrop.predict.prediction import frozen_copy
from bayesdrop.predict.sampler import Output, check_output, unwrapped
from bayesdrop.predict.sweep import NoiseSweep
from bayesdrop.progress import progress_bar
from bayesdrop.trace import Where

__all__ = ["inject"]

_RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
_SCALES = (0.1, 0.25, 0.5, 1.0)


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

    - `target="likelihood"`: the largest (1/M) sum_m log (1/T) sum_t p(y_m | f_t(x_m));
    - `target="information"`: the largest p at which I(x; y), of rows and what is predicted for them, is at
      least (1 - bound) times that of the network without noise; needs no targets.

    What comes before the noise runs once for the whole search. A strength at which the mean prediction is
    worse than the network's own by more than `tolerance` is not chosen, and it is an error if all are. What
    comes out is a calibrated spread and not a posterior that was trained, and the result says so.

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

    >>> import torch
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
    check_arguments(model, likelihood, kind, target, data, p)
    rates = checked_rates(rates)
    scales = checked_scales(scales) if kind == "bernoulli" and target == "likelihood" else (1.0,)
    tolerance = real_number("inject", "tolerance", tolerance, "a number of at least 0", at_least=0)
    bound = real_number("inject", "bound", bound, "in (0, 1)", above=0, below=1)
    num_draws = whole_number("inject", "num_draws", num_draws, at_least=2)
    seed = whole_seed("inject", seed)
    whole_number("inject", "batch_size", batch_size, at_least=1)
    check_output(output, "inject")
    model = copied(unwrapped(model))
    must_be_quiet(model)
    if data is None:
        assert p is not None
        made = Placement(model, where, None, output).noisy(KINDS[kind], p)
        return Injection(made, noise_paths(made), kind, p, 1.0, "given", 0, num_draws)
    batches = held_out_batches(model, data, target, batch_size, items)
    first = take_rows(batches[0].inputs, slice(0, 2))
    placement = Placement(model, where, first, output)
    if p is not None or placement.replaces_dropout:
        scales = (1.0,)
    # Where scales are tried, the layers must be able to have one.
    studied = placement.noisy(KINDS[kind] if tuple(scales) == (1.0,) else ScaledDropout, 0.5)
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
        raise ValueError(must("inject", "where", want, ", ".join(noise_paths(studied)))) from error
    must_be_alone(sweep, noise_paths(studied))
    strengths = [(rate, scale) for scale, rate in product(scales, rates)] if p is None else [(p, 1.0)]
    total = len(strengths) if target == "likelihood" or p is not None else None
    bar = nullcontext(_silent) if progress is False else progress_bar("inject", total, show=progress)
    with bar as advance, told_by("inject", "data"):
        search = Search(sweep, informed=target == "information", tolerance=tolerance, advance=advance)
        if p is None:
            must_be_enough(search, batches)
        if p is None and target == "information":
            best, tried = largest_rate(search, rates, bound)
        else:
            tried = [search.at(*strength) for strength in strengths]
            must_be_allowed(search, tried, tolerance)
            best = tried[chosen(tried)] if target == "likelihood" else tried[0]
    found = best.candidate
    made = placement.noisy(KINDS[kind], found.p, found.scale)
    report = Injection(
        made, noise_paths(made), kind, found.p, found.scale, "given" if p is not None else target,
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
            standard_error=float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else None,
            metric=search.metric,
            quality_before=before.quality, quality_after=after.quality,
        )  # fmt: skip
    return replace(report, information_before=before.information, information_after=after.information)
