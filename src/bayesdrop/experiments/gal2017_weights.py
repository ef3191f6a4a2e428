"""Gal, Hron & Kendall (2017), section 2: with a fixed rate, is the spread tied to the size of the weights?

A fixed rate leaves a network one way to be surer: smaller weights. The paper says so, asks whether dropout
works because it forces weights towards zero, and answers no: a learned rate does not force them, and works as
well. Perceptrons with three hidden layers learn Friedman's first function with the same objective, at several
fixed rates and with learned ones: at several prior length scales, which make weights smaller, and from more
and more rows, with which the spread should fall.

The claims' thresholds were written before any number was seen. The length scales were raised after a short
run in which l = 4, then the largest, made weights smaller by a fifth only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesdrop.experiments.friedman import LAYERS, train_network
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Claim, Outcome, Row, listed, told
from bayesdrop.experiments.settings import picked
from bayesdrop.plots import finish_axes, new_figure

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "make_claims", "run"]

#: weights count as forced towards zero below this share of the size that they have without dropout
FORCED = 0.5
#: a spread counts as fallen below this share of what it was with the fewest rows
FALLEN = 0.5
#: a network counts as good as another if its RMSE is at most this many times the other's
AS_GOOD = 1.05
#: the rate of the networks that are trained with other length scales, and from more and fewer rows
WATCHED = 0.2
BLUE, ORANGE, INK = "#0072B2", "#E69F00", "#1A1A1A"
Array = np.ndarray[Any, Any]
#: by name, a piece for every repeat
Found = Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on."""

    rates: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.5)  #: fixed ones; 0 is a network without dropout
    length_scales: tuple[float, ...] = (0.01, 4.0, 8.0, 16.0)  #: at the rate 0.2
    sizes: tuple[int, ...] = (100, 1000, 10_000)
    size: int = 1000  #: where the size is not what changes
    length_scale: float = 0.01
    p_init: float = 0.1  #: where learned rates start
    width: int = 100
    steps: int = 4000
    batch_size: int = 100
    lr: float = 1e-3
    repeats: int = 3
    num_test: int = 1000
    num_draws: int = 100
    seed: int = 0


SMOKE = Config(
    rates=(0.0, 0.2), length_scales=(0.01, 4.0), sizes=(40, 80), size=80, width=8, steps=12, batch_size=20,
    repeats=2, num_test=30, num_draws=4,
)  # fmt: skip
PRESETS = {"quick": Config(sizes=(100, 1000), length_scales=(0.01, 8.0), steps=1500, repeats=1)}


