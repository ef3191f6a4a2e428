"""What kind of number a target is: skewed, a share, or a whole number; chosen on rows that were held out.

A Gaussian of the target itself suits prices, counts and shares badly: they are skewed, end at zero or one, or
take few values, on which a density could put ever higher spikes. Such targets are fitted through a monotone
map (see `Warp`), and whole numbers are *dequantised*: a number between -1/2 and 1/2 is added to each, drawn
once. The mean log density of the sums is at most the log-probability of the whole number, so that spikes gain
nothing, and candidates are compared on one measure.

Small networks that hold rows out choose the map. It is taken if the log density of rows that they have not
seen, in the target's own units, grows by two standard errors, and errors grow by less than one.

Reference: Theis, van den Oord & Bethge (2016), "A note on the evaluation of generative models", section 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bayesdrop.likelihoods.warped import Warp
from bayesdrop.stacked.encode import Array, Encoder
from bayesdrop.stacked.held_out import calibrate, held_out, mixture_log_prob
from bayesdrop.stacked.job import Job, Trained
from bayesdrop.stacked.settings import Settings
from bayesdrop.stacked.table import TrainingTable
from bayesdrop.stacked.train import train
from bayesdrop.threads import in_threads

__all__ = ["natures_of", "with_natures"]

#: a whole number whose standard deviation is above this is like any other number
_WIDE = 40.0
#: skewness from which on a map is tried
_SKEWED = 0.75
#: rows that a map is chosen by, parts that they are cut into, and how many of these are held out
_ROWS, _PARTS, _HELD = 3000, 4, 3
#: steps of training
_STEPS = 300


def natures_of(y: Array) -> list[Warp]:
    """The one or two maps that may suit a target, the plainer first.

    Args:
        y: (N,) numbers.
    """
    least, most, spread = float(y.min()), float(y.max()), float(y.std())
    whole = bool((y == np.round(y)).all()) and spread < _WIDE and most - least >= 2
    margin = most - least
    if not whole and least >= 0 and most <= 1 and len(np.unique(y)) > 10:
        return [Warp(low=0.0, high=1.0), Warp("logit", low=0.0, high=1.0)]
    # A target that comes near to 0, and is never below, is bounded by 0.
    low = 0.0 if 0 <= least <= 0.05 * np.median(y) else -math.inf
    counts = whole and 0 <= least <= 1
    plain = Warp(whole=True, low=0.0 if counts else -math.inf) if whole else Warp(low=low)
    skewness = float((((y - y.mean()) / max(spread, 1e-300)) ** 3).mean())
    if abs(skewness) < _SKEWED or len(np.unique(y)) < 5:
        return [plain]
    centre = 0.0 if least >= 0 else float(np.median(y))
    scale = float(np.median(np.abs(y - centre))) / 3
    scale = max(scale, 0.5 if whole else 1e-3 * spread)
    # The inverse of asinh grows fast: bounds keep predictions near the table's own range.
    ends = {"low": 0.0 if least >= 0 else least - margin, "high": most + margin}
    return [plain, Warp("asinh", centre, scale, whole=whole, **ends)]


@dataclass
class _Look:
    """Some rows of a table through one map, and the networks that try it.

    Attributes:
        table: the rows.
        inputs: of the networks.
        held: places of the rows that each network holds out.
        jobs: the networks.
    """

    table: TrainingTable
    inputs: Tensor
    held: list[Tensor]
    jobs: list[Job]


def with_natures(
    tables: Sequence[TrainingTable], wanted: Sequence[bool], *, processes: int = 1
) -> list[TrainingTable]:
    """The tables, those of a single target with the map that suits it best.

    Args:
        tables: to be fitted.
        wanted: for each table, whether a map may be chosen.
        processes: as in `train`.
    """
    chosen = list(tables)
    looks: dict[int, list[_Look]] = {}
    for place, (table, asked) in enumerate(zip(tables, wanted, strict=True)):
        if not asked or table.target is None or table.y.shape[1] != 1 or len(table.x) < 2 * _PARTS:
            continue
        warps = natures_of(table.y[:, 0])
        chosen[place] = replace(table, warp=warps[0])
        if len(warps) > 1:
            looks[place] = [_look(table, warp) for warp in warps]
    trained = iter(
        train([job for own in looks.values() for one in own for job in one.jobs], processes=processes)
    )
    for place, own in looks.items():
        found = [(look, [next(trained) for _ in look.jobs]) for look in own]
        judged = in_threads(lambda one: _judged(*one), found)
        scores = [one[~np.isnan(one[:, 0]), 0] for one in judged]
        best = max(range(len(own)), key=lambda way: scores[way].mean() if len(scores[way]) else -math.inf)
        if best and not _is_better(judged[best] - judged[0]):
            best = 0
        chosen[place] = replace(tables[place], warp=own[best].table.warp)
    return chosen


def _judged(look: _Look, networks: Sequence[Trained]) -> Array:
    """(n, 2) log densities and minus absolute errors of the rows, in the target's units.

    NaN for rows that no network held out, and everywhere if one diverged.
    """
    table, size = look.table, len(look.table.x)
    found = np.full((size, 2), np.nan)
    if any(one.diverged for one in networks):
        return found
    parts = [
        held_out(one, look.inputs, table.targets, rows, num_draws=16, seed=one.seed)
        for one, rows in zip(networks, look.held, strict=True)
    ]
    change = calibrate(parts)
    found[:, 0] = mixture_log_prob(parts, [change] * len(parts), size).double().numpy() + table.log_units
    assert table.target is not None
    for part in parts:
        middle = part.outputs[..., :1].mean(0).double().numpy() * table.target.scale + table.target.mean
        guessed = table.warp.bounded(table.warp.inverse(torch.from_numpy(middle))).numpy()
        found[part.rows, 1] = -np.abs(table.y[part.rows] - guessed)[:, 0]
    return found


def _is_better(gain: Array) -> bool:
    """Whether log densities grow by two standard errors, and errors by less than one.

    Densities alone would take a map whose noise suits and whose shape does not: it bends what is straight,
    and predictions are far off at the ends of the table.
    """
    known = gain[~np.isnan(gain).any(1)]
    if len(known) < 2 * _PARTS:
        return False
    gains, errors = known.mean(0), known.std(0, ddof=1) / math.sqrt(len(known))
    return bool(gains[0] > 2 * errors[0] and gains[1] > -errors[1])


def _look(table: TrainingTable, warp: Warp) -> _Look:
    source = np.random.default_rng([table.seed, 3])
    rows = source.permutation(len(table.x))[:_ROWS]
    some = replace(
        table,
        x=table.x[rows],
        y=table.y[rows],
        weight=None if table.weight is None else table.weight[rows],
        groups=None if table.groups is None else table.groups[rows],
        warp=warp,
    )
    units = np.arange(len(rows)) if some.groups is None else some.groups
    names, own = np.unique(units, return_inverse=True)
    part = source.permutation(len(names))[own] % _PARTS
    held = [torch.from_numpy(np.flatnonzero(part == one)) for one in range(_HELD)]
    held = [one for one in held if 0 < len(one) < len(rows)]
    batch = min(128, max(8, len(rows) // 2))
    epochs = max(1, round(_STEPS * batch / len(rows)))
    settings = Settings(
        hidden=(64, 64), p=0.1, activation="silu", noise="heteroscedastic", batch_size=batch, lr=3e-3,
        epochs=epochs, check_every=epochs,
    )  # fmt: skip
    inputs = Encoder.of(some.x)(some.x)
    jobs = [
        Job(
            inputs,
            some.targets,
            settings,
            seed=table.seed % 2**31 + place,
            rows=torch.from_numpy(np.setdiff1d(np.arange(len(rows)), one.numpy())),
            weight=some.weights,
        )
        for place, one in enumerate(held)
    ]
    return _Look(some, inputs, held, jobs)
