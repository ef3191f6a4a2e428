"""Train a dropout network on the early Mauna Loa record, predict the rest, and score both readings of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdrop.data import CO2Series, load_co2
from bayesdrop.errors import must, whole_number
from bayesdrop.fit import fit
from bayesdrop.likelihoods import Gaussian
from bayesdrop.metrics import interval_coverage, mean_log_likelihood, rmse
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import Prediction, predict
from bayesdrop.trace import evaluating

__all__ = ["DemoConfig", "DemoResult", "DemoSplit", "Score", "run_demo"]


@dataclass(frozen=True)
class DemoConfig:
    """All that the demo's numbers depend on.

    Depth, width, p and epochs come from a backtest on the record before 1985: trained to 1972, 1975 and 1978,
    scored by the log-likelihood, in equal parts, of held-out months before that year and of all months from
    there to 1985. The months after 1985 are no blind test: see docs/demo.md.

    Attributes:
        seed: of the held-out months, the weights, the training noise and the draws.
        num_draws: T, sampled functions.
        train_until: months before this decimal year are for training.
        test_until: months from there on, to this year, are the extrapolation.
        held_out: share of the training months that is held out, at random, to score interpolation.
        depth: hidden layers.
        width: units in each.
        p: chance of dropping a hidden unit. The inputs are not dropped.
        epochs: passes over the training months.
        batch_size: months of a step.
        lr: learning rate at the start; it falls to 0 along a cosine.
        plot_from: the first decimal year in the picture.
        plot_until: the last.
    """

    seed: int = 0
    num_draws: int = 100
    train_until: float = 1985.0
    test_until: float = 2002.0
    held_out: float = 0.1
    depth: int = 3
    width: int = 128
    p: float = 0.2
    epochs: int = 150
    batch_size: int = 32
    lr: float = 1e-3
    plot_from: float = 1972.0
    plot_until: float = 2005.0

    def __post_init__(self) -> None:
        counts = {"depth": 1, "width": 1, "epochs": 1, "batch_size": 1, "num_draws": 2, "seed": 0}
        for name, least in counts.items():
            whole_number("DemoConfig", name, getattr(self, name), at_least=least)
        for name in ("held_out", "p"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(must("DemoConfig", name, "in (0, 1)", getattr(self, name)))
        # Both sides need months: the record runs from March 1958 to December 2001.
        if not 1959 <= self.train_until < min(self.test_until, 2001.9):
            years = (self.train_until, self.test_until)
            want = "decimal years from 1959 to 2001.9, in order"
            raise ValueError(must("DemoConfig", "train_until, test_until", want, years))
        if not self.plot_from < self.train_until < self.plot_until:
            years = (self.plot_from, self.plot_until)
            raise ValueError(
                must("DemoConfig", "plot_from, plot_until", "before and after `train_until`", years)
            )


@dataclass(frozen=True, eq=False)
class DemoSplit:
    """The record in three: trained on, held out among those, and after them."""

    train: CO2Series
    interpolation: CO2Series
    extrapolation: CO2Series


@dataclass(frozen=True)
class Score:
    """How one reading of the network did on one set of months."""

    months: str  #: "interpolation" or "extrapolation"
    method: str  #: "MC dropout" or "standard dropout"
    rmse: float  #: ppm
    log_likelihood: float  #: nats per month
    coverage: float  #: share of the months in the central 95 % interval


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What the demo measured, and what its picture shows."""

    config: DemoConfig
    split: DemoSplit
    grid: Tensor  #: (N, 1) decimal years of the two predictions
    mc: Prediction  #: on the grid
    standard: Prediction  #: on the grid; one function, so its epistemic variance is 0
    scores: tuple[Score, ...]
    noise_std: float  #: ppm, set in training
    train_seconds: float

    def score(self, months: str, method: str) -> Score:
        """The one score of these months and this method."""
        return next(s for s in self.scores if (s.months, s.method) == (months, method))