def plan(config: Config) -> dict[str, dict[str, Any]]:
    """The settings of all networks by name; some have two names, and are trained once."""

    def fixed(p: float, *, l: float = config.length_scale, size: int = config.size) -> dict[str, Any]:
        return {"learned": False, "p": p, "length_scale": l, "size": size}

    named = {f"p = {p:g}": fixed(p) for p in config.rates}
    named["learned p"] = {**fixed(config.p_init), "learned": True}
    named |= {f"l = {l:g}": fixed(WATCHED, l=l) for l in config.length_scales}
    named |= {f"p = {WATCHED:g}, N = {size:,}": fixed(WATCHED, size=size) for size in config.sizes}
    for size in config.sizes:
        named[f"learned p, N = {size:,}"] = {**fixed(config.p_init, size=size), "learned": True}
    return named


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train all networks, or find them in the cache."""
    common = picked(config, "width", "steps", "batch_size", "lr", "num_test", "num_draws") | {"rate_lr": None}
    named, repeats = plan(config), range(config.repeats)
    groups = {
        name: [{**settings, **common, "seed": config.seed + repeat} for repeat in repeats]
        for name, settings in named.items()
    }
    found = run_groups(groups, train_network, cache=cache, progress=progress, label="Networks")
    arrays: dict[str, Any] = {"names": list(named)}
    for what in ("weights", "rates", "spread", "rmse"):
        arrays[what] = np.array([_values(found, name, what).mean(0) for name in named])
    arrays |= {
        "fixed": list(config.rates),
        "length_scales": list(config.length_scales),
        "sizes": list(config.sizes),
        "watched": WATCHED,
    }
    return Outcome(
        _rows(found),
        make_claims(config, found),
        arrays=arrays,
        notes=(
            "Weights are the paper's M, which masks of 0 and 1 are multiplied by: ours divided by 1 - p. "
            "Their size is the root mean square of a layer's, and of all layers the mean of those.",
            "The spread is the epistemic standard deviation, in units of y over 4.9 (about its standard "
            "deviation); the noise has 0.204 of that, and is known to the networks.",
            f"{config.steps:,} steps along a cosine, whatever the number of rows N; rates learn ten times as "
            "fast as weights.",
            "The paper has no numbers for these claims.",
        ),
    )


def _values(found: Found, name: str, what: str) -> Array:
    """(repeats,) a number of every repeat; (repeats, layers) for "weights" and "rates"."""
    return np.array([piece[what] for piece in found[name]])


def _size(found: Found, name: str) -> Array:
    """(repeats,) size of the weights: the mean over layers."""
    size: Array = _values(found, name, "weights").mean(1)
    return size


def _rows(found: Found) -> Iterator[Row]:

    for name in found:
        weights, rates = _values(found, name, "weights"), _values(found, name, "rates")
        for layer, own in zip(LAYERS, weights.T, strict=True):
            yield Row.of_runs(name, f"weights, {layer}", own)
        if name.startswith("learned"):
            for layer, own in zip(LAYERS, rates.T, strict=True):
                yield Row.of_runs(name, f"rate, {layer}", own)
        for what, metric in (
            ("spread", "epistemic std"),
            ("rmse", "RMSE"),
            ("log_likelihood", "log-likelihood (nats)"),
        ):
            yield Row.of_runs(name, metric, _values(found, name, what))


def make_claims(config: Config, found: Found) -> list[Claim]:
    """Section 2, and the conclusion."""
    return [_tied(config, found), *_data(config, found), *_forced(config, found), _as_good(config, found)]


def _tied(config: Config, found: Found) -> Claim:
    """Whether the spread grows with the size of the weights."""
    names = [f"l = {l:g}" for l in config.length_scales]
    sizes = [float(_size(found, name).mean()) for name in names]
    spreads = [float(_values(found, name, "spread").mean()) for name in names]
    order = np.argsort(sizes)
    pairs = ", ".join(f"{sizes[place]:.3f} and {spreads[place]:.3f}" for place in order)
    return Claim(
        "2: for a fixed p, larger weights give more epistemic uncertainty.",
        f"size of the weights and spread at p = {WATCHED:g}, from networks with smaller to those with larger "
        f"weights: {pairs}.",
        bool(np.all(np.diff(np.array(spreads)[order]) > 0)),
    )


def _data(config: Config, found: Found) -> Iterator[Claim]:
    """Whether the spread falls as rows are added."""
    texts = {
        f"p = {WATCHED:g}": "2: with a fixed p it takes smaller weights to lower epistemic uncertainty, so "
        "that it does not fall freely as data are added.",
        "learned p": "1: with a learned p epistemic uncertainty falls as data are added.",
    }
    for kind, text in texts.items():
        names = [f"{kind}, N = {size:,}" for size in config.sizes]
        spreads = [float(_values(found, name, "spread").mean()) for name in names]
        sizes = [float(_size(found, name).mean()) for name in names]
        share = spreads[-1] / spreads[0]
        falls = share < FALLEN
        holds = falls if kind == "learned p" else not falls
        correction = (
            "" if holds else f"It is {share:.2f} of what it was; less than {FALLEN:g} counts as fallen."
        )
        counts = ", ".join(f"{size:,}" for size in config.sizes)
        yield Claim(
            text,
            f"spread {listed(spreads)} at N = {counts}; size of the weights {listed(sizes)}.",
            holds,
            correction,
        )


def _forced(config: Config, found: Found) -> list[Claim]:
    """Sizes of weights, beside those of the network without dropout."""
    if 0.0 not in config.rates:
        return []
    free = float(_size(found, "p = 0").mean())
    names = [f"p = {p:g}" for p in config.rates if p]
    shares = {name: float(_size(found, name).mean()) / free for name in [*names, "learned p"]}
    largest = shares[names[-1]]
    return [
        Claim(
            "2, note 1: a fixed p forces the weights to be near zero.",
            f"size of the weights, as a share of that without dropout: {told(shares, behind=True)}.",
            largest < FORCED,
            otherwise=f"At {names[-1]} they are {largest:.2f} times as large as without dropout; less than "
            f"{FORCED:g} would count as forced.",
        ),
        Claim(
            "5: allowing p to change does not force the weights to be near zero.",
            f"with learned p they are {shares['learned p']:.2f} times as large as without dropout.",
            shares["learned p"] >= FORCED,
        ),
    ]


def _as_good(config: Config, found: Found) -> Claim:
    names = [f"p = {p:g}" for p in config.rates if p]
    errors = {name: float(_values(found, name, "rmse").mean()) for name in [*names, "learned p"]}
    best = min(names, key=lambda name: errors[name])
    holds = errors["learned p"] <= AS_GOOD * errors[best]
    return Claim(
        "5: a p that adapts performs as well as the best fixed p.",
        f"RMSE {told(errors, '.4f', behind=True)}.",
        holds,
        otherwise=f"It is {errors['learned p'] / errors[best]:.2f} times that of {best}.",
    )


def draw(outcome: Outcome) -> Any:
    """Weights by layer, spread against weights, and spread against the number of rows."""
    arrays = outcome.arrays
    names = list(arrays["names"])
    weights, spread = np.asarray(arrays["weights"]), np.asarray(arrays["spread"])
    figure = new_figure(15, 4.6)
    left, middle, right = figure.subplots(1, 3)
    kinds = [*(f"p = {p:g}" for p in arrays["fixed"]), "learned p"]
    shades = np.linspace(0.8, 0.1, len(arrays["fixed"]))
    for place, kind in enumerate(kinds):
        learned = kind == "learned p"
        color = ORANGE if learned else str(shades[place])
        left.plot(LAYERS, weights[names.index(kind)], marker="o", color=color, label=kind)
    title = "Weights, by whose units they leave"
    finish_axes(left, title, legend=True, grid=True, ylim=(0, None), ylabel="root mean square of the weights")
    rows = [names.index(f"l = {l:g}") for l in arrays["length_scales"]]
    middle.plot(weights[rows].mean(1), spread[rows], marker="o", color=BLUE)
    for l, row in zip(arrays["length_scales"], rows, strict=True):
        style = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
        middle.annotate(f"l = {l:g}", (weights[row].mean(), spread[row]), (0, -14), **style)
    ends: dict[str, Any] = {
        "xlim": (0, 1.25 * weights[rows].mean(1).max()),
        "ylim": (0, 1.15 * spread[rows].max()),
    }
    finish_axes(middle, f"At a fixed p of {arrays['watched']:g}", xlabel="size of the weights", **ends)
    for kind, color in ((f"p = {arrays['watched']:g}", INK), ("learned p", ORANGE)):
        rows = [names.index(f"{kind}, N = {size:,}") for size in arrays["sizes"]]
        right.plot(arrays["sizes"], spread[rows], marker="o", color=color, label=kind)
    ends = {"xscale": "log", "ylim": (0, 1.15 * right.dataLim.y1)}
    finish_axes(right, "As data are added", legend=True, xlabel="rows N", **ends)
    finish_axes([middle, right], grid=True, ylabel="epistemic standard deviation")
    return figure
