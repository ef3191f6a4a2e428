"""Herlau, Morup & Schmidt (2022), fig. 2: sign classifiers of Amazon reviews, with and without dropout."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesdrop.data import AMAZON_DOMAINS, DataNotFound, load_amazon
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Claim, Outcome, Row, mean_and_error
from bayesdrop.experiments.settings import picked
from bayesdrop.plots import finish_axes, new_figure, plot_bands

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

Array = NDArray[np.float64]
SETS = {"full": "all words and pairs", "processed": "5,000 most frequent"}
SHOWN = {"books": "Books", "dvd": "DVD", "electronics": "Electronics", "kitchen": "Kitchen"}


@dataclass(frozen=True)
class Config:
    """Four domains, two sets of features, 40 random splits into 75 % training and 25 % testing."""

    domains: tuple[str, ...] = AMAZON_DOMAINS
    features: tuple[str, ...] = ("full", "processed")
    repeats: int = 40
    lambda0: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    f: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  #: chances of dropping; 0 is ridge regression
    shown_f: float = 0.5  #: of the picture and the claim: one rate for all domains
    values: Literal["counts", "binary"] = "counts"
    tol: float = 1e-4
    seed: int = 0


SMOKE = Config(
    domains=("kitchen",), features=("full",), repeats=2, lambda0=(1.0, 10.0, 100.0), f=(0.0, 0.5), tol=1e-3
)
PRESETS = {"binary": Config(values="binary")}


@lru_cache(maxsize=2)
def reviews(domain: str, features: str, values: str) -> tuple[Any, Array]:
    """Features (N, P) and signs (N,) of a domain.

    "full": the 2,000 balanced reviews; "processed": the 3,587 to 5,946 others, as many as the paper has.
    """
    loaded = load_amazon(domain, "full" if features == "full" else "processed")
    X, y = (loaded.x, loaded.y) if loaded.x_more is None else (loaded.x_more, loaded.y_more)
    assert y is not None
    return (X > 0).astype(float) if values == "binary" else X, y.astype(float)


def piece(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece, one split: test error for every f and lambda0 (F, L), shape of the features, CPU seconds."""
    # Needs scikit-learn; the list of experiments does not.
    from bayesdrop.linear import dropout_path

    start = time.process_time()
    X, y = reviews(key["domain"], key["features"], key["values"])
    order = np.random.default_rng([key["seed"], key["repeat"]]).permutation(len(y))
    cut = round(0.75 * len(y))
    train, test = order[:cut], order[cut:]
    # From the strongest prior down, each start near the last solution.
    priors = np.array(key["lambda0"])[::-1]
    path = dropout_path(
        X[train],
        y[train],
        f=key["f"],
        lambda0=priors,
        fit_intercept=False,
        solver="cg",
        scores=False,
        tol=key["tol"],
    )
    wrong = np.sign(path.predict(X[test])) != y[test]
    seconds = time.process_time() - start
    return {"error": wrong.mean(-1)[:, ::-1], "shape": list(X.shape), "seconds": seconds}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Errors of all domains and sets; rows for the best of each, and how far dropout's advantage reaches."""
    rows: list[Row] = []
    arrays: dict[str, Any] = {
        "lambda0": config.lambda0,
        "f": config.f,
        "shown_f": config.shown_f,
        "errors": {},
    }
    minutes = 0.0
    advantages: list[tuple[str, float, float, Array]] = []
    for features in config.features:
        for domain in config.domains:
            setting = f"{SHOWN[domain]}, {SETS[features]}"
            keys = [_key(config, domain, features, repeat) for repeat in range(config.repeats)]
            try:
                reviews(domain, features, config.values)
            except DataNotFound as error:
                note = error.brief
                rows += [
                    Row(setting, f"test error, {name}", None, None, None, note)
                    for name in ("ridge", "dropout")
                ]
                continue
            label = f"{domain} {features}"
            found = run_pieces(keys, piece, cache=cache, progress=progress, label=label)
            minutes += sum(one["seconds"] for one in found) / 60
            errors = np.array([one["error"] for one in found])
            arrays["errors"][label] = {"mean": errors.mean(0).tolist(), "std": errors.std(0, ddof=1).tolist()}
            more, advantage = _rows(setting, errors, config, found[0]["shape"])
            rows += more
            advantages.append((setting, *advantage))
    return Outcome(
        rows=rows, claims=_claims(advantages, config), arrays=arrays, notes=_notes(config, minutes)
    )


def _key(config: Config, domain: str, features: str, repeat: int) -> dict[str, Any]:
    settings = picked(config, "lambda0", "f", "values", "tol", "seed")
    return {"domain": domain, "features": features, "repeat": repeat, **settings}


