"""Gal & Ghahramani (2016), conclusion: cosine units and L2 for smooth functions and growing uncertainty.

"If one expects the function to be smooth and the uncertainty to increase far from the data, cosine
non-linearities and L2 regularisation might be appropriate": the paper's last suggestion, not tried there.
Here it is tried on the paper's own carbon dioxide series. The squared exponential process of largest
evidence gives the length scale, the variance and the noise; networks of cosine units with random phases
have that process as their prior, and are trained with dropout on the negative evidence lower bound, whose
weight penalty is that prior. Beside them are the process itself, the exact posterior of as many random cosine
units (the same non-linearity and penalty, without dropout), and a ReLU network for what is not smooth.

Thresholds were written before the numbers were seen. A function is called smooth if its second differences
fall as the square of the step: with an exponent above 1.9, where kinks have 1.5. Uncertainty grows if the
standard deviation at x* = 3 is more than twice its mean over the training months, and it is bounded if it
nowhere exceeds the prior's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.experiments.curves.measures import at, distance
from bayesdrop.experiments.curves.network import Network, make_network
from bayesdrop.experiments.curves.panels import BLUE, DATA, FAR, PATHS, TWO
from bayesdrop.experiments.curves.process import fit_process
from bayesdrop.experiments.curves.series import Curve, co2_curve
from bayesdrop.experiments.curves.training import ask
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Claim, Outcome, Row, told
from bayesdrop.experiments.settings import all_but
from bayesdrop.fit import fit
from bayesdrop.gp import GaussianProcess, NetworkKernel
from bayesdrop.layers import BernoulliDropout
from bayesdrop.likelihoods import Gaussian
from bayesdrop.models import Cosine, mlp, random_phases
from bayesdrop.objectives import ElboTerms, NegativeELBO
from bayesdrop.plots import finish_axes, new_figure, plot_bands, plot_draws
from bayesdrop.predict import predict

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run", "smoothness"]

BETWEEN = (-1.9, 4.9)
#: thresholds of the claims
SMOOTH, GROWTH = 1.9, 2.0
#: hidden layers by name; the ReLU network is for comparison
DEPTHS = {"cosine": 1, "cosine, 2 layers": 2, "relu": 2}
TITLES = {
    "cosine": "cosine, 1 hidden layer",
    "cosine, 2 layers": "cosine, 2 hidden layers",
    "relu": "ReLU, 2 hidden layers",
    "units": "cosine units, exact posterior",
    "process": "Gaussian process",
}


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on."""

    width: int = 512
    p: float = 0.1
    steps: int = 4000
    lr: float = 3e-3  #: of Adam, falling along a cosine
    num_draws: int = 1000
    few_draws: int = 10
    num_paths: int = 5
    num_grid: int = 681
    num_fine: int = 4001  #: points where smoothness is measured, within half a unit of x of the last month
    restarts: int = 3  #: further starts of the search for the process's parameters
    far: float = 3.0  #: x*
    seed: int = 0


SMOKE = Config(
    width=16, steps=4, num_draws=20, few_draws=5, num_paths=2, num_grid=69, num_fine=101, restarts=0
)
PRESETS = {"quick": Config(width=256, steps=1000, num_draws=300)}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Fit the process, then the networks whose prior it is."""
    curve = co2_curve()
    common = {"num_grid": config.num_grid, "between": BETWEEN, "seed": config.seed}
    key = {"data": "co2", "restarts": config.restarts, **common}
    process = cache.get({"part": "process", **key}, lambda: fit_process(key))
    prior = {name: process[name] for name in ("length_scale", "prior_std", "noise_std")}
    settings = all_but(config, "restarts", "far") | prior | common
    keys = [{"name": name, **settings} for name in DEPTHS]
    made = run_pieces(keys, _network, cache=cache, progress=progress, label="Networks")
    found = dict(zip(DEPTHS, made, strict=True)) | {"units": _units(config, curve, prior), "process": process}
    arrays: dict[str, Any] = {"x": curve.x[:, 0], "y": curve.y[:, 0], "grid": process["grid"]}
    arrays |= {"x_test": curve.x_test[:, 0], "y_test": curve.y_test[:, 0], "far": config.far}
    arrays |= {"prior_std": process["prior_std"]}
    for name, piece in found.items():
        arrays |= {f"{name} {what}": piece[what] for what in ("grid_mean", "grid_std")}
        if name in DEPTHS:
            arrays[f"{name} paths"] = piece["paths"]
    return Outcome(
        _rows(config, curve, found),
        _claims(config, found),
        arrays=arrays,
        notes=(
            "The paper suggests this and does not do it: there is no number of its to compare with.",
            "The network's noise is held at that of the process; its weights start as the prior has them.",
            "Phases, which are on a circle, have no penalty.",
        ),
    )


def _network(key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece: a network trained on the bound, what it says, and how smooth its draws are.

    Returns: what `ask` gives, "exponent" of `smoothness`, and the last "loss".
    """
    curve = co2_curve()
    net = _new_network(key, curve)
    bound = NegativeELBO(Gaussian(key["noise_std"]), num_data=len(curve.x))
    first = net[0]
    assert isinstance(first, nn.Linear)
    *inner, _ = [part for part in net if isinstance(part, BernoulliDropout)]

    def objective(model: nn.Module, x: Tensor, y: Tensor) -> ElboTerms:
        """The bound. Cosine networks: with the prior's penalty on the first weights too, none on phases."""
        terms: ElboTerms = bound(model, x, y)
        if key["name"] == "relu":
            return terms
        penalty = 0.5 * key["length_scale"] ** 2 * first.weight.square().sum()
        for layer in inner:
            penalty = penalty - layer.bias_kl()
        return ElboTerms(terms.nll, terms.kl + penalty / len(curve.x))

    history = fit(
        net, (curve.x.float(), curve.y.float()), objective, epochs=key["steps"], batch_size=len(curve.x),
        lr=key["lr"], scheduler="cosine", seed=key["seed"], progress=False,
    )  # fmt: skip
    end = float(curve.x[-1])
    fine = torch.linspace(end - 0.5, end + 0.5, key["num_fine"], dtype=torch.float64).unsqueeze(1)
    asked = ask(net, curve, key)
    draws = predict(net.double(), fine, num_draws=key["num_paths"], seed=key["seed"]).draws
    return asked | {"exponent": smoothness(draws[..., 0]), "loss": float(history.loss[-1])}


