"""What section 5.1 says of figures 2 and 3, and whether it held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesdrop.experiments.curves.alike import likeness, spreads_are_alike
from bayesdrop.experiments.curves.measures import at, few_draws, season
from bayesdrop.experiments.curves.series import Curve
from bayesdrop.experiments.row import Claim

if TYPE_CHECKING:
    from bayesdrop.experiments.gal2016_co2 import Config

__all__ = ["make_claims"]

Piece = dict[str, Any]
#: the farthest x at which the spread is compared, beyond x*
LAST = 4.5
#: a network whose mean has more than this share of the data's seasons counts as fitted
FITS = 0.5


def make_claims(config: Config, curve: Curve, found: Mapping[str, Piece], process: Piece) -> list[Claim]:
    """All claims, from what the networks (see `ask`) and the process (see `fit_process`) say."""
    end, far = float(curve.x[-1]), config.far
    relu, tanh = found["relu"], found["tanh"]
    return [
        _standard(relu, far),
        _process(process, end, far),
        _grows({"4 hidden layers": relu, "3 hidden layers": found["shallow"]}, end, far),
        _bounded({"p = 0.1": tanh, "p = 0.2": found["tanh2"]}, relu, end, far),
        _rates(tanh, found["tanh2"]),
        _layers(relu, found["shallow"], far),
        _fewer(found, curve),
        _seasons({"ReLU": relu, "TanH": tanh, "the Gaussian process": process}, curve),
        _wide_enough({"ReLU": relu, "TanH": tanh, "the Gaussian process": process}, curve),
        few_draws(
            "5.1, fig. 3: 10 passes already give a reasonable estimate of mean and uncertainty.",
            config,
            *(found[name] for name in ("relu", "shallow", "tanh", "tanh2")),
        ),
    ]


def _standard(relu: Piece, far: float) -> Claim:
    value, spread = at(relu, "standard", far), at(relu, "std", far)
    near = abs(value) < 0.5
    return Claim(
        "5.1, fig. 2a: standard dropout predicts the value 0 at x* with high confidence.",
        f"one value, {value:.2f}, and nothing beside it; functions drawn from the same network have a "
        f"standard deviation of {spread:.2f} there.",
        near,
        otherwise=f"One value with no sign of doubt, but not 0: a ReLU network goes on along a straight "
        f"line, here to {value:.2f}.",
    )


def _process(process: Piece, end: float, far: float) -> Claim:
    first, last, prior = at(process, "std", end), at(process, "std", far), process["prior_std"]
    return Claim(
        "5.1, fig. 2b: the Gaussian process predicts about 0 at x* and says that it is uncertain.",
        f"{at(process, 'mean', far):.2f} +- {last:.2f} at x*, {first:.2f} where the data end; its prior has "
        f"a standard deviation of {prior:.2f}.",
        last > 2 * first and abs(at(process, "mean", far)) < last,
    )


def _grows(networks: Mapping[str, Piece], end: float, far: float) -> Claim:
    """The spread is larger at every step away from the data, and more than twice as large at x*."""
    holds, told = True, []
    for name, piece in networks.items():
        stds = [at(piece, "std", place) for place in np.linspace(end, LAST, 8)]
        ratio = at(piece, "std", far) / stds[0]
        holds = holds and bool(np.all(np.diff(stds) > 0)) and ratio > 2
        told.append(
            f"{name}: {stds[0]:.2f} where the data end, {ratio * stds[0]:.2f} at x*, {stds[-1]:.2f} at {LAST}"
        )
    return Claim(
        "5.1: the uncertainty of the ReLU model increases far from the data.",
        f"standard deviation, {'; '.join(told)}.",
        holds,
    )


def _bounded(networks: Mapping[str, Piece], relu: Piece, end: float, far: float) -> Claim:
    """From x* on the spread grows by less than 10 %, and it is below 1.5 times its largest at the data."""
    holds, told = True, []
    for name, piece in networks.items():
        grid, std = np.asarray(piece["grid"]), np.asarray(piece["grid_std"])
        outside, inside = float(std[grid > end].max()), float(std[grid <= end].max())
        growth = at(piece, "std", LAST) / at(piece, "std", far)
        holds = holds and growth < 1.1 and outside < 1.5 * inside
        told.append(f"{name}: at most {outside:.2f} behind the data and {inside:.2f} between them")
    growth, other = (
        at(networks["p = 0.1"], "std", LAST) / at(networks["p = 0.1"], "std", far),
        at(relu, "std", LAST),
    )
    return Claim(
        "5.1: the uncertainty of the TanH model stays bounded.",
        f"standard deviation, {'; '.join(told)}. From x* to x = {LAST} it is multiplied by {growth:.2f} with "
        f"p = 0.1, and by {other / at(relu, 'std', far):.2f} in the ReLU network.",
        holds,
    )


def _rates(tanh: Piece, tanh2: Piece) -> Claim:
    """From ratios of the spread beyond the data, before training and after it."""
    first, last = (float(tanh2["look_std"][place] / tanh["look_std"][place]) for place in (0, -1))
    alike = spreads_are_alike(last)
    holds = first > 1 and not spreads_are_alike(first) and alike
    if holds:
        correction = ""
    elif alike:
        correction = "They are alike in the end, but were so before training too."
    else:
        correction = f"Not in {tanh['look_step'][-1]:,} steps: the ratio is still {last:.2f}."
    return Claim(
        "5.1: with p = 0.1 TanH models are at first less uncertain than with p = 0.2, and almost "
        "indistinguishable when the optimisation has converged.",
        f"spread between the end of the data and x*, p = 0.2 over p = 0.1: {first:.2f} before training and "
        f"{last:.2f} after it ({tanh2['look_std'][-1]:.2f} and {tanh['look_std'][-1]:.2f}).",
        holds,
        correction,
    )


def _layers(relu: Piece, shallow: Piece, far: float) -> Claim:
    found = likeness(relu, shallow, train="on the training months", test="on those that followed")
    told = [f"{at(piece, 'mean', far):.2f} +- {at(piece, 'std', far):.2f}" for piece in (relu, shallow)]
    return Claim(
        "5.1: models with one layer less converge to the same results.",
        f"{found}. At x*: {told[0]} with 4 hidden layers and {told[1]} with 3.",
        found.same,
        found.correction,
    )


def _fewer(found: Mapping[str, Piece], curve: Curve) -> Claim:
    """By the share of the seasons that a network's mean has at the training months; see `FITS`."""
    truth = season(curve.y[:, 0])
    shares = {name: season(found[name]["train_mean"]) / truth for name in ("relu", "shallow", "two", "one")}
    fits = {name: share > FITS for name, share in shares.items()}
    told = ", ".join(
        f"{100 * share:.0f} % with {layers}"
        for layers, share in zip((4, 3, 2, 1), shares.values(), strict=True)
    )
    holds = fits["relu"] and fits["shallow"] and not fits["two"] and not fits["one"]
    correction = ""
    if not (fits["relu"] and fits["shallow"]):
        correction = "Nor were the deeper ones successful."
    elif fits["one"]:
        correction = "One hidden layer suffices."
    elif fits["two"]:
        correction = "Two hidden layers suffice, from this start; one does not."
    return Claim(
        "5.1: models with a smaller number of layers than 3 or 4 could not be fitted to the data.",
        f"seasons in the predictive mean at the training months, as a share of the data's: {told} hidden "
        f"layers; more than {100 * FITS:.0f} % counts as fitted.",
        holds,
        correction,
    )


