"""predict(): T function draws of a model, gathered batch by batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must, must_be_finite, must_be_flag, told_by, whole_number
from bayesdrop.execute import WAYS
from bayesdrop.inputs import InputBatches, Inputs, Items, NotFinite, is_batch, num_rows, take_rows
from bayesdrop.likelihoods import Bernoulli, Categorical, Likelihood
from bayesdrop.noise import NoiseSource, PixelSource
from bayesdrop.predict.analytic import batch_moments, check_likelihood
from bayesdrop.predict.prediction import Prediction, frozen_copy
from bayesdrop.predict.ranks import Ranks, Share
from bayesdrop.predict.sampler import DrawSampler, Output, check_output, unwrapped
from bayesdrop.predict.statistics import DrawStatistics, Keeper, Statistics
from bayesdrop.predict.tiles import Stitcher, Tiling
from bayesdrop.progress import progress_bar
from bayesdrop.trace import Selection, Where

__all__ = ["predict"]


def predict(
    model: nn.Module,
    x: Inputs | Iterable[Inputs],
    *,
    num_draws: int = 100,
    seed: int = 0,
    likelihood: Likelihood | None = None,
    draws: Literal["shared", "independent"] = "shared",
    method: Literal["draws", "moments"] = "draws",
    batch_size: int | None = None,
    keep_draws: bool | None = None,
    targets: Tensor | None = None,
    tolerance: float | None = None,
    include: Where | Iterable[Where] | None = None,
    exclude: Where | Iterable[Where] | None = None,
    recurrent: Literal["module", "variational"] = "module",
    max_memory: int | None = None,
    plan: Literal["stacked", "kept units", "loop", "whole model"] | None = None,
    share: Share | None = None,
    items: Items | None = None,
    output: Output | None = None,
    tiles: int | tuple[int, int] | None = None,
    overlap: int = 32,
    covariance: bool = False,
    progress: bool = False,
) -> Prediction:
    """Predictive distribution of a model whose weights are random.

        mean = (1/T) sum_t E[y | f_t(x)],    variance = Var_t E[y | f_t(x)] + (1/T) sum_t Var[y | f_t(x)]

    All dropout of any model is random, and the model need not be changed: stochastic layers, `nn.Dropout*`
    modules, functional dropout, attention, recurrent layers. Everything else, BatchNorm too, is in eval
    mode. What does not depend on noise is computed once for all draws. Training flags, buffers and the
    global random state are put back.

    Args:
        model: any `nn.Module` with something random in it.
        x: a tensor or array with N rows, a tuple (positional arguments) or mapping (keywords) of these, or an
            iterable of such batches, as a `DataLoader`; see `items`. Floating-point arrays are converted to
            the model's precision.
        num_draws: how many functions, T.
        seed: names a sequence of functions: draw t is the same in every call, batch size and order.
        likelihood: what the outputs mean; None gives moments of the raw outputs.
        draws: "shared": a draw is one function for all rows. "independent": every row has its own noise,
            seeded by the number of its batch's first row; the moments of each row are the same.
        method: "draws": sample T functions. "moments": mean and variance in one analytic pass, without
            draws; for raw outputs and Gaussian likelihoods, and models whose operations have a rule.
        batch_size: rows that pass through the model at a time.
        keep_draws: whether `prediction.draws` is kept; None keeps up to 64 MiB.
        targets: y, scored during the call, so that `log_prob(y)` needs no kept draws.
        tolerance: draw until the Monte Carlo standard error of every mean is below this share of its
            predictive standard deviation, batch by batch, or until there are `num_draws`.
        include: which sites are on: a path ("encoder", "layers.*.dropout"), a module type, a function of
            (path, module), or several of these; all if None.
        exclude: which sites are off.
        recurrent: noise between the layers of `nn.LSTM/GRU/RNN`: "module": for every time step, as the
            module does; "variational": one mask over time.
        max_memory: bytes that the draws run at a time may take.
        plan: how to run the draws, whatever it costs; chosen by shapes and rates if None. The results are
            the same. `prediction.plan` says what was done.
        share: under `torch.distributed`, share "draws" or "rows" between the processes, each of which
            makes the same call and gets the whole prediction.
        items: where `x` is an iterable, what the parts of a batch are. "pairs": (x, y); the model gets x, and
            y is scored as `targets` if there is a likelihood. "inputs": all parts are arguments of the
            model. None: two parts are a pair if the model takes one input; anything else is an error.
        output: which tensor to use of a model that returns several: a name, an index, or a function of the
            returned value. None: the one tensor, or `.logits`.
        tiles: height and width in pixels of the tiles that images (N, C, H, W) are cut into, for images too
            large for one pass of a model whose outputs are maps of the size of its input. Every draw is the
            same function in all tiles; see the page on large images. None: images are not cut.
        overlap: pixels that neighbouring tiles share. Maps are those of the whole image, to rounding, if
            this is at least the width of the model's receptive field.
        covariance: compute the covariance between the outputs of a row during the call, so that
            `prediction.covariance` needs no kept draws.
        progress: show a bar (needs the extra "cli").

    Reference: Gal & Ghahramani (2016), Eqs 6 to 8.

    >>> import bayesdrop as bd
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    >>> bd.predict(net, torch.zeros(5, 3), num_draws=20, likelihood=bd.Gaussian(0.1))
    Prediction((5, 1), Gaussian, 20 draws, kept)
    """
    _check_arguments(model, num_draws, likelihood, draws, batch_size)
    _check_choices(seed, method, plan, tolerance, max_memory, keep_draws)
    check_output(output)
    targets = _checked_targets(targets, likelihood)
    _check_covariance(covariance, method)
    tiling = _checked_tiling(tiles, overlap, method, tolerance, likelihood, targets)
    model = unwrapped(model)
    ranks = None if share is None else Ranks(share)
    first_row = 0
    if ranks is not None and share == "rows":
        x, targets, first_row = _own_rows(ranks, x, targets)
    batches = InputBatches(
        model, x, batch_size=batch_size, targets=targets, items=items, scored=likelihood is not None
    )
    if method == "moments":
        return _moments(model, batches, likelihood, Selection(include, exclude), output)
    frozen = frozen_copy(likelihood)
    placed = None if likelihood is None else frozen_copy(likelihood)
    if placed is not None:
        placed.to(batches.device)
    first, last = ranks.part(num_draws) if ranks is not None and share == "draws" else (0, num_draws)
    keeper = Keeper(keep_draws)
    source = NoiseSource(seed, most=last) if tiling is None else PixelSource(seed, most=last)
    sampler = DrawSampler(
        model,
        seed=seed,
        num_draws=last - first,
        first=first,
        per_row=draws == "independent",
        include=include,
        exclude=exclude,
        recurrent=recurrent,
        max_memory=max_memory,
        way=plan,
        chunk=None if tolerance is None else _CHECKED_DRAWS,
        output=output,
        source=source,
    )
    parts: list[Statistics] = []
    joints: list[list[float]] = []
    scored: list[Tensor] = []
    seen = first_row
    total = None if batches.count is None or tiling is not None else batches.count * (last - first)
    bar = nullcontext(_silent) if progress is False else progress_bar("predict", total, show=progress)
    with torch.no_grad(), bar as advance:
        runner: _Whole | Stitcher = _Whole(sampler, placed, keeper, ranks, advance, tolerance, covariance)
        if tiling is not None and isinstance(source, PixelSource):
            runner = Stitcher(tiling, sampler, source, placed, keeper, ranks, advance, covariance)
        for batch, rows, y in batches:
            scored += [] if y is None else [y.cpu()]
            keeper.start(last - first)
            part, joint_of_part = runner.batch(batch, rows, seen, y)
            keeper.finish()
            parts.append(part)
            joints.append(joint_of_part)
            seen += rows
    if not parts:
        raise ValueError(must("predict", "x", "at least one batch", "none"))
    statistics = _joined(parts)
    kept = keeper.result()
    num_seen = len(statistics.mean)
    if targets is not None and targets.shape[0] != num_seen:
        raise ValueError(must("predict", "targets", f"{num_seen} rows, as `x`", tuple(targets.shape)))
    targets = torch.cat(scored) if scored else None
    joint = None if targets is None else _summed(joints)
    if ranks is not None and share == "rows":
        statistics = ranks.merge_rows(statistics)
        targets = None if targets is None else torch.cat(ranks.gather(targets))
        joint = None if joint is None else torch.stack(ranks.gather(joint)).sum(0)
        kept = None if kept is None else torch.cat(ranks.gather(kept.transpose(0, 1))).transpose(0, 1)
    elif ranks is not None and kept is not None:
        kept = torch.cat(ranks.gather(kept))
    return Prediction.from_statistics(
        statistics,
        frozen,
        shared=draws == "shared",
        plan=_summary(sampler, statistics, num_draws, tolerance) + ("" if tiling is None else f"\n{tiling}"),
        draws=kept,
        targets=targets,
        joint=joint,
    )


def _silent(count: int, text: str) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class _Whole:
    """Runs all draws of a batch; images are not cut. `Stitcher` does the same with images in tiles."""

    sampler: DrawSampler
    likelihood: Likelihood | None
    keeper: Keeper
    ranks: Ranks | None
    advance: Callable[[int, str], None]
    tolerance: float | None
    covariance: bool

    def batch(
        self, batch: Inputs, rows: int, offset: int, y: Tensor | None
    ) -> tuple[Statistics, list[float]]:
        """The statistics of a batch, and for every draw the log-probability of all targets together."""
        running = DrawStatistics(self.likelihood, y, covariance=self.covariance)
        for outputs in self.sampler.batch(batch, rows, offset):
            with nullcontext() if y is None else told_by("predict", "targets"):
                running.update_many(outputs)
            self.keeper.add(outputs)
            self.advance(outputs.shape[0], "")
            if self.tolerance is not None and running.largest_error() <= self.tolerance:
                break
        if self.ranks is not None and self.ranks.share == "draws":
            self.ranks.merge_draws(running)
        return running.result(), running.joint


def _moments(
    model: nn.Module,
    batches: InputBatches,
    likelihood: Likelihood | None,
    selection: Selection,
    output: Output | None,
) -> Prediction:
    """The prediction from one analytic pass for each batch."""
    check_likelihood(likelihood)
    selection.check(model)
    frozen = frozen_copy(likelihood)
    with torch.no_grad():
        parts = [batch_moments(model, x, rows, frozen, selection, output) for x, rows, _ in batches]
    if not parts:
        raise ValueError(must("predict", "x", "at least one batch", "none"))
    plan = "moments: one analytic pass, no draws"
    return Prediction.from_statistics(_joined(parts), frozen, shared=True, plan=plan, draws=None)


def _joined(parts: list[Statistics]) -> Statistics:
    """The statistics of all batches one after the other, with a warning of rows that are not finite."""
    shapes = {tuple(part.mean.shape[1:]) for part in parts}
    if len(shapes) > 1:
        hint = "Pad them to one length, or predict the batches apart."
        got = f"outputs of shapes {', '.join(map(str, sorted(shapes)))} for a row"
        raise ValueError(must("predict", "x", "batches whose outputs have one shape", got, hint))
    statistics = Statistics.concatenate(parts)
    # A sum is finite only if all its terms are; testing each takes memory of the size of the prediction.
    if not bool(torch.isfinite(statistics.mean.sum())):
        finite = torch.isfinite(statistics.mean)
        bad = (~finite).flatten(1).any(1) if finite.dim() > 1 else ~finite
        if bool(bad.any()):
            message = (
                f"predict: the mean of {int(bad.sum())} of {len(bad)} rows is NaN or infinite, the first in "
                f"row {int(bad.nonzero()[0])}. Do not use these rows."
            )
            warnings.warn(message, NotFinite, stacklevel=3)
    return statistics


#: with a tolerance, the error is checked each time so many draws are done
_CHECKED_DRAWS = 16


def _summary(sampler: DrawSampler, statistics: Statistics, num_draws: int, tolerance: float | None) -> str:
    """What was done, in a few lines."""
    if tolerance is None:
        return str(sampler)
    used = statistics.draws_used
    return f"{sampler}\n{int(used.min())} to {int(used.max())} of at most {num_draws} draws were needed"


def _summed(joints: list[list[float]]) -> Tensor | None:
    """The joint score of every draw over all batches; None if some batches used fewer draws than others."""
    if len({len(scores) for scores in joints}) > 1:
        return None
    return torch.tensor(joints, dtype=torch.float64).sum(0)


def _own_rows(ranks: Ranks, x: Any, targets: Tensor | None) -> tuple[Inputs, Tensor | None, int]:
    """The rows of inputs and targets for this process, and the number of the first."""
    if not is_batch(x):
        raise TypeError(must("predict", "x", "tensors, to share their rows", type(x)))
    start, stop = ranks.part(num_rows(x))
    if start == stop:
        raise ValueError(
            must("predict", "x", f"at least {ranks.size} rows, one for each process", num_rows(x))
        )
    own = None if targets is None else targets[start:stop]
    return take_rows(x, slice(start, stop)), own, start


def _check_arguments(
    model: nn.Module,
    num_draws: int,
    likelihood: Likelihood | None,
    draws: str,
    batch_size: int | None,
) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(must("predict", "model", "an nn.Module", model))
    if isinstance(model, Likelihood):
        raise TypeError(must("predict", "model", "a network, not what its outputs mean", model))
    whole_number("predict", "num_draws", num_draws, at_least=1)
    if batch_size is not None:
        whole_number("predict", "batch_size", batch_size, at_least=1)
    if not is_one_of(draws, ("shared", "independent")):
        raise ValueError(must("predict", "draws", "'shared' or 'independent'", draws))
    if likelihood is not None and not isinstance(likelihood, Likelihood):
        raise TypeError(must("predict", "likelihood", "a Likelihood, as Categorical(), or None", likelihood))


def _checked_tiling(
    tiles: int | tuple[int, int] | None,
    overlap: int,
    method: str,
    tolerance: float | None,
    likelihood: Likelihood | None,
    targets: Tensor | None,
) -> Tiling | None:
    if tiles is None:
        return None
    if method == "moments":
        raise ValueError(must("predict", "tiles", "None for method='moments'", method))
    if tolerance is not None:
        hint = "Tiles of an image would use different numbers of draws."
        raise ValueError(must("predict", "tolerance", "None with tiles", tolerance, hint))
    if targets is not None and not isinstance(likelihood, Categorical | Bernoulli):
        hint = "Other likelihoods score an image as a whole, which no tile sees."
        raise ValueError(must("predict", "targets", "None with tiles, or labels of pixels", likelihood, hint))
    return Tiling(tiles, overlap)


def _check_covariance(covariance: bool, method: str) -> None:
    must_be_flag("predict", covariance=covariance)
    if covariance and method == "moments":
        hint = "Moments are propagated output by output: call it with method='draws'."
        raise ValueError(must("predict", "covariance", "False for method='moments'", covariance, hint))


def _check_choices(
    seed: int,
    method: str,
    plan: str | None,
    tolerance: float | None,
    max_memory: int | None,
    keep_draws: bool | None,
) -> None:
    whole_number("predict", "seed", seed)
    if not is_one_of(method, ("draws", "moments")):
        raise ValueError(must("predict", "method", "'draws' or 'moments'", method))
    if not is_one_of(plan, (None, *WAYS)):
        raise ValueError(must("predict", "plan", f"one of {', '.join(map(repr, WAYS))}, or None", plan))
    if tolerance is not None and not (isinstance(tolerance, float) and 0 < tolerance < 1):
        raise ValueError(must("predict", "tolerance", "in (0, 1), or None", tolerance))
    if max_memory is not None:
        whole_number("predict", "max_memory", max_memory, at_least=1)
    if keep_draws is not None and not isinstance(keep_draws, bool | np.bool_):
        raise TypeError(must("predict", "keep_draws", "True, False or None", keep_draws))


def _checked_targets(targets: Any, likelihood: Likelihood | None) -> Tensor | None:
    if targets is None:
        return None
    if isinstance(targets, np.ndarray) and targets.dtype.kind in "fiub":
        targets = torch.from_numpy(np.array(targets))
    if not isinstance(targets, Tensor) or targets.dim() < 1:
        raise TypeError(must("predict", "targets", "a tensor with the rows of `x`, or None", targets))
    if likelihood is None:
        raise ValueError(must("predict", "targets", "None without a likelihood", targets))
    must_be_finite("predict", "targets", targets)
    return targets