def _rows(
    setting: str, errors: Array, config: Config, shape: list[int]
) -> tuple[list[Row], tuple[float, float, Array]]:
    """Rows of one domain and set; then of dropout at the rate shown, beside the best ridge.

    Returns: the rows; and the gain, its standard error, and at which lambda0 there is one (L,).
    """
    count = len(errors)
    mean = errors.mean(0)
    rate = np.array(config.f)
    ridge = errors[:, rate == 0][:, 0]
    best_ridge = int(ridge.mean(0).argmin())
    flat = np.where((rate > 0)[:, None], mean, np.inf)
    i, j = np.unravel_index(int(flat.argmin()), flat.shape)
    shown = errors[:, int(np.abs(rate - config.shown_f).argmin())]
    k = int(shown.mean(0).argmin())
    rows = []
    size = f"{shape[0]:,} reviews, {shape[1]:,} features"
    for name, sample, note in (
        ("ridge", ridge[:, best_ridge], f"lambda0 = {config.lambda0[best_ridge]:g}; {size}"),
        ("dropout", errors[:, i, j], f"f = {rate[i]:g}, lambda0 = {config.lambda0[j]:g}"),
        (f"dropout, f = {config.shown_f:g}", shown[:, k], f"lambda0 = {config.lambda0[k]:g}"),
    ):
        rows.append(Row.of_runs(setting, f"test error, {name}", sample, note=note))
    metric = f"best ridge - dropout, f = {config.shown_f:g}, paired"
    note = f"over {count} splits that share their reviews"
    gains = ridge[:, [best_ridge]] - shown
    rows.append(Row.of_runs(setting, metric, gains[:, k], paper="dropout better", note=note))
    found = [mean_and_error(column) for column in gains.T]
    better = np.array([mean > 2 * (error or 0.0) for mean, error in found])
    return rows, (found[k][0], found[k][1] or 0.0, better)


def _claims(advantages: list[tuple[str, float, float, Array]], config: Config) -> tuple[Claim, ...]:
    if not advantages:
        return ()
    priors = np.array(config.lambda0)
    measured, wide, own = [], [], []
    for setting, gain, error, better in advantages:
        reach = priors[better]
        where = f"{reach.min():g} to {reach.max():g}" if len(reach) else "nowhere"
        measured.append(f"{setting}: {100 * gain:+.2f} ± {100 * error:.2f} points, better at lambda0 {where}")
        decades = np.log10(reach.max() / reach.min()) if len(reach) else 0.0
        wide.append(bool(decades >= 1))
        own.append(gain > 2 * error)
    text = "Dropout significantly improves generalisation for a wide range of parameter settings."
    short = [setting for (setting, *_), good in zip(advantages, wide, strict=True) if not good]
    correction = (
        "" if not short else f"Less than a decade of lambda0 beats ridge's best for {'; '.join(short)}."
    )
    rate = f"dropout with f = {config.shown_f:g} against ridge at ridge's own best lambda0"
    return (Claim(text, f"{rate}. " + ". ".join(measured), all(wide) and all(own), correction),)


def _notes(config: Config, minutes: float) -> tuple[str, ...]:
    return (
        f"{config.repeats} random splits of 75 / 25 %; targets ±1, {config.values}, no intercept; f and the "
        "lambda0 grid are not stated in the paper, which shows a figure without numbers.",
        "The paper's reviews (3,587 to 5,946 a domain) match the second set in number, its features "
        "(123,099 to 193,220) the first in order of size; both together are not to be had.",
        "Ridge and dropout are both taken at the lambda0 with the lowest mean test error.",
        "Standard errors are over splits of the same reviews, which are not independent: they are too small "
        "for a statement on other reviews.",
        f"Posterior means by conjugate gradients to a relative residual of {config.tol:g}; all fits "
        f"took {minutes:.0f} minutes of one core.",
    )


def draw(outcome: Outcome) -> Any:
    """Error against lambda0 with bands of one standard deviation, one panel a domain, one row a set."""
    arrays = outcome.arrays
    labels = list(arrays["errors"])
    domains = list(dict.fromkeys(label.split()[0] for label in labels))
    sets = list(dict.fromkeys(label.split()[1] for label in labels))
    figure = new_figure(2.7 * max(len(domains), 2) + 0.4, 2.6 * max(len(sets), 1) + 0.5)
    axes = figure.subplots(max(len(sets), 1), max(len(domains), 1), squeeze=False, sharex=True)
    priors, rates = np.array(arrays["lambda0"]), np.array(arrays["f"])
    shown = int(np.abs(rates - arrays["shown_f"]).argmin())
    for label in labels:
        domain, features = label.split()
        ax = axes[sets.index(features), domains.index(domain)]
        mean, std = (100 * np.array(arrays["errors"][label][name]) for name in ("mean", "std"))
        for index, rate in enumerate(rates):
            if rate > 0 and index != shown:
                ax.plot(priors, mean[index], color="C0", lw=0.7, alpha=0.45)
        for index, color, name in ((0, "C1", "ridge"), (shown, "C0", f"dropout, f = {rates[shown]:g}")):
            plot_bands(ax, priors, (mean[index], std[index]), num_std=(1.0,), color=color, label=name)
        ax.axhline(mean[0].min(), color="C1", lw=0.8, ls=":")
        low = mean[:, :].min()
        finish_axes(ax, xscale="log", ylim=(0.8 * low, 2.3 * low))
        ax.set_title(f"{SHOWN[domain]}, {SETS[features]}", fontsize=9)
    finish_axes(axes[:, 0], ylabel="test error (%)")
    finish_axes(axes[-1], xlabel="λ₀")
    if labels:
        axes[0, 0].plot([], [], color="C0", lw=0.7, alpha=0.45, label="other f")
        finish_axes(axes[0, 0], legend="upper left")
    return figure
