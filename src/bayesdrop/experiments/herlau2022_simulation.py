"""Herlau, Morup & Schmidt (2022), fig. 1(b): ridge regression and dropout where the model is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.plots import new_figure

__all__ = ["SMOKE", "Config", "draw", "run"]

Array = NDArray[np.float64]
CONDITIONS = ("default", "junk", "shift")
TITLES = {"default": "as modelled", "junk": "junk features", "shift": "covariate shift"}
METHODS = ("ridge", "dropout", "scaled ridge")
RANK = 10  # of the designs
ON_PAR = 0.02  # share of the error of ridge


@dataclass(frozen=True)
class Config:
    """100,000 data sets of 20 training and 20 test rows for each number of features, as the paper."""

    num_data_sets: int = 100_000
    num_rows: int = 20
    features: tuple[int, ...] = (10, 20, 40)
    lambda0: float = 1e-3  #: of dropout, three decades below the true 1
    ridge: tuple[float, ...] = tuple(float(f"{10.0**e:.4g}") for e in np.arange(-3, 2.25, 0.5))
    f: tuple[float, ...] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
    piece_size: int = 5_000
    chunk: int = 500
    seed: int = 0


SMOKE = Config(num_data_sets=200, piece_size=100, chunk=100)


def data_sets(
    generator: np.random.Generator, count: int, rows: int, features: int
) -> dict[str, tuple[Array, Array, Array, Array]]:
    """For each condition the designs and targets of many data sets: X and y in training, X and y in testing.

    X = R L with R (rows, 10) standard normal and L (10, P) with columns of length 1; y = X w + noise, w and
    noise standard normal. "junk": all weights but the first 10 are 0. "shift": as modelled, then every column
    times a standard normal number, the same in training and testing. The conditions share all other numbers.
    """
    draw = generator.standard_normal
    projection = draw((count, RANK, features))
    projection /= np.linalg.norm(projection, axis=1, keepdims=True)
    design = draw((count, 2 * rows, RANK)) @ projection
    weights, noise = draw((count, features, 1)), draw((count, 2 * rows, 1))
    factor = draw((count, 1, features))
    informative = weights * (np.arange(features) < RANK)[:, None]
    plain, junk = design @ weights + noise, design @ informative + noise
    made = {"default": (design, plain), "junk": (design, junk), "shift": (design * factor, plain)}
    return {name: (X[:, :rows], y[:, :rows], X[:, rows:], y[:, rows:]) for name, (X, y) in made.items()}


def batched_fit(X: Array, y: Array, keep: float, diagonal: Array) -> Array:
    """coef = (1 - f) mu of many data sets at once, Lambda = diag(D) + (1 - f)^2 X'X, in min(N, P) dimensions.

    Args:
        X: (B, N, P).
        y: (B, N, 1).
        keep: 1 - f.
        diagonal: D, (B, P): lambda0 + f (1 - f) diag(X'X) of dropout, lambda of ridge.

    Returns: (B, P, 1).
    """
    rows, features = X.shape[1:]
    turned = X.transpose(0, 2, 1)
    if features <= rows:
        precision = keep**2 * (turned @ X)
        index = np.arange(features)
        precision[:, index, index] += diagonal
        return np.asarray(keep**2 * np.linalg.solve(precision, turned @ y))
    scaled = turned / diagonal[:, :, None]
    kernel = keep**2 * (X @ scaled)
    index = np.arange(rows)
    kernel[:, index, index] += 1.0
    return np.asarray(keep**2 * (scaled @ np.linalg.solve(kernel, y)))


def errors_of(X: Array, y: Array, X_test: Array, y_test: Array, config: Config) -> Array:
    """(B, S) mean squared test error of every data set, for the settings of each of `METHODS` in turn."""
    squares = np.square(X).sum(1)
    size = np.sqrt(squares / X.shape[1])[:, None]
    found = []
    for method in METHODS:
        for value in config.f if method == "dropout" else config.ridge:
            train, test = (X / size, X_test / size) if method == "scaled ridge" else (X, X_test)
            if method == "dropout":
                coef = batched_fit(train, y, 1 - value, config.lambda0 + value * (1 - value) * squares)
            else:
                coef = batched_fit(train, y, 1.0, np.full_like(squares, value))
            found.append(np.square(y_test - test @ coef).mean((1, 2)))
    return np.stack(found, axis=1)


def piece(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: sums over its data sets of errors (3, S) and of their products (3, S, S), by condition."""
    start = time.process_time()
    config: Config = key["config"]
    generator = np.random.default_rng([config.seed, key["features"], key["piece"]])
    settings = 2 * len(config.ridge) + len(config.f)
    total = np.zeros((len(CONDITIONS), settings))
    products = np.zeros((len(CONDITIONS), settings, settings))
    left = min(config.piece_size, config.num_data_sets - key["piece"] * config.piece_size)
    count = left
    while left > 0:
        made = data_sets(generator, min(config.chunk, left), config.num_rows, key["features"])
        for index, condition in enumerate(CONDITIONS):
            errors = errors_of(*made[condition], config)
            total[index] += errors.sum(0)
            products[index] += errors.T @ errors
        left -= config.chunk
    seconds = time.process_time() - start
    return {"total": total, "products": products, "count": count, "seconds": seconds}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """All settings, and at the lowest point of each sweep the paired difference."""
    pieces = range(-(-config.num_data_sets // config.piece_size))
    keys = [
        {"config": config, "features": features, "piece": index}
        for features in config.features
        for index in pieces
    ]
    found = run_pieces(keys, piece, cache=cache, progress=progress, label="Data sets")
    parts = np.split(np.arange(2 * len(config.ridge) + len(config.f)), _cuts(config))
    rows: list[Row] = []
    curves, best_of = {}, {}
    for features in config.features:
        own = [one for key, one in zip(keys, found, strict=True) if key["features"] == features]
        count = sum(one["count"] for one in own)
        total, products = sum(one["total"] for one in own), sum(one["products"] for one in own)
        for index, condition in enumerate(CONDITIONS):
            mean = total[index] / count
            covariance = (products[index] / count - np.outer(mean, mean)) / (count - 1)
            best = {name: part[mean[part].argmin()] for name, part in zip(METHODS, parts, strict=True)}
            setting = f"P = {features}, {TITLES[condition]}"
            curves[f"{features} {condition}"] = mean.tolist()
            rows += _rows(setting, config, parts, mean, covariance, best)
            best_of[features, condition] = _difference(mean, covariance, best["ridge"], best["dropout"])
    arrays = {"curves": curves, "ridge": config.ridge, "f": config.f, "features": config.features}
    return Outcome(
        rows=rows, claims=_claims(best_of, rows, config), arrays=arrays, notes=_notes(config, found)
    )


def _cuts(config: Config) -> list[int]:
    return [len(config.ridge), len(config.ridge) + len(config.f)]


def _difference(mean: Array, covariance: Array, a: int, b: int) -> tuple[float, float, float]:
    """Of two settings on the same data sets: difference of errors, its standard error, share of the first."""
    variance = covariance[a, a] + covariance[b, b] - 2 * covariance[a, b]
    return float(mean[a] - mean[b]), float(np.sqrt(max(variance, 0.0))), float(1 - mean[b] / mean[a])


def _rows(
    setting: str, config: Config, parts: list[Any], mean: Array, covariance: Array, best: Mapping[str, int]
) -> Iterator[Row]:

    for name, part in zip(METHODS, parts, strict=True):
        index = best[name]
        value = (config.f if name == "dropout" else config.ridge)[index - part[0]]
        note = f"lowest at {'f' if name == 'dropout' else 'lambda'} = {value:g}"
        error = np.sqrt(covariance[index, index])
        yield Row(setting, f"test error, {name}", None, mean[index], error, note)
    right = int(np.argmin(np.abs(np.array(config.ridge) - 1.0)))
    note = "the value that is right without shift or junk"
    yield Row(
        setting, "test error, ridge at lambda = 1", None, mean[right], np.sqrt(covariance[right, right]), note
    )
    for other in ("ridge", "scaled ridge"):
        value, error, share = _difference(mean, covariance, best[other], best["dropout"])
        paper = {"junk features": "on par", "as modelled": "on par"}.get(
            setting.split(", ")[1], "dropout better"
        )
        note = f"{100 * share:+.1f} % of its error; above 0: dropout is better"
        yield Row(
            setting, f"{other} - dropout, paired", paper if other == "ridge" else None, value, error, note
        )


def _claims(
    best: Mapping[tuple[int, str], tuple[float, float, float]], rows: list[Row], config: Config
) -> tuple[Claim, ...]:
    texts = {
        "default": "As modelled, ridge with the correct prior is optimal and dropout is on par.",
        "junk": "With junk features, ridge and dropout are on par.",
        "shift": "Under covariate shift ridge is quite sensitive; dropout is significantly more robust.",
    }
    claims = []
    for condition, text in texts.items():
        found = {features: best[features, condition] for features in config.features}
        measured = "; ".join(
            f"P = {features}: {value:+.4f} ± {error:.4f} ({100 * share:+.1f} %)"
            for features, (value, error, share) in found.items()
        )
        if condition == "shift":
            holds = all(value > 3 * error for value, error, _ in found.values())
        else:
            holds = all(abs(share) < ON_PAR for _, _, share in found.values())
        claims.append(Claim(text, f"ridge - dropout, paired, {measured}", holds))
    scaled = [
        row for row in rows if row.metric == "scaled ridge - dropout, paired" and "shift" in row.setting
    ]
    measured = "; ".join(f"{row.setting.split(',')[0]}: {row.ours:+.4f}" for row in scaled)
    claims.append(
        Claim(
            "(Not in the paper.) Ridge on columns scaled to one length is as robust as dropout.",
            f"scaled ridge - dropout under shift, {measured}",
            all(row.ours is not None and row.ours < 0.01 for row in scaled),
        )
    )
    return tuple(claims)


def _notes(config: Config, found: list[dict[str, Any]]) -> tuple[str, ...]:
    minutes = sum(one["seconds"] for one in found) / 60
    return (
        f"{config.num_data_sets:,} data sets for each number of features, the same for the three conditions. "
        f"All fits took {minutes:.1f} minutes of one core.",
        "Dropout predicts with (1 - f) x'mu; without the factor it is not on par.",
        "Each method is taken at the lowest point of its sweep on the test error itself, as in the figure; "
        f"on par means within {100 * ON_PAR:g} % of the error.",
        "Test data have a new R and the same L; under shift the same factors as in training.",
        "The paper calls n > p underdetermined and n < p overdetermined; it is the other way round.",
    )


def draw(outcome: Outcome) -> Any:
    """Error against how strongly each method regularises, one panel a setting."""
    arrays = outcome.arrays
    ridge, f = np.array(arrays["ridge"]), np.array(arrays["f"])
    features = list(arrays["features"])
    figure = new_figure(10.0, 2.6 * len(features) + 0.6)
    axes = figure.subplots(len(features), len(CONDITIONS), squeeze=False, sharey="row")
    for i, width in enumerate(features):
        low = min(min(arrays["curves"][f"{width} {condition}"]) for condition in CONDITIONS)
        for j, condition in enumerate(CONDITIONS):
            ax = axes[i, j]
            mean = np.array(arrays["curves"][f"{width} {condition}"])
            curve, dropped, _ = np.split(mean, [len(ridge), len(ridge) + len(f)])
            ax.plot(np.linspace(0, 1, len(ridge)), curve, "o-", color="C1", ms=3, label="ridge, over λ")
            ax.plot(np.linspace(0, 1, len(f)), dropped, "s-", color="C0", ms=3, label="dropout, over f")
            for best, color in ((curve.min(), "C1"), (dropped.min(), "C0")):
                ax.axhline(best, color=color, lw=0.8, ls=":")
            ax.set_ylim(low - 0.05, low + 1.3)
            marks = range(0, len(ridge), 4)
            ax.set_xticks([k / (len(ridge) - 1) for k in marks], [f"{ridge[k]:g}" for k in marks], color="C1")
            if i == 0:
                ax.set_title(TITLES[condition])
                top = ax.secondary_xaxis("top")
                shown = range(0, len(f), 3)
                top.set_xticks([k / (len(f) - 1) for k in shown], [f"{f[k]:g}" for k in shown], color="C0")
            if j == 0:
                ax.set_ylabel(f"P = {width}\ntest error")
            if i == len(features) - 1:
                ax.set_xlabel("λ (below), f (above)")
    axes[0, 0].legend(frameon=False, loc="upper left")
    return figure
