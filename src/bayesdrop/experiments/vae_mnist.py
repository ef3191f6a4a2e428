"""Boluki et al. (2020), section 2.3, on images: VAE and SIVAE with masks on the encoder's input (MNIST).

The paper tries its semi-implicit autoencoder on recommenders alone. Here it meets images: binarised MNIST
(every pixel is drawn once, with its grey value as the chance of ink), a Bernoulli likelihood, and one small
network for all: 784 - 200 - (20 means, 20 log-variances), 20 - 200 - 784. Compared are a VAE without dropout,
a VAE with fixed dropout of its inputs in training, and SIVAE with rates that are learned for every pixel:
hard masks (learnable), relaxed ones (concrete) and Gaussian noise. What counts is log p(x) of test images,
estimated by importance sampling; the lower bound is beside it, for SIVAE with more masks than in training.
The paper prints no numbers for images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.data.mnist import load_mnist
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Claim, Outcome, Row, mean_and_error, told
from bayesdrop.experiments.settings import all_but
from bayesdrop.fit import fit
from bayesdrop.layers import BernoulliNoise
from bayesdrop.likelihoods import Bernoulli
from bayesdrop.plots import finish_axes, new_figure, plot_estimates
from bayesdrop.randomness import random_state_kept
from bayesdrop.vae import SIVAE, VAE, NegativeBound

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: the first weights of revision 1 did not follow the seed
REVISION = 2
METHODS = ("VAE", "VAE, dropout", "SIVAE, learnable", "SIVAE, concrete", "SIVAE, gaussian")
_SHOWN = 8
#: a pixel counts as inked if it has ink in more than this share of the images
_INKED = 0.1


@dataclass(frozen=True)
class Config:
    """Images, networks and how they are judged."""

    num_train: int = 10_000
    num_test: int = 1000
    hidden: int = 200
    latent: int = 20
    p: float = 0.5  #: the fixed rate, and where learned ones start
    num_masks: int = 3
    eval_masks: int = 50  #: masks of the bound that is reported
    epochs: int = 50
    lr: float = 1e-3
    num_importance: int = 500
    seeds: tuple[int, ...] = (0, 1, 2)


SMOKE = Config(
    num_train=200, num_test=20, hidden=16, latent=4, eval_masks=4, epochs=1, num_importance=6, seeds=(0, 1)
)
PRESETS = {
    "quick": replace(
        Config(), num_train=2000, num_test=200, epochs=20, eval_masks=20, num_importance=100, seeds=(0, 1)
    )
}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Every method with every seed."""
    settings = all_but(config) | {"seeds": ()}
    groups = {name: [{"method": name, "seed": seed, **settings} for seed in config.seeds] for name in METHODS}
    found = run_groups(groups, partial(_piece, config), cache=cache, progress=progress)
    values = {
        name: {
            what: np.array([float(piece[what]) for piece in pieces])
            for what in ("bound", "likelihood", "reconstruction", "inked rate")
        }
        for name, pieces in found.items()
    }
    arrays: dict[str, Any] = {"images": found["VAE"][0]["images"]}
    for name in METHODS:
        arrays[f"reconstructed {name}"] = found[name][0]["reconstructed"]
        arrays[f"rates {name}"] = found[name][0]["rates"]
        arrays[f"likelihood {name}"] = values[name]["likelihood"]
        arrays[f"bound {name}"] = values[name]["bound"]
    notes = (
        "Claims were written before any of these numbers was seen; differences are paired by seed, and one "
        "counts if it is above two of its standard errors over seeds.",
    )
    return Outcome(_rows(values), _claims(values, config), arrays, notes)


def _images(config: Config) -> tuple[Tensor, Tensor]:
    """Binarised training and test images (N, 784): drawn once, the same for all methods and seeds."""
    data = load_mnist()
    generator = torch.Generator().manual_seed(0)
    parts = (data.x_train[: config.num_train], data.x_test[: config.num_test])
    train, test = (torch.bernoulli(part.flatten(1).float() / 255, generator=generator) for part in parts)
    return train, test


def _model(method: str, config: Config) -> VAE:
    encoder = nn.Sequential(
        nn.Linear(784, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 2 * config.latent)
    )
    decoder = nn.Sequential(nn.Linear(config.latent, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 784))
    if method == "VAE":
        return VAE(encoder, decoder, likelihood=Bernoulli(), latent=config.latent)
    if method == "VAE, dropout":
        noisy = nn.Sequential(BernoulliNoise(784, config.p), *encoder)
        return VAE(noisy, decoder, likelihood=Bernoulli(), latent=config.latent)
    return SIVAE(
        encoder,
        decoder,
        likelihood=Bernoulli(),
        latent=config.latent,
        num_inputs=784,
        num_masks=config.num_masks,
        noise=method.removeprefix("SIVAE, "),  # type: ignore[arg-type]
        p=config.p,
    )


def _piece(config: Config, key: Mapping[str, Any]) -> dict[str, Any]:
    """A piece, one method with one seed: scores in nats an image, rates (28, 28), and images (8, 28, 28)."""
    train, test = _images(config)
    seed = int(key["seed"])
    with random_state_kept():
        torch.manual_seed(seed)
        model = _model(key["method"], config)
    fit(
        model, (train, train), NegativeBound(), epochs=config.epochs, lr=config.lr, scheduler="linear",
        seed=seed, progress=False,
    )  # fmt: skip
    rates = torch.zeros(784)
    if isinstance(model, SIVAE):
        model.num_masks = config.eval_masks
        assert model.input_rates is not None
        rates = model.input_rates
    shown = model.reconstruct(test[:_SHOWN], num_draws=20)
    again = model.reconstruct(test)
    miss = -torch.where(test == 1, again, 1 - again).clamp_min(1e-7).log().sum(1).mean()
    often = train.mean(0) > _INKED
    return {
        "bound": float(model.lower_bound(test, batch_size=200).mean()),
        "likelihood": float(model.log_likelihood(test, num_importance=config.num_importance).mean()),
        "reconstruction": float(miss),
        "inked rate": float(rates[often].mean()),
        "rates": rates.reshape(28, 28).numpy(),
        "images": test[:_SHOWN].reshape(-1, 28, 28).numpy(),
        "reconstructed": shown.reshape(-1, 28, 28).numpy(),
    }


