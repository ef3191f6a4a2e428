"""Rows, claims and notes of the synthetic data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesdrop.experiments.gal2017_synthetic.networks import TRUTH
from bayesdrop.experiments.row import Claim, Row

if TYPE_CHECKING:
    from bayesdrop.experiments.gal2017_synthetic import Config

__all__ = ["LAYERS", "UNCERTAINTIES", "make_claims", "make_notes", "make_rows"]

LAYERS = ("input", "hidden 1", "hidden 2", "hidden 3, mean", "hidden 3, noise")
UNCERTAINTIES = ("epistemic", "aleatoric", "predictive")
METRICS = {"rmse": "RMSE", "log_likelihood": "log-likelihood (nats)", "elbo": "ELBO (nats)"}
#: by name, of shape (sizes, repeats, ...)
Found = Mapping[str, np.ndarray[Any, Any]]
# What the authors' program printed when they published it, by N.
NOTEBOOK = {
    "epistemic": {10: 1.09, 25: 0.82, 50: 0.75, 100: 0.67, 1000: 0.65, 10_000: 0.54},
    "aleatoric": {10: 1.32, 25: 1.36, 50: 1.27, 100: 1.25, 1000: 1.32, 10_000: 1.23},
}


def make_rows(config: Config, found: Found) -> Iterator[Row]:
    """The three stds, the scores and the rates at every N."""
    printed = {
        ("aleatoric", config.sizes[-1]): "near 1",
        **{(layer, config.sizes[0]): "near 0.5" for layer in LAYERS},
        **{(layer, config.sizes[-1]): "0.2 to 0.4" for layer in LAYERS},
    }
    for place, size in enumerate(config.sizes):
        setting = f"N = {size:,}"
        for name in (*UNCERTAINTIES, "rmse", "log_likelihood", "elbo"):
            metric = METRICS.get(name, f"{name} std")
            note = f"authors' notebook: {NOTEBOOK[name][size]}" if size in NOTEBOOK.get(name, {}) else ""
            paper = printed.get((name, size))
            yield Row.of_runs(setting, metric, found[name][place], paper=paper, note=note)
        for index, layer in enumerate(LAYERS):
            paper = printed.get((layer, size))
            yield Row.of_runs(setting, f"rate, {layer}", found["rates"][place, :, index], paper=paper)


def make_claims(config: Config, found: Found) -> list[Claim]:
    """What figure 1 shows, panel by panel."""
    means = {name: values.mean(1) for name, values in found.items()}

    def listed(name: str) -> str:
        return ", ".join(f"{value:.2f}" for value in means[name])

    sizes = ", ".join(f"{size:,}" for size in config.sizes)
    noise, predictive, rates = means["aleatoric"][-1], means["predictive"], means["rates"]
    falls = bool((np.diff(rates, axis=0) < 0.01).all())
    first, last = (", ".join(f"{rate:.3f}" for rate in rates[place]) for place in (0, -1))
    # A claim that fails for want of steps says nothing of the method.
    unfinished = "Not in so few steps, at such a learning rate of the rates." if _is_short(config) else ""
    half = bool((abs(rates[0] - 0.5) < 0.05).all())
    wide = bool(((rates[-1] > 0.15) & (rates[-1] < 0.45)).all())
    return [
        Claim(
            "Fig. 1a: epistemic uncertainty falls as the data grow.",
            f"std {listed('epistemic')} at N = {sizes}.",
            bool((np.diff(means["epistemic"]) < 0).all()),
            otherwise=unfinished,
        ),
        Claim(
            "Fig. 1b: aleatoric uncertainty tends to 1, the truth.",
            f"std {listed('aleatoric')} at the same N.",
            bool(abs(noise - TRUTH) < 0.05),
            otherwise=unfinished,
        ),
        Claim(
            "Fig. 1c: predictive uncertainty converges to a constant.",
            f"std {listed('predictive')}; the least that is possible is 1.",
            bool(abs(predictive[-1] - TRUTH) < 0.1),
            otherwise=unfinished,
        ),
        Claim(
            "Fig. 1d: every layer's rate falls as the data grow.",
            "; ".join(
                f"{layer} " + ", ".join(f"{rate:.3f}" for rate in rates[:, index])
                for index, layer in enumerate(LAYERS)
            )
            + ".",
            falls,
        ),
        Claim(
            f"Fig. 1d: the rates start near 0.5 in all layers at N = {config.sizes[0]}.",
            f"{', '.join(LAYERS)}: {first}.",
            half,
            otherwise="Not that of the single input: to drop it loses all that is known of y, for the "
            "entropy of one mask. The paper's own section 4.3 finds a rate of zero on inputs.",
        ),
        Claim(
            f"Fig. 1d: the rates are between 0.2 and 0.4 at N = {config.sizes[-1]:,}.",
            f"{', '.join(LAYERS)}: {last}.",
            wide,
            otherwise="They depend on where training stops: Adam moves a logit by at most its learning rate "
            "a step, so that the start and the number of steps bound what is found.",
        ),
    ]


def make_notes(config: Config) -> list[str]:
    """How the networks were trained, and what the three stds are."""
    steps, furthest = _steps(config), _furthest(config)
    told = f"{min(steps):,} to {max(steps):,}" if min(steps) < max(steps) else f"{steps[0]:,}"
    bound = f" No rate can have passed {furthest:.2f} in that." if _is_short(config) else ""
    return [
        f"Three hidden layers of {config.width}, {told} steps; rates learn at {config.rate_lr:g}, weights at "
        f"{config.lr:g}.{bound}",
        "Epistemic: variance of the draws' means; aleatoric: mean of the draws' noise variances; each is "
        f"averaged over {config.num_test:,} test points before the root is taken. The authors' program takes "
        "the noise variance at the mean of its logarithms instead.",
        "The paper prints no numbers in this figure; those of its text and of the authors' notebook are "
        "beside ours.",
    ]


def _steps(config: Config) -> list[int]:
    return [
        epochs * math.ceil(size / config.batch_size)
        for size, epochs in zip(config.sizes, config.epochs, strict=True)
    ]


def _furthest(config: Config) -> float:
    """The largest rate that can be reached: a step of Adam moves a logit by about its learning rate."""
    start = math.log(config.p_init / (1 - config.p_init))
    return 1 / (1 + math.exp(-start - config.rate_lr * max(_steps(config))))


def _is_short(config: Config) -> bool:
    return _furthest(config) < 0.49