def _new_network(key: Mapping[str, Any], curve: Curve) -> nn.Sequential:
    """A network with dropout before every layer but the first; cosine units start as the prior has them."""
    name, width = key["name"], key["width"]
    hidden = (width,) * DEPTHS[name]
    # v = K / l^2: the layer after K units has the length scale sqrt(K / v).
    last = math.sqrt(width) / key["prior_std"]
    if name == "relu":
        kind = Network("relu", depth=DEPTHS[name], p=key["p"], lr=0.0, decay=0.0)
        return make_network(kind, width, seed=key["seed"], period=curve.period)
    net = mlp(1, hidden, 1, p=key["p"], input_p=0, activation=Cosine, length_scale=math.sqrt(width))
    output = net[-1]
    assert isinstance(output, BernoulliDropout)
    output.length_scale = last
    random_phases(net, length_scale=key["length_scale"], variance=key["prior_std"] ** 2, seed=key["seed"])
    return net


def _units(config: Config, curve: Curve, prior: Mapping[str, float]) -> dict[str, Any]:
    """What the exact posterior says of a network of random cosine units that learns its last weights only.

    Returns: "grid"; "mean" and "std" after "grid_" and "train_"; "grid_prior", the prior's "std".
    """
    kernel = NetworkKernel(
        "cosine", length_scale=prior["length_scale"], variance=prior["prior_std"] ** 2
    ).given(num_units=config.width, seed=config.seed)
    process = GaussianProcess(kernel, 1 / prior["noise_std"] ** 2)
    grid = torch.linspace(*BETWEEN, config.num_grid, dtype=torch.float64)
    found: dict[str, Any] = {"grid": grid}
    for place, x in (("grid", grid.unsqueeze(1)), ("train", curve.x)):
        mean, std = process.marginals(curve.x, curve.y, x)
        found |= {f"{place}_mean": mean[:, 0], f"{place}_std": std}
    # The prior standard deviation of finitely many units depends on x.
    found["grid_prior"] = kernel(grid.unsqueeze(1)).diagonal().sqrt()
    return found


def smoothness(draws: Tensor) -> float:
    """The power of the step with which second differences fall: 2 for smooth functions, 1.5 with kinks.

        log_2 (root mean square of second differences with step 2 h / the same with step h)

    Args:
        draws: (T, N) functions on an even grid.

    >>> grid = torch.linspace(0, 1, 2001, dtype=torch.float64)
    >>> kinks = (grid - torch.linspace(0.1, 0.9, 77, dtype=torch.float64)[:, None]).abs()
    >>> round(smoothness(torch.sin(5 * grid)[None]), 2), round(smoothness(kinks), 1)
    (2.0, 1.5)
    """
    rough = [
        (draws[:, 2 * step :] - 2 * draws[:, step:-step] + draws[:, : -2 * step]).square().mean().sqrt()
        for step in (1, 2)
    ]
    return float(torch.log2(rough[1] / rough[0]))


