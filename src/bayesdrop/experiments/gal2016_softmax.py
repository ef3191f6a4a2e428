"""Gal & Ghahramani (2016), figure 1: the softmax of a function that extrapolates, and of its draws.

The paper's figure is a sketch. A classifier learns two classes between the dashed grey lines; far from
them, at x*, its function is far from 0, and the softmax of that one function says "class 1 with probability
1". The softmax of a distribution over functions need not: the average of the draws' probabilities depends on
how many of them agree. Here this is measured, at x* = 5, for a dropout network trained on labels whose
log-odds are 3 sin(2.5 x) between -2 and 2: for its point estimate (one pass with averaged weights) and for
its draws.

Thresholds were written before the numbers were seen: the point estimate is sure if it gives some class 0.99
or more in every run; the draws reflect uncertainty if the averaged confidence is 0.95 at most in the mean of
the runs, and below the point estimate's in every one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Claim, Outcome, Row, listed
from bayesdrop.experiments.settings import all_but
from bayesdrop.fit import fit
from bayesdrop.likelihoods import Bernoulli
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO
from bayesdrop.plots import COLORS, finish_axes, new_figure, plot_draws
from bayesdrop.predict import predict

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: thresholds of the claims
SURE, UNSURE = 0.99, 0.95
EDGE = 2.0  #: the data are between -EDGE and EDGE


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on."""

    num_rows: int = 400
    width: int = 128
    p: float = 0.2
    length_scale: float = 1e-2
    epochs: int = 2000
    lr: float = 3e-3
    num_draws: int = 1000
    num_paths: int = 30  #: draws in the picture
    num_grid: int = 301
    far: float = 5.0  #: x*
    num_seeds: int = 5
    seed: int = 0


SMOKE = Config(num_rows=40, width=8, epochs=3, num_draws=10, num_paths=3, num_grid=31, num_seeds=2)
PRESETS = {"quick": Config(epochs=500, num_seeds=3)}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """A network for every seed; the first is in the picture."""
    fields = all_but(config, "num_seeds", "seed")
    keys = [{**fields, "seed": config.seed + n} for n in range(config.num_seeds)]
    pieces = run_pieces(keys, _network, cache=cache, progress=progress, label="Networks")
    first = pieces[0]
    arrays = {name: first[name] for name in ("grid", "logit", "prob", "point", "paths", "x", "y")}
    arrays |= {"low": first["low"], "high": first["high"], "far": config.far}
    return Outcome(
        _rows(pieces),
        _claims(pieces),
        arrays=arrays,
        notes=("The paper's figure is a sketch, without data or numbers; data, network and x* are ours.",),
    )