def _seasons(models: Mapping[str, Piece], curve: Curve) -> Claim:
    truth = season(curve.y_test[:, 0])
    shares = {name: season(piece["test_mean"]) / truth for name, piece in models.items()}
    told = ", ".join(f"{100 * share:.0f} % ({name})" for name, share in shares.items())
    return Claim(
        "5.1: behind the data no model captures the periodicity.",
        f"size of the seasons in the predictive mean as a share of those that came: {told}.",
        max(shares.values()) < 0.25,
    )


def _wide_enough(models: Mapping[str, Piece], curve: Curve) -> Claim:
    """Two standard deviations hold more than half of the 120 months that followed, for every model."""
    y = np.asarray(curve.y_test[:, 0])
    first = y[:120]
    held, told = [], []
    for name, piece in models.items():
        inside = np.abs(piece["test_mean"] - y) < 2 * piece["test_std"]
        held.append(float(inside[: len(first)].mean()))
        told.append(f"{100 * held[-1]:.0f} % ({name})")
    holds = min(held) > 0.5
    return Claim(
        "5.1: the mean is wrong, but the larger standard deviation expresses that the model is uncertain.",
        f"of the 120 months that followed, within two standard deviations: {', '.join(told)}.",
        holds,
        otherwise="A larger spread is not one of the right size: the curve bent upward, away from the line "
        "that was taken off, and left the narrower bands.",
    )