class Calendar(nn.Module):
    """Decimal years to five inputs: standardised time, and the season as two harmonics of a year.

    Args:
        x: (N, 1) training years, which set mean and standard deviation.

    Shape: (N, 1) -> (N, 5).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", x.mean())
        self.register_buffer("std", x.std())

    def forward(self, x: Tensor) -> Tensor:
        """The five inputs."""
        # The whole years are taken off first: a float32 of 2000 has few digits left for the angle.
        angle = 2 * math.pi * (x - x.floor())
        season = [function(k * angle) for k in (1, 2) for function in (torch.sin, torch.cos)]
        return torch.cat([(x - self.mean) / self.std, *season], dim=-1)


class Rescale(nn.Module):
    """Standardised outputs back to the units of the targets.

    Args:
        y: (N, 1) training targets, which set mean and standard deviation.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, y: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", y.mean())
        self.register_buffer("std", y.std())

    def forward(self, output: Tensor) -> Tensor:
        """mean + std * output."""
        return self.mean + self.std * output


def run_demo(config: DemoConfig | None = None, *, progress: bool | None = None) -> DemoResult:
    """Train one dropout network, predict with it in two ways, and score both.

    MC dropout: `num_draws` functions, their spread and the noise. Standard dropout: the same network with
    dropout switched off, one function and the same noise.

    Args:
        config: all settings; the defaults are the demo.
        progress: show a bar while training; None shows it on a terminal.
    """
    config = DemoConfig() if config is None else config
    with _one_thread(), torch.random.fork_rng(devices=[]):
        return _run(config, split_record(load_co2(), config), progress)


def _run(config: DemoConfig, split: DemoSplit, progress: bool | None) -> DemoResult:
    train = split.train
    torch.manual_seed(config.seed)
    hidden = mlp(5, [config.width] * config.depth, 1, p=config.p, input_p=0)
    model = nn.Sequential(Calendar(train.x), *hidden, Rescale(train.y))
    likelihood = Gaussian(noise="map")
    start = time.perf_counter()
    fit(
        model,
        (train.x, train.y),
        NegativeELBO(likelihood, num_data=len(train)),
        epochs=config.epochs,
        batch_size=config.batch_size,
        lr=config.lr,
        scheduler="cosine",
        seed=config.seed,
        progress=progress,
    )
    seconds = time.perf_counter() - start

    def mc(x: Tensor) -> Prediction:
        return predict(
            model, x, num_draws=config.num_draws, seed=config.seed, likelihood=likelihood, keep_draws=True
        )

    def standard(x: Tensor) -> Prediction:
        with torch.no_grad(), evaluating(model):
            output: Tensor = model(x)
        # The one function stands for every draw: its spread is exactly 0.
        return Prediction.from_draws(torch.stack([output, output]), likelihood)

    scores = []
    for months, data in (("interpolation", split.interpolation), ("extrapolation", split.extrapolation)):
        scores.append(_score(months, "MC dropout", mc(data.x), data.y))
        scores.append(_score(months, "standard dropout", standard(data.x), data.y))
    # 24 points a year draw the season without corners.
    first, last = round(24 * config.plot_from), round(24 * config.plot_until)
    grid = torch.arange(first, last + 1).reshape(-1, 1).to(train.x) / 24
    return DemoResult(
        config=config,
        split=split,
        grid=grid,
        mc=mc(grid),
        standard=standard(grid),
        scores=tuple(scores),
        noise_std=float(likelihood.noise_std.detach()),
        train_seconds=seconds,
    )


def _score(months: str, method: str, prediction: Prediction, y: Tensor) -> Score:
    return Score(
        months=months,
        method=method,
        rmse=float(rmse(prediction, y)),
        log_likelihood=float(mean_log_likelihood(prediction, y)),
        coverage=float(interval_coverage(prediction, y, level=0.95)),
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread: matrices this small are slower with more, and sums do not depend on the number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def split_record(record: CO2Series, config: DemoConfig) -> DemoSplit:
    """The early months, less a random share of them; that share; and the months after."""
    early = record.between(-math.inf, config.train_until)
    generator = torch.Generator().manual_seed(config.seed)
    order = torch.randperm(len(early), generator=generator)
    count = max(1, round(config.held_out * len(early)))
    held_out, kept = order[:count].sort().values, order[count:].sort().values
    return DemoSplit(
        train=CO2Series(early.x[kept], early.y[kept]),
        interpolation=CO2Series(early.x[held_out], early.y[held_out]),
        extrapolation=record.between(config.train_until, config.test_until),
    )
