"""Gal, Hron & Kendall (2017), fig. 8: rates that start anywhere from 0.05 to 0.5 end alike, in a perceptron.

The paper shows it for a segmentation network: Concrete dropout is tolerant to where its rates start. Here a
perceptron with three hidden layers learns Friedman's first function (ten inputs, five of which matter) from
1,000 rows, its rates starting at five values. Rates learn ten times as fast as weights, as `fit` has it by
default, and, for comparison, as fast as the weights, as in the paper's program.

The claims' thresholds were written before any number was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesdrop.experiments.friedman import LAYERS, train_network
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.experiments.settings import all_but
from bayesdrop.plots import COLORS, finish_axes, new_figure

__all__ = ["ALIKE", "PRESETS", "SMOKE", "Config", "draw", "make_claims", "run"]

#: largest rate less smallest over all starts, the mean over layers, below which rates have ended alike
ALIKE = 0.05
#: the same for the log-likelihood, in nats a row
AS_GOOD = 0.05
#: rates learn at the library's default, and at the weights' own
PACES = {"ten times as fast as weights": None, "as fast as weights": 1.0}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on."""

    starts: tuple[float, ...] = (0.05, 0.1, 0.2, 0.35, 0.5)
    size: int = 1000
    width: int = 100
    steps: int = 6000
    batch_size: int = 100
    lr: float = 1e-3
    length_scale: float = 1e-2
    repeats: int = 3
    num_test: int = 1000
    num_draws: int = 100
    seed: int = 0


SMOKE = Config(
    starts=(0.05, 0.5), size=60, width=8, steps=12, batch_size=20, repeats=2, num_test=30, num_draws=4
)
PRESETS = {"quick": Config(starts=(0.05, 0.5), steps=3000, repeats=1)}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train from every start, at both paces, or find it in the cache."""
    common = all_but(config, "starts", "repeats", "seed") | {"learned": True}
    keys = [
        {
            **common,
            "p": p,
            "rate_lr": None if pace is None else pace * config.lr,
            "seed": config.seed + repeat,
        }
        for pace in PACES.values()
        for p in config.starts
        for repeat in range(config.repeats)
    ]
    made = run_pieces(keys, train_network, cache=cache, progress=progress, label="Networks")
    shape = (len(PACES), len(config.starts), config.repeats)
    names = ("rates", "log_likelihood", "rmse", "trace")
    #: (paces, starts, repeats, ...)
    found = {
        name: np.array([piece[name] for piece in made]).reshape(*shape, *np.shape(made[0][name]))
        for name in names
    }
    arrays: dict[str, Any] = {
        "starts": np.array(config.starts),
        "steps": np.asarray(made[0]["steps"]),
        "trace": found["trace"].mean(2),
        "paces": list(PACES),
    }
    return Outcome(
        _rows(config, found),
        make_claims(config, found),
        arrays=arrays,
        notes=(
            f"A perceptron of three hidden layers of {config.width}, not a segmentation network; "
            f"{config.steps:,} steps of Adam along a cosine.",
            "The paper gives no number for how similar the optima of fig. 8 are.",
            f"Rates: mean of {config.repeats} run(s); apart: largest less smallest over the starts.",
        ),
    )


def _rows(config: Config, found: dict[str, Array]) -> Iterator[Row]:

    for index, pace in enumerate(PACES):
        told = f"rates learn {pace}"
        for place, start in enumerate(config.starts):
            setting = f"{told}, from {start:g}"
            rates = found["rates"][index, place]
            yield from [
                Row.of_runs(setting, f"rate, {layer}", own)
                for layer, own in zip(LAYERS, rates.T, strict=True)
            ]
            for name, metric in (("log_likelihood", "log-likelihood (nats)"), ("rmse", "RMSE")):
                yield Row.of_runs(setting, metric, found[name][index, place])
        apart = _apart(found["rates"][index])
        yield from [Row(told, f"apart, {layer}", None, one) for layer, one in zip(LAYERS, apart, strict=True)]


def _apart(rates: Array) -> Array:
    """Largest less smallest over starts, by layer, of the mean over repeats. From (S, R, L) to (L,)."""
    means = rates.mean(1)
    apart: Array = means.max(0) - means.min(0)
    return apart


def make_claims(config: Config, found: dict[str, Array]) -> list[Claim]:
    """Fig. 8 and its sentence in section 4.4; judged at the library's default pace."""
    apart = _apart(found["rates"][0])
    slow = _apart(found["rates"][1])
    likelihood = found["log_likelihood"][0].mean(1)
    lost = float(likelihood.max() - likelihood.min())
    listed = ", ".join(f"{one:.3f} ({layer})" for layer, one in zip(LAYERS, apart, strict=True))
    alike = bool(apart.mean() < ALIKE)
    return [
        Claim(
            "Fig. 8: rates that start anywhere in [0.05, 0.5] converge to similar optima.",
            f"largest less smallest rate over the starts: {listed}; {apart.mean():.3f} on average.",
            alike,
            otherwise=f"They are {apart.mean():.2f} apart, where {ALIKE:g} would count as alike.",
        ),
        Claim(
            "4.4: Concrete dropout is tolerant to initialisation values: the networks are as good.",
            f"test log-likelihood between {likelihood.min():.3f} and {likelihood.max():.3f} nats a row.",
            lost < AS_GOOD,
            otherwise=f"The worst start costs {lost:.2f} nats a row.",
        ),
        Claim(
            "Fig. 8: so it is where rates learn as fast as weights, as in the paper's program.",
            f"in as many steps the rates are {slow.mean():.3f} apart on average.",
            bool(slow.mean() < ALIKE),
            otherwise=f"A logit moves by at most {config.lr:g} a step: where rates end tells "
            "where they started.",
        ),
    ]


def draw(outcome: Outcome) -> Any:
    """A panel a layer and pace: the rate against the step, a line a start."""
    arrays = outcome.arrays
    trace = np.asarray(arrays["trace"])
    figure = new_figure(15, 7)
    axes = figure.subplots(len(arrays["paces"]), len(LAYERS), sharex=True, sharey=True, squeeze=False)
    for row, pace in enumerate(arrays["paces"]):
        for column, layer in enumerate(LAYERS):
            ax = axes[row, column]
            for place, start in enumerate(arrays["starts"]):
                color = COLORS[place % len(COLORS)]
                ax.plot(arrays["steps"], trace[row, place, :, column], color=color, label=f"{start:g}")
                ax.plot([0], [start], marker="o", markersize=4, color=color, clip_on=False)
            finish_axes(ax, f"{layer}; learns {pace}", grid=True, ylim=(0, 0.54))
    finish_axes(axes[-1], xlabel="step")
    finish_axes(axes[:, 0], ylabel="drop rate p")
    finish_axes(axes[0, -1], legend={"title": "start"})
    return figure