def _rows(config: Config, curve: Curve, found: Mapping[str, dict[str, Any]]) -> list[Row]:
    rows = []
    for name, piece in found.items():
        title = TITLES[name]
        inside = float(np.asarray(piece["train_std"]).mean())
        rows += [
            Row(title, "RMSE, training months", None, distance(piece["train_mean"], curve.y[:, 0])),
            Row(title, "mean std, training months", None, inside),
            Row(title, "std at x*", None, at(piece, "std", config.far)),
            Row(title, "largest std", None, float(np.asarray(piece["grid_std"]).max())),
        ]
        if name in DEPTHS:
            rows.append(Row(title, "exponent of second differences", None, piece["exponent"]))
    process = found["process"]
    return [
        *rows,
        Row("Gaussian process", "length scale (years)", None, process["length_scale"] / curve.period),
        Row("Gaussian process", "prior std", None, process["prior_std"]),
        Row("Gaussian process", "noise std", None, process["noise_std"]),
    ]


def _claims(config: Config, found: Mapping[str, dict[str, Any]]) -> list[Claim]:
    networks = {name: found[name] for name in ("cosine", "cosine, 2 layers")}
    exact = {name: found[name] for name in ("units", "process")}
    prior = float(found["process"]["prior_std"])
    exponents = {TITLES[name]: found[name]["exponent"] for name in DEPTHS}
    smooth = min(piece["exponent"] for piece in networks.values())
    shares = {
        TITLES[name]: float(
            (np.asarray(piece["grid_std"]) / np.asarray(piece.get("grid_prior", prior))).max()
        )
        for name, piece in (networks | exact).items()
    }
    return [
        Claim(
            "Cosine units are appropriate if the function is smooth.",
            f"second differences of draws fall as the step to the power of {_told(exponents)}.",
            smooth > SMOOTH > found["relu"]["exponent"],
        ),
        _grows(
            "Cosine units and L2 are appropriate if uncertainty is to increase far from the data: dropout.",
            config,
            networks,
            "The spread of dropout hardly knows where the data are. With one hidden layer it is "
            "p / (1 - p) sum_k w_k^2 s_k(x)^2, and squared cosines of many phases sum to nearly the same "
            "everywhere.",
        ),
        _grows(
            "The same model without dropout, its last weights integrated exactly, and the process itself.",
            config,
            exact,
            "",
        ),
        Claim(
            "The uncertainty is bounded by that of the prior.",
            f"the largest share of the prior's standard deviation: {_told(shares)}; that is {prior:.2f}.",
            max(shares.values()) <= 1 + 1e-6,
        ),
    ]


def _grows(text: str, config: Config, pieces: Mapping[str, dict[str, Any]], correction: str) -> Claim:
    """The standard deviation at x* is more than `GROWTH` times its mean over the training months."""
    inside = {name: float(np.asarray(piece["train_std"]).mean()) for name, piece in pieces.items()}
    ratios = {name: at(piece, "std", config.far) / inside[name] for name, piece in pieces.items()}
    holds = min(ratios.values()) > GROWTH
    shown = _told({TITLES[name]: ratio for name, ratio in ratios.items()})
    measured = f"standard deviation at x* over its mean at the training months: {shown}."
    return Claim(text, measured, holds, otherwise=correction)


def _told(numbers: Mapping[str, float]) -> str:
    return told(numbers, behind=True)


def draw(outcome: Outcome) -> Any:
    """Six panels: the five models, and their standard deviations against x."""
    arrays = outcome.arrays
    grid = np.asarray(arrays["grid"])
    figure = new_figure(14, 7.6)
    flat = list(figure.subplots(2, 3).flat)
    for ax, (name, title) in zip(flat, TITLES.items(), strict=False):
        plot_bands(ax, grid, (arrays[f"{name} grid_mean"], arrays[f"{name} grid_std"]), num_std=TWO)
        if name in DEPTHS:
            plot_draws(ax, grid, arrays[f"{name} paths"], 2, color=PATHS)
        ax.plot(arrays["x"], arrays["y"], color=DATA, linewidth=0.8, zorder=4)
        ax.plot(arrays["x_test"], arrays["y_test"], ".", color="#777777", markersize=1.5, zorder=4)
        ax.axvline(arrays["far"], color=FAR, linestyle="--", linewidth=1.2)
        finish_axes(ax, f"{title}, ±2 std", xlim=(grid[0], grid[-1]), ylim=(-5, 7))
    last = flat[5]
    for index, (name, title) in enumerate(TITLES.items()):
        last.plot(grid, arrays[f"{name} grid_std"], color=f"C{index}", linewidth=1.1, label=title)
    last.axhline(arrays["prior_std"], color="0.4", linestyle=":", label="the prior's")
    last.axvline(float(np.asarray(arrays["x"])[-1]), color=BLUE, linestyle="--", linewidth=1)
    last.axvline(arrays["far"], color=FAR, linestyle="--", linewidth=1.2)
    limits = {"yscale": "log", "xlim": (grid[0], grid[-1]), "ylim": (0.02, 20)}
    legend = {"loc": "upper left", "ncols": 2, "fontsize": 8}
    finish_axes(last, "Standard deviation against x", legend=legend, **limits)
    finish_axes([flat[0], flat[3]], ylabel="CO₂ less a line, standardised")
    finish_axes(flat[3:], xlabel="x: months, standardised")
    return figure
