"""Rows, claims and notes of the digits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesdrop.experiments.gal2017_mnist.plan import Array, Keys, Pieces, Plan
from bayesdrop.experiments.row import Claim, Row, listed, mean_and_error

if TYPE_CHECKING:
    from bayesdrop.experiments.gal2017_mnist import Config

__all__ = ["LAYERS", "make_claims", "make_notes", "make_rows"]

#: whose units are dropped
LAYERS = ("input", "hidden 1", "hidden 2", "hidden 3")
PAPER_ACCURACY = 98.6
# The standard error of that accuracy on 10,000 test digits, in per cent.
SAMPLING = math.sqrt(PAPER_ACCURACY * (100 - PAPER_ACCURACY) / 10_000)
# Nats per digit: about twice the standard error of the mean of 10,000 log-likelihoods.
RESOLVED = 0.007
#: a rate that counts as zero in a figure whose axis ends at 0.5
NEARLY_ZERO = 0.05
#: by how much a rate may go the other way, from run to run
WOBBLE = 0.005


def make_rows(config: Config, plan: Plan, pieces: Pieces | None) -> list[Row]:
    """The accuracy, the rates of figs 5 and 6, and fig. 11; `ours` is None where there are no pieces."""

    def number(setting: str, metric: str, paper: str | None, keys: Keys, what: str) -> Row:
        return Row.of_runs(setting, metric, [] if pieces is None else pieces.values(keys, what), paper=paper)

    def rate_rows(setting: str, keys: Keys, paper: Mapping[str, str]) -> list[Row]:
        rates: Any = [[]] * len(LAYERS) if pieces is None else pieces.values(keys, "rates").T
        return [
            Row.of_runs(setting, f"rate, {layer}", own, paper=paper.get(layer))
            for layer, own in zip(LAYERS, rates, strict=True)
        ]

    name = f"3x{config.width}, {plan.num_data:,} digits"
    rows = [
        number(name, "accuracy (%)", f"{PAPER_ACCURACY}", plan.main, "accuracy"),
        number(name, "log-likelihood (nats)", None, plan.main, "log_likelihood"),
        *rate_rows(name, plan.main, {"input": "0", "hidden 1": "0"}),
    ]
    if plan.baseline:
        fixed = f"{name}, fixed rates"
        rows += [
            number(fixed, "accuracy (%)", f"{PAPER_ACCURACY}", plan.baseline, "accuracy"),
            number(fixed, "log-likelihood (nats)", None, plan.baseline, "log_likelihood"),
        ]
    for size, keys in plan.sizes.items():
        setting = f"fig. 5: 3x{config.width}, {size:,} digits"
        rows += [*rate_rows(setting, keys, {}), number(setting, "accuracy (%)", None, keys, "accuracy")]
    for width, keys in plan.widths.items():
        rows += rate_rows(f"fig. 6: 3x{width}, {plan.num_data:,} digits", keys, {"input": "close to 0"})
    for l, keys in plan.scales.items():
        setting = f"fig. 11: l = {l:g}, 3x{config.length_scale_width}"
        rows += [
            number(setting, "accuracy (%)", None, keys, "accuracy"),
            number(setting, "log-likelihood (nats)", None, keys, "log_likelihood"),
            number(setting, "ELBO (nats)", None, keys, "elbo"),
        ]
    return rows


def make_claims(config: Config, plan: Plan, pieces: Pieces) -> list[Claim]:
    """What section 4.3 and appendix D.1 say, in their order."""
    return [
        *_accuracy_claims(plan, pieces),
        *_size_claims(config, pieces.scan(plan.sizes, "rates").mean(1)),
        *_width_claims(config, pieces.scan(plan.widths, "rates").mean(1)),
        *_scale_claims(config, plan, pieces),
    ]


def _accuracy_claims(plan: Plan, pieces: Pieces) -> list[Claim]:
    accuracies = pieces.values(plan.main, "accuracy")
    reached, error = mean_and_error(accuracies)
    runs = "" if error is None else f" +- {error:.2f} (standard error of {len(accuracies)} runs)"
    claims = [
        Claim(
            "Concrete dropout achieves an accuracy of 98.6 %.",
            f"{reached:.2f} %{runs}; 10,000 test digits have a standard error of {SAMPLING:.2f} %.",
            reached > PAPER_ACCURACY - 2 * SAMPLING,
        )
    ]
    if plan.baseline:
        fixed = float(pieces.values(plan.baseline, "accuracy").mean())
        claims.append(
            Claim(
                "That matches hand-tuned dropout.",
                f"{reached:.2f} % with learned rates, {fixed:.2f} % with rates of 0.2 on the inputs and 0.5 "
                "on hidden units, in as many steps.",
                reached > fixed - 2 * math.sqrt(2) * SAMPLING,
            )
        )
    return claims


def _size_claims(config: Config, rates: Array) -> list[Claim]:
    falling: Array = np.all(np.diff(rates, axis=0) < WOBBLE, axis=0)
    ends = rates[[0, -1]]
    spread = rates.max(0) - rates.min(0)
    zero = bool((rates[-1, :2] < NEARLY_ZERO).all())
    steady = bool((spread[2:] < 0.5 * spread[:2].min()).all())
    rising = ", ".join(layer for layer, falls in zip(LAYERS, falling, strict=True) if not falls)
    return [
        Claim(
            "Fig. 5: the rates decrease as the training set grows.",
            f"{_table(config.train_sizes, rates)} (input, hidden 1, 2, 3).",
            bool(falling.all()),
            f"Not everywhere: {rising}." if rising else "",
        ),
        Claim(
            "Fig. 5: with much data the rates of the first two layers are zero, while those of the other two "
            "vary by a relatively small amount.",
            f"from {listed(ends[0])} with {config.train_sizes[0]:,} digits to {listed(ends[1])} with "
            f"{config.train_sizes[-1]:,}.",
            zero and steady,
        ),
    ]


def _width_claims(config: Config, rates: Array) -> list[Claim]:
    first = bool((rates[:, 0] < NEARLY_ZERO).all())
    rising: Array = np.all(np.diff(rates[:, 1:], axis=0) > -WOBBLE, axis=0)
    not_rising = ", ".join(layer for layer, rises in zip(LAYERS[1:], rising, strict=True) if not rises)
    return [
        Claim(
            "Fig. 6: the rate of the first layer stays close to zero, and the others steadily increase with "
            "the size of the model.",
            f"{_table(config.widths, rates)} (input, hidden 1, 2, 3).",
            first and bool(rising.all()),
            f"Not that of {not_rising}." if not_rising else "",
        )
    ]


def _scale_claims(config: Config, plan: Plan, pieces: Pieces) -> list[Claim]:
    accuracy, likelihood, bound = (
        pieces.scan(plan.scales, what).mean(1) for what in ("accuracy", "log_likelihood", "elbo")
    )
    best, promised = (config.length_scales[int(values.argmax())] for values in (likelihood, bound))
    lost = float(likelihood.max() - likelihood[int(bound.argmax())])
    claims = [
        Claim(
            "Fig. 11: the ELBO indicates the length scale with the best predictive log-likelihood.",
            f"the log-likelihood is best at l = {best:g}, the ELBO at l = {promised:g}.",
            best == promised,
            otherwise=f"It warns of an l that is too large, but its choice costs {lost:.3f} nats of "
            "log-likelihood. The bound lacks a term in log l, infinite for a posterior of points.",
        )
    ]
    if config.length_scale in config.length_scales:
        place = config.length_scales.index(config.length_scale)
        behind = float(accuracy.max() - accuracy[place]), float(likelihood.max() - likelihood[place])
        sharpest = config.length_scales[int(accuracy.argmax())]
        claims.append(
            Claim(
                "Fig. 11: l = 0.01 has the best balance between log-likelihood and accuracy.",
                f"the best accuracy is at l = {sharpest:g}, the best log-likelihood at l = {best:g}; "
                f"l = {config.length_scale:g} is {behind[0]:.2f} % and {behind[1]:.3f} nats behind.",
                behind[0] < 2 * SAMPLING and behind[1] < RESOLVED,
            )
        )
    return claims


def make_notes(config: Config) -> list[str]:
    """What differs from the paper."""
    full = max(config.train_sizes)
    epochs, scan = (round(steps * config.batch_size / full) for steps in (config.steps, config.scan_steps))
    return [
        f"{config.steps:,} steps ({epochs} epochs) for the accuracy and {config.scan_steps:,} ({scan} epochs "
        "of all digits) in the scans, along a cosine; the paper trains for 500 epochs, about 200,000 steps.",
        f"Runs of every network: {config.repeats}; the paper has three.",
        f"Rates learn at {config.rate_lr:g}, weights at {config.lr:g}: Adam moves a logit by at most its "
        "learning rate a step, so that rates need a larger one to converge in fewer steps.",
        "In fig. 5 the network of all digits is that of the accuracy, as its rates still move when the scans "
        "stop; those of the scan are in fig. 6.",
        "Networks with fewer digits are trained for as many steps, with N in the objective their own number "
        f"of digits. The length scales are scanned with width {config.length_scale_width}.",
        "ELBO: nats per training digit, without the constant of the weights' vanishing width, which depends "
        "on l.",
    ]


def _table(places: tuple[Any, ...], rates: Array) -> str:
    return "; ".join(f"{place:,}: {listed(row)}" for place, row in zip(places, rates, strict=True))
