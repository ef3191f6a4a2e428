"""What a mixture says about the rows that its networks were fitted to, each by networks that held it out.

Every network of a blended mixture held some rows out. A row is therefore predicted *out of fold*: by those
networks alone that did not see it, with the noise and the tails of the whole mixture. That measures a model
that was fitted to all rows, and sets its intervals.

**Why intervals hold.** Let F_i be the predictive distribution of row i by the networks that held it out, and

    s_i = max(1 - 2 F_i(y_i), 2 F_i(y_i -) - 1, 0)

the probability of the narrowest central interval that holds its target: |2 F_i(y_i) - 1| for continuous
targets, and less for whole numbers, each of which has a probability of its own. If F_i did not depend on
row i at all, and a new row n + 1 had its own F made in the same way, then s_1, ..., s_n+1 would be
exchangeable: s_n+1 is at most the ceil((n + 1) level)-th smallest of the others with a chance of at least
`level`. A central interval of that probability then holds y_n+1 as often. This is conformal prediction with
the score s, and it moves the level of the quantiles that are taken and nothing else: intervals stay quantiles
of one distribution, grow with their level, and follow its skewness and its spread.

Two things are only nearly so, as with all cross-validation. A new row is predicted by all networks, and not
by those of one fold: its prediction is a little better, and intervals a little wide. And a few numbers (which
networks are kept, the shift and slope of the noise, its tails) were chosen by all rows together. Where a new
model is fitted without each row, coverage is 1 - 2 (1 - level) in the worst case, and `level` in practice.

Reference: Vovk (2015), "Cross-conformal predictors"; Barber, Candès, Ramdas & Tibshirani (2021), "Predictive
inference with the jackknife+", for CV+ and its bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.predict import Prediction
from bayesdrop.stacked.encode import Array
from bayesdrop.stacked.mixture import Mixture
from bayesdrop.stacked.scores import draw_outputs

__all__ = ["central_shares", "interval_levels", "out_of_fold"]

Places = NDArray[np.int64]

#: draws of every network, and of all networks that held a row out together, at least
_DRAWS = 24
_ALL_DRAWS = 96
#: rows that are predicted, at most: they show how often a 95 % interval holds to a third of a percent
_MOST = 4000
#: numbers of draws that are held at a time
_NUMBERS = 2**22
#: the largest probability of a central interval: farther out no row has been seen
_LARGEST = 1 - 1e-9


@torch.no_grad()
def out_of_fold(mixture: Mixture, x: Array, *, most: int = _MOST) -> Iterator[tuple[Places, Prediction]]:
    """Predictions of rows of the fit by the networks that held them out, some rows at a time.

    Args:
        mixture: as fitted, with the places of rows that each network has not seen.
        x: (N, K) columns of the table it was fitted to.
        most: rows to predict at most; of more that were held out, so many are taken at random.

    Yields: places of rows in the table, and their predictive distributions. Rows that no network held out
        are left out; there are none at all where networks were fitted to all rows.
    """
    held = [np.empty(0, np.int64) if one.held is None else one.held.numpy() for one in mixture.components]
    counts = np.zeros(len(x), dtype=np.int64)
    for rows in held:
        counts[rows] += 1
    known = np.flatnonzero(counts)
    if len(known) > most:
        known = np.sort(np.random.default_rng(0).permutation(known)[:most])
    for count in np.unique(counts[known]).tolist():
        own = known[counts[known] == count]
        each = max(_DRAWS, -(-_ALL_DRAWS // count))
        size = max(1, _NUMBERS // (each * count * (mixture.outputs + 1)))
        for start in range(0, len(own), size):
            rows = own[start : start + size]
            yield rows, Prediction.from_draws(_draws(mixture, x, rows, held, count, each), mixture.likelihood)


def _draws(mixture: Mixture, x: Array, rows: Places, held: list[Places], count: int, each: int) -> Tensor:
    """(count * each, n, outputs) of rows that were held out `count` times."""
    made = torch.empty(count * each, len(rows), mixture.outputs, dtype=torch.float64)
    filled = np.zeros(len(rows), dtype=np.int64)
    scales = mixture.log_scales(count * each, seed=0)
    for component, apart in zip(mixture.components, held, strict=True):
        here = np.flatnonzero(np.isin(rows, apart))
        if not len(here):
            continue
        inputs = mixture.encoders[component.encoder](x[rows[here]])
        output = torch.cat(
            list(draw_outputs(component.network, inputs, num_draws=each, seed=component.network.seed))
        )
        value = mixture.in_units(output, component.network.log_variance)
        # Rows were held out by different networks so far: draws go to the next free places of each row.
        draws = torch.from_numpy(filled[here][None] * each + np.arange(each)[:, None])
        if scales is not None:
            value[..., value.shape[-1] // 2 :] += scales[draws]
        made[draws, torch.from_numpy(here)] = value
        filled[here] += 1
    return made


def central_shares(mixture: Mixture, x: Array, y: Array, *, groups: NDArray[np.int64] | None = None) -> Array:
    """(n, D) the probability of the narrowest central interval that holds the target, out of fold.

    Args:
        mixture: of numbers.
        x: (N, K) columns of the table it was fitted to.
        y: (N, D) targets.
        groups: (N,) the group of every row. Groups are then exchangeable, and their rows are not: one row of
            each, at random, is scored.
    """
    places, shares = [np.empty(0, np.int64)], [np.empty((0, y.shape[1]))]
    for rows, prediction in out_of_fold(mixture, x):
        shares.append(prediction.central_level(torch.from_numpy(y[rows])).numpy())
        places.append(rows)
    found, at = np.concatenate(shares), np.concatenate(places)
    if groups is None:
        return found
    order = np.random.default_rng(0).permutation(len(at))
    return found[order[np.unique(groups[at][order], return_index=True)[1]]]


def interval_levels(shares: Array, level: float, *, joint: bool = False) -> Array:
    """(D,) probabilities of the central intervals that hold a share `level` of targets.

    Args:
        shares: (n, D), of `central_shares`.
        level: in (0, 1).
        joint: whether all targets of a row are held at once: the score of a row is then its largest share,
            and all targets have one probability.

    Returns: the ceil((n + 1) level)-th smallest share of each target. If n is too small for that, below
        level / (1 - level), `level` itself; with `joint` 1 - (1 - level) / D, which holds all D targets of a
        right distribution with a chance of at least `level` (Bonferroni).
    """
    targets = shares.shape[1]
    if joint:
        shares = shares.max(1, keepdims=True)
    # Rounding must not lift the rank: 10 * 0.9 may be a little above 9.
    rank = math.ceil((len(shares) + 1) * level - 1e-9)
    if rank > len(shares):
        return np.full(targets, 1 - (1 - level) / targets if joint else level)
    found: Array = np.sort(shares, axis=0)[rank - 1]
    return np.broadcast_to(np.clip(found, 1e-9, _LARGEST), targets)
