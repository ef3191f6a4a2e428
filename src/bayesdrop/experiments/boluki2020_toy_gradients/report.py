"""Rows and claims of the toy gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bayesdrop.experiments.boluki2020_toy_gradients.toy import ESTIMATORS
from bayesdrop.experiments.row import Claim, Row

__all__ = ["make_claims", "make_rows"]

Array = np.ndarray[Any, np.dtype[Any]]
Grid = Mapping[str, Array]
NAMES = list(ESTIMATORS)
ARM, DISARM = NAMES.index("ARM"), NAMES.index("DisARM")
CONCRETE = [place for place, estimator in enumerate(ESTIMATORS.values()) if not isinstance(estimator, str)]


def make_rows(grid: Grid, count: int) -> Iterator[Row]:
    """Bias, standard deviation and root mean squared error of every estimator, for the first network.

    Args:
        grid: what `survey_grid` found of it.
        count: estimates at each point of the grid.
    """
    scale = _root_mean(grid["exact"])

    for place, name in enumerate(NAMES):
        # The square of a mean over n estimates is too large by std^2 / n.
        square = float((grid["bias"][place] ** 2 - grid["std"][place] ** 2 / count).mean())
        exactly = _root_mean(grid["limit"][place]) / scale
        note = f"{exactly:.3f} by quadrature" if place in CONCRETE else ""
        paper = "0" if place == ARM else None
        yield from [
            Row(name, "bias / gradient", paper, max(square, 0.0) ** 0.5 / scale, note=note),
            Row(name, "std / gradient", None, _root_mean(grid["std"][place]) / scale),
            Row(name, "RMSE / gradient", None, float(grid["mse"][place].mean() ** 0.5) / scale),
        ]


def make_claims(
    grids: Sequence[Grid], descent: Mapping[str, Array], count: int, trace_count: int
) -> list[Claim]:
    """What the paper says of ARM and Concrete, and what is known of DisARM.

    Args:
        grids: what `survey_grid` found of all networks.
        descent: what `follow_descent` found of the first.
        count: estimates at each point of a grid.
        trace_count: estimates at each point of the descent.
    """
    points = sum(grid["exact"].size for grid in grids)
    scores = [_scores(grid, count) for grid in grids]
    typical = [
        _root_mean(np.concatenate([score[place].ravel() for score in scores])) for place in range(len(NAMES))
    ]
    largest = [max(float(abs(score[place]).max()) for score in scores) for place in range(len(NAMES))]
    return [
        Claim(
            "LBD, which uses ARM, has no bias.",
            f"bias over its standard error at {points} gradients of {len(grids)} networks: root mean square "
            f"{typical[ARM]:.2f}, largest {largest[ARM]:.1f}; DisARM {typical[DISARM]:.2f}, "
            f"{largest[DISARM]:.1f}. Without bias the first is 1 and the second about 3.",
            max(largest[ARM], largest[DISARM]) < 5,
        ),
        Claim(
            "Concrete is biased.",
            "; ".join(f"{NAMES[place]}: {typical[place]:.1f} standard errors" for place in CONCRETE)
            + " (root mean square of the same gradients).",
            all(typical[place] > 1.5 and largest[place] > 5 for place in CONCRETE),
        ),
        _error_claim(grids, points),
        _trace_claim(descent, trace_count),
        _variance_claim(grids, count),
    ]


def _error_claim(grids: Sequence[Grid], points: int) -> Claim:
    """Mean squared errors: of a whole network, and gradient by gradient."""
    parts, lower_in_all, share_of_all = [], True, 1.0
    for place in CONCRETE:
        ratios = [float(grid["mse"][place].mean() / grid["mse"][ARM].mean()) for grid in grids]
        share = float(np.concatenate([(g["mse"][ARM] < g["mse"][place]).ravel() for g in grids]).mean())
        parts.append(
            f"{NAMES[place]} has {min(ratios):.1f} to {max(ratios):.1f} times ARM's over a network's grid "
            f"(median {np.median(ratios):.1f}), and more at {100 * share:.0f} % of the {points} gradients"
        )
        lower_in_all &= min(ratios) > 1
        share_of_all = min(share_of_all, share)
    correction = ""
    if not lower_in_all or share_of_all < 1:
        correction = (
            "Not gradient by gradient: where the loss hardly depends on a unit, the other unit's masks are "
            "noise to ARM, which the relaxation's path-wise gradient does not see."
        )
    return Claim(
        "ARM has a lower mean squared error than Concrete.", "; ".join(parts) + ".", lower_in_all, correction
    )


def _trace_claim(descent: Mapping[str, Array], trace_count: int) -> Claim:
    size = _root_mean(descent["exact"])
    errors = {
        place: _root_mean(descent["estimated"][:, place] - descent["exact"]) / size
        for place in (ARM, DISARM, *CONCRETE)
    }
    return Claim(
        "Along exact gradient descent the estimates of LBD follow the exact gradients very closely.",
        f"error of the mean of {trace_count} estimates over the gradient, root mean squares: "
        + ", ".join(f"{NAMES[place]} {100 * error:.1f} %" for place, error in errors.items())
        + ".",
        errors[ARM] < 0.05 and all(errors[ARM] < errors[place] for place in CONCRETE),
    )


def _variance_claim(grids: Sequence[Grid], count: int) -> Claim:
    ratios = {
        name: np.concatenate([((grid["std"][place] / grid["std"][ARM]) ** 2).ravel() for grid in grids])
        for place, name in enumerate(NAMES)
        if name in ("DisARM", "LOO", "REINFORCE")
    }
    own = ratios["DisARM"]
    # The logarithm of a variance of n estimates has a standard error of about sqrt(2 / n).
    chance = float(np.exp(5 * (4 / count) ** 0.5))
    return Claim(
        "DisARM's variance is nowhere above ARM's (Dong, Mnih & Tucker, 2020).",
        f"over ARM's: median {np.median(own):.2f}, largest {own.max():.2f} with {count} estimates each; "
        + ", ".join(f"{name} median {np.median(ratios[name]):.2f}" for name in ("LOO", "REINFORCE"))
        + ".",
        bool(np.median(own) < 1 and own.max() < chance),
    )


def _root_mean(values: Array) -> float:
    return float(np.sqrt((values**2).mean()))


def _scores(grid: Grid, count: int) -> Array:
    """Bias over its standard error, 0 where the estimates do not vary."""
    error = grid["std"] / count**0.5
    scores: Array = np.divide(grid["bias"], error, out=np.zeros_like(error), where=error > 1e-12)
    return scores