def _rows(values: Mapping[str, Mapping[str, np.ndarray[Any, Any]]]) -> Iterator[Row]:
    names = {
        "likelihood": "log p(x), importance sampling (nats)",
        "bound": "bound on log p(x) (nats)",
        "reconstruction": "-log p(x | mean code) (nats)",
    }

    for method, numbers in values.items():
        for what, metric in names.items():
            yield Row.of_runs(method, metric, numbers[what])
        if method.startswith("SIVAE"):
            yield Row.of_runs(method, "mean rate of inked pixels", numbers["inked rate"])


def _claims(values: Mapping[str, Mapping[str, np.ndarray[Any, Any]]], config: Config) -> tuple[Claim, ...]:
    learned = "SIVAE, learnable"

    def lead(one: str, other: str, what: str = "likelihood") -> tuple[float, float]:
        """Mean and standard error over seeds of the difference."""
        mean, error = mean_and_error(values[one][what] - values[other][what])
        return mean, error or float("inf")

    def better(text: str, one: str, others: tuple[str, ...]) -> Claim:
        leads = {other: lead(one, other) for other in others}
        shown = "; ".join(f"over {other} {mean:+.2f} ± {error:.2f}" for other, (mean, error) in leads.items())
        holds = all(mean > 2 * error for mean, error in leads.values())
        return Claim(text, f"log p(x) of {one}, in nats an image: {shown}.", holds)

    gaps = {
        name: float((numbers["likelihood"] - numbers["bound"]).mean()) for name, numbers in values.items()
    }
    rate = float(values[learned]["inked rate"].mean())
    return (
        Claim(
            "The bound is below log p(x), for every method and seed.",
            f"log p(x) less bound, in nats: {told(gaps, between='; ')}.",
            all((numbers["likelihood"] > numbers["bound"]).all() for numbers in values.values()),
        ),
        Claim(
            f"2.3: masks make a more flexible posterior. The bound of SIVAE with {config.eval_masks} masks "
            "is nearer to log p(x) than that of a VAE without dropout.",
            f"log p(x) less bound: {gaps[learned]:.2f} and {gaps['VAE']:.2f} nats.",
            gaps[learned] < gaps["VAE"],
        ),
        better(
            "3.3, of recommenders: dropout is crucial to a VAE. With it, images are more likely.",
            "VAE, dropout",
            ("VAE",),
        ),
        better(
            "3.3: SIVAE with learned rates is better than a VAE, with and without dropout.",
            learned,
            ("VAE", "VAE, dropout"),
        ),
        better(
            "3.3: hard masks are better than Concrete and Gaussian noise.",
            learned,
            ("SIVAE, concrete", "SIVAE, gaussian"),
        ),
        Claim(
            "Rates are learned: pixels that carry ink are dropped less than half as often as at the start.",
            f"mean rate of pixels with ink in more than {100 * _INKED:g} % of images: {rate:.3f}, from "
            f"{config.p:g}.",
            rate < config.p / 2,
        ),
    )


def draw(outcome: Outcome) -> Any:
    """Images and reconstructions, learned rates, and log p(x) with its bound."""
    arrays = outcome.arrays
    figure = new_figure(11.5, 5.2)
    grid = figure.add_gridspec(2, 5, width_ratios=[3.4, 1, 1, 1, 0.08])
    ax = figure.add_subplot(grid[:, 0])
    lines = [np.asarray(arrays["images"]), *(np.asarray(arrays[f"reconstructed {m}"]) for m in METHODS)]
    sheet = np.concatenate([np.concatenate(list(line), axis=1) for line in lines], axis=0)
    ax.imshow(sheet, cmap="gray_r", vmin=0, vmax=1)
    ax.set_yticks([28 * (place + 0.5) for place in range(len(lines))], ["images", *METHODS])
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.set_title("test images, and what comes back")
    for place, method in enumerate(METHODS[2:]):
        panel = figure.add_subplot(grid[0, place + 1])
        shade = panel.imshow(np.asarray(arrays[f"rates {method}"]), cmap="viridis", vmin=0, vmax=1)
        panel.set_title(method.replace("SIVAE, ", "rates, "))
        panel.set_xticks([])
        panel.set_yticks([])
    figure.colorbar(shade, cax=figure.add_subplot(grid[0, 4]))
    ax = figure.add_subplot(grid[1, 1:])
    for what, label, marker, shift in (("likelihood", "log p(x)", "o", -0.15), ("bound", "bound", "s", 0.15)):
        values = {method: np.asarray(arrays[f"{what} {method}"], dtype=float) for method in METHODS}
        colors = [f"C{place}" for place in range(len(METHODS))]
        plot_estimates(ax, values, color=colors, marker=marker, shift=shift, label=label)
    finish_axes(ax, legend="lower left", xlabel="nats an image, each seed (higher is better)")
    figure.suptitle("Autoencoders of binarised MNIST")
    return figure
