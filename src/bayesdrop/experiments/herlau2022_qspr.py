"""Herlau, Morup & Schmidt (2022), fig. 1(a): coefficients of dropout, ridge and lasso as they shrink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.data import load_qspr
from bayesdrop.errors import require
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.plots import new_figure

__all__ = ["SMOKE", "Config", "draw", "run"]

Array = NDArray[np.float64]
FLIPPED = "DGR"  # the one property that is correlated with the response negatively


@dataclass(frozen=True)
class Config:
    """The paths: f from 0 to 0.99 at lambda0 = 0, ridge and lasso penalties on a logarithmic grid."""

    num_points: int = 100
    f_max: float = 0.99
    ridge_min: float = 1e-3  #: of lambda
    ridge_max: float = 1e4
    lasso_min: float = 1e-4  #: share of the penalty at which all coefficients are 0
    checked_f: float = 0.7


SMOKE = Config(num_points=5)


def standardised() -> tuple[Array, Array, tuple[str, ...]]:
    """Standardised features (19, 7), DGR with its sign flipped, and response (19,); the features' names."""
    data = load_qspr()
    x, y = data.x.numpy().copy(), data.y.numpy()[:, 0]
    x[:, data.columns.index(FLIPPED)] *= -1
    names = tuple(f"-{name}" if name == FLIPPED else name for name in data.columns)
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std(), names


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """The three paths; it takes a second, and nothing is kept."""
    from bayesdrop.linear import dropout_path

    x, y, names = standardised()
    rates = np.linspace(0.0, config.f_max, config.num_points)
    ridges = np.geomspace(config.ridge_min, config.ridge_max, config.num_points)

    def path(f: Array, lambda0: Array) -> Array:
        found = dropout_path(x, y, f=f, lambda0=lambda0, fit_intercept=False, scores=False)
        return found.weights.reshape(-1, x.shape[1])

    dropout = path(rates, np.array([0.0]))
    ridge = path(np.array([0.0]), ridges)
    lasso, penalties = _lasso(x, y, config)
    checked = path(np.array([config.checked_f]), np.array([0.0]))[0]
    plain = path(np.array([0.0]), np.array([0.0]))[0]
    alone = x.T @ y / np.square(x).sum(0)
    rows = [
        Row(
            name,
            f"dropout weight, f = {config.checked_f:g}",
            "positive",
            weight,
            None,
            f"least squares {ols:.3f}",
        )
        for name, weight, ols in zip(names, checked, plain, strict=True)
    ]
    claims = _claims(config, dropout, ridge, lasso, checked, plain, alone, rates, ridges)
    arrays = {
        "names": names,
        "f": rates,
        "dropout": dropout,
        "ridge_lambda": ridges,
        "ridge": ridge,
        "lasso_penalty": penalties,
        "lasso": lasso,
        "alone": alone,
    }
    notes = (
        "Features and response are standardised, lambda0 = 0; how the paper scaled them is not stated.",
        "With standardised features dropout is ridge regression at lambda = n f / (1 - f), times "
        "1 / (1 - f), the factor that keeps the weights from vanishing.",
    )
    return Outcome(rows=rows, claims=claims, arrays=arrays, notes=notes)


def _lasso(x: Array, y: Array, config: Config) -> tuple[Array, Array]:
    """Coefficients (points, 7) and penalties, from the weakest penalty on."""
    linear = require("sklearn.linear_model", extra="sklearn", owner="herlau2022-qspr")
    largest = np.abs(x.T @ y).max() / len(y)
    penalties = largest * np.geomspace(1.0, config.lasso_min, config.num_points)
    _, coefficients, _ = linear.lasso_path(x, y, alphas=penalties, max_iter=1_000_000, tol=1e-6)
    return coefficients.T[::-1], penalties[::-1]


def _claims(
    config: Config,
    dropout: Array,
    ridge: Array,
    lasso: Array,
    checked: Array,
    plain: Array,
    alone: Array,
    rates: Array,
    ridges: Array,
) -> tuple[Claim, ...]:
    positive = rates[(dropout > 0).all(1)]
    first = f"from f = {positive.min():.2f} on" if len(positive) else "nowhere"
    weak = ridges[(ridge > 0).all(1)]
    where = f"from lambda = {weak.min():.3g} on" if len(weak) else "nowhere"
    size = float(ridge[ridges == weak.min()].sum()) if len(weak) else 0.0
    sparse = int(((lasso > 0).all(1)).sum())
    return (
        Claim(
            f"Dropout shrinks to an all-positive solution (in the figure: at f = {config.checked_f:g}).",
            f"smallest weight {checked.min():.3f} at f = {config.checked_f:g}, {plain.min():.2f} at "
            f"f = 0; all are positive {first}",
            bool(checked.min() > 0 > plain.min()),
        ),
        Claim(
            "With lambda0 = 0 it shrinks towards the fits of each variable by itself.",
            f"largest difference to them at f = {rates[-1]:.2f}: {np.abs(dropout[-1] - alone).max():.3f}, at "
            f"f = 0: {np.abs(plain - alone).max():.2f}",
            bool(np.abs(dropout[-1] - alone).max() < 0.1),
        ),
        Claim(
            "In contrast, lasso does not shrink to an all-positive solution.",
            f"all coefficients are positive at {sparse} of {len(lasso)} penalties",
            sparse == 0,
        ),
        Claim(
            "In contrast, ridge regression does not shrink to an all-positive solution.",
            f"its coefficients are all positive {where}; they sum to {size:.2f} there, to 0 in the end, and "
            f"to {alone.sum():.2f} for fits of each variable by itself",
            len(weak) == 0,
            "On standardised features ridge has dropout's signs, point by point: what differs is that its "
            "coefficients go to 0 as they become positive, and dropout's do not.",
        ),
    )


def draw(outcome: Outcome) -> Any:
    """Three panels of coefficients, one line a feature."""
    arrays = outcome.arrays
    figure = new_figure(10.5, 3.4)
    axes = figure.subplots(1, 3, sharey=True)
    panels = (
        ("dropout", np.array(arrays["f"]), "f", "linear"),
        ("ridge", np.array(arrays["ridge_lambda"]), "λ", "log"),
        ("lasso", np.array(arrays["lasso_penalty"]), "penalty", "log"),
    )
    for ax, (name, at, label, scale) in zip(axes, panels, strict=True):
        weights = np.array(arrays[name])
        for column, feature in enumerate(arrays["names"]):
            ax.plot(at, weights[:, column], color=f"C{column}", lw=1.4, label=feature)
        ax.axhline(0, color="0.5", lw=0.7)
        # Where all coefficients are positive, and none is zero.
        ax.fill_between(
            at, -1.05, 1.55, where=(weights > 0).all(1), color="C2", alpha=0.12, lw=0, label="all positive"
        )
        ax.set(xscale=scale, xlabel=label, title=name, ylim=(-1.05, 1.55))
        ax.margins(x=0)
    at_end = axes[0].scatter(
        np.full(len(arrays["alone"]), 1.0),
        arrays["alone"],
        c=[f"C{k}" for k in range(len(arrays["alone"]))],
        s=14,
        zorder=3,
        clip_on=False,
    )
    at_end.set_label("each by itself")
    axes[0].set_xlim(0, 1)
    axes[0].set_ylabel("coefficient")
    axes[2].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