def _network(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: the logit and the probability of class 1 over x, of a point estimate and of draws.

    Returns, on a grid (G,): "logit" and "point", its probability, of the point estimate; "low" and "high",
    two standard deviations of logits about their mean, and "prob" of draws; "paths" (num_paths, G), logits of
    draws. The training rows "x" and "y". Numbers at x*, whose names begin with "far_": "far_other" is the
    share of draws that vote for the class with fewer votes. "data_confidence": mean at the training rows.
    """
    generator = torch.Generator().manual_seed(key["seed"])
    x = EDGE * (2 * torch.rand(key["num_rows"], 1, generator=generator) - 1)
    y = torch.bernoulli(torch.sigmoid(3 * torch.sin(2.5 * x)), generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key["seed"])
        net = mlp(1, (key["width"],) * 2, 1, p=key["p"], input_p=0, length_scale=key["length_scale"])
    objective = NegativeELBO(Bernoulli(), num_data=len(x))
    fit(
        net, (x, y), objective, epochs=key["epochs"], batch_size=len(x), lr=key["lr"], scheduler="cosine",
        seed=key["seed"], progress=False,
    )  # fmt: skip
    grid = torch.linspace(-key["far"] - 1, key["far"] + 1, key["num_grid"]).unsqueeze(1)
    places = torch.cat([grid, torch.tensor([[key["far"]]]), x])
    seen = predict(net, places, num_draws=key["num_draws"], seed=key["seed"], keep_draws=True)
    probs = predict(net, places, num_draws=key["num_draws"], seed=key["seed"], likelihood=Bernoulli())
    point = one_pass(net, places).mean[:, 0]
    draws, size = seen.draws[..., 0], len(grid)
    share = float((draws[:, size] > 0).double().mean())
    low, high = (seen.mean[:, 0] + side * 2 * seen.std[:, 0] for side in (-1, 1))
    return {
        "grid": grid[:, 0],
        "x": x[:, 0],
        "y": y[:, 0],
        "logit": point[:size],
        "low": low[:size],
        "high": high[:size],
        "point": torch.sigmoid(point[:size]),
        "prob": probs.probs[:size, 0],
        "paths": draws[: key["num_paths"], :size],
        "far_point": float(torch.sigmoid(point[size])),
        "far_prob": float(probs.probs[size, 0]),
        "far_logit": float(point[size]),
        "far_logit_std": float(seen.std[size, 0]),
        "far_other": min(share, 1 - share),
        "data_confidence": float(torch.maximum(probs.probs[size + 1 :], 1 - probs.probs[size + 1 :]).mean()),
    }


def _confidence(prob: float) -> float:
    return max(prob, 1 - prob)


def _rows(pieces: list[dict[str, Any]]) -> list[Row]:
    found = {
        ("point estimate", "probability of its class at x*"): [_confidence(p["far_point"]) for p in pieces],
        ("point estimate", "size of the logit at x*"): [abs(p["far_logit"]) for p in pieces],
        ("draws", "probability of their class at x*"): [_confidence(p["far_prob"]) for p in pieces],
        ("draws", "std of the logit at x*"): [p["far_logit_std"] for p in pieces],
        ("draws", "share that votes for the other class at x*"): [p["far_other"] for p in pieces],
        ("draws", "mean confidence at the data"): [p["data_confidence"] for p in pieces],
    }
    paper = {("point estimate", "probability of its class at x*"): "1"}
    return [Row.of_runs(*name, values, paper=paper.get(name)) for name, values in found.items()]


def _claims(pieces: list[dict[str, Any]]) -> list[Claim]:
    points = [_confidence(piece["far_point"]) for piece in pieces]
    averaged = [_confidence(piece["far_prob"]) for piece in pieces]
    lower = all(a < b for a, b in zip(averaged, points, strict=True))
    reflects = lower and float(np.mean(averaged)) <= UNSURE
    ratio = float(np.mean([piece["far_logit_std"] / abs(piece["far_logit"]) for piece in pieces]))
    return [
        Claim(
            "Fig. 1: ignoring function uncertainty, x* is classified with probability 1.",
            f"probability of the point estimate's class at x*: {listed(points, '.4f')}.",
            min(points) >= SURE,
        ),
        Claim(
            "1: passing the distribution over functions through the softmax better reflects the "
            "classification uncertainty far from the data.",
            f"averaged over draws: {listed(averaged, '.4f')}; the draws' standard deviation "
            f"is {ratio:.2f} of the logit's size.",
            reflects,
            otherwise="The draws spread in proportion to the function, and most stay on its side of 0: their "
            "average is less sure than the point estimate, and still sure.",
        ),
    ]


def draw(outcome: Outcome) -> Any:
    """Two panels, as the paper's: the function, and its softmax."""
    arrays = outcome.arrays
    grid = np.asarray(arrays["grid"])
    paths = np.asarray(arrays["paths"])
    figure = new_figure(12, 4)
    left, right = figure.subplots(1, 2)
    band = {"alpha": 0.2, "linewidth": 0, "label": "±2 std of draws"}
    left.fill_between(grid, arrays["low"], arrays["high"], color=COLORS[0], **band)
    plot_draws(left, grid, paths, min(8, len(paths)))
    plot_draws(right, grid, 1 / (1 + np.exp(-paths)), min(8, len(paths)))
    left.plot(grid, arrays["logit"], color="#1A1A1A", linewidth=1.6, label="point estimate")
    left.axhline(0, color="0.6", linewidth=0.6)
    right.plot(grid, arrays["point"], color="#1A1A1A", linewidth=1.6, label="softmax of the point estimate")
    right.plot(grid, arrays["prob"], color=COLORS[1], linewidth=1.8, label="mean softmax of the draws")
    right.plot(arrays["x"], arrays["y"], "|", color="0.4", markersize=6, alpha=0.5)
    titles = ("(a) The function: the log-odds of class 1", "(b) Its softmax")
    for ax, title in zip((left, right), titles, strict=True):
        for edge in (-EDGE, EDGE):
            ax.axvline(edge, color="0.5", linestyle="--", linewidth=1)
        ax.axvline(arrays["far"], color="#C8102E", linestyle="--", linewidth=1.3)
        finish_axes(ax, title, legend="upper left", xlim=(grid[0], grid[-1]), xlabel="x")
    right.set_ylim(-0.05, 1.3)
    return figure
