"""Mixture: the networks that a table was fitted with, as one predictive distribution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    WarpedGaussian,
)
from bayesdrop.predict import Prediction
from bayesdrop.stacked.encode import Array, Encoder, Seen
from bayesdrop.stacked.heads import expected
from bayesdrop.stacked.job import Trained
from bayesdrop.stacked.scores import draw_outputs, mean_weight_outputs
from bayesdrop.stacked.start import Start
from bayesdrop.stacked.table import TargetScale

__all__ = ["Component", "Mixture", "gamma_quantiles"]


@dataclass(frozen=True, eq=False)
class Component:
    """A network, the name of its encoder, and the places of the rows that it held out, if it did so."""

    network: Trained
    encoder: str
    held: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Mixture:
    """Networks of a table, each a dropout posterior, with equal weights; predictions in the table's units.

    Attributes:
        components: the networks.
        encoders: by their names.
        target: scale of the targets; None for classes and labels.
        num_draws: draws of all networks together.
        dof: degrees of freedom of Student's t; infinite for Gaussian noise. A t is a mixture of Gaussians
            of many scales: every draw has a noise scale of its own, at evenly spaced quantiles.
        search: what was tried: one row a candidate, with its log-likelihood on held-out rows in the target's
            units and how many of its blocks were picked.
        start: the start of the table, if any network has it among its inputs; not written to files.
        shares: (n, D) of rows that were held out: the probability of the narrowest central interval that
            holds the target. They set intervals. None where no row was held out.
    """

    components: tuple[Component, ...]
    encoders: dict[str, Encoder]
    target: TargetScale | None
    num_draws: int
    dof: float = math.inf
    search: tuple[dict[str, Any], ...] = field(default=())
    start: Start | None = None
    shares: Array | None = None

    @property
    def outputs(self) -> int:
        """How many numbers a draw has for one row: D, 2 D, or one for each class or label."""
        if self.target is not None and not isinstance(self.likelihood, Gaussian):
            return 2 * len(self.target.mean)
        return self.components[0].network.widths[-1]

    @property
    def seen(self) -> Seen:
        """The range of the columns, which is the same for all encoders."""
        return next(iter(self.encoders.values())).seen

    @property
    def noise(self) -> str:
        """The noise model of the networks."""
        return self.components[0].network.settings.noise

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood that the outputs of `draws` are parameters of."""
        if self.target is None:
            return Bernoulli() if self.noise == "labels" else Categorical()
        if not self.target.warp.is_plain:
            return WarpedGaussian(self.target.warp)
        level = self.components[0].network.log_noise_std
        if len(self.components) > 1 or level is None or math.isfinite(self.dof):
            return HeteroscedasticGaussian()
        return Gaussian(level.exp().double() * torch.from_numpy(self.target.scale))

    def blocks(
        self, x: Array, num_draws: int | None = None, seed: int = 0, block: int | None = None
    ) -> Iterator[Tensor]:
        """Outputs of the draws in the target's units, some draws at a time: (draws, N, outputs).

        Args:
            x: (N, K) columns as those of the table.
            num_draws: T of all networks together.
            seed: of the draws.
            block: rows that are multiplied at a time, see `bayesdrop.blocks`; N if None.
        """
        total = self.num_draws if num_draws is None else num_draws
        counts = self.counts(total)
        inputs = {name: encoder(x) for name, encoder in self.encoders.items()}
        scales = self.log_scales(total, seed)
        done = 0
        for place, (component, count) in enumerate(zip(self.components, counts, strict=True)):
            for output in draw_outputs(
                component.network,
                inputs[component.encoder],
                num_draws=count,
                seed=self.seed_of(place, seed),
                block=block,
            ):
                value = self.in_units(output, component.network.log_variance)
                if scales is not None:
                    value[..., value.shape[-1] // 2 :] += scales[done : done + len(output)].unsqueeze(1)
                done += len(output)
                yield value

    def in_units(self, output: Tensor, log_variance: Tensor | None) -> Tensor:
        """Outputs of a network in the target's units, as `likelihood` reads them, in double precision.

        Args:
            output: (..., outputs).
            log_variance: of the noise, for networks that have one noise for all rows; else None.
        """
        value = output.to(torch.float64)
        if self.target is None:
            return value
        if isinstance(self.likelihood, Gaussian):
            return self.target.outputs(value, heteroscedastic=False)
        if log_variance is not None:
            value = torch.cat([value, log_variance.double().expand_as(value)], -1)
        return self.target.outputs(value, heteroscedastic=True)

    def log_scales(self, total: int, seed: int) -> Tensor | None:
        """(T, D) log of the squared noise scale of every draw, for Student's t; None for a Gaussian."""
        if math.isinf(self.dof) or self.target is None:
            return None
        quantiles = -gamma_quantiles(self.dof / 2, total).log() + math.log(self.dof / 2)
        generator = torch.Generator().manual_seed(seed)
        columns = [quantiles[torch.randperm(total, generator=generator)] for _ in self.target.mean]
        return torch.stack(columns, 1)

    @staticmethod
    def seed_of(place: int, seed: int = 0) -> int:
        """The seed of a network's draws, so that every network has functions of its own."""
        return seed + 7919 * place

    def counts(self, total: int) -> list[int]:
        """Draws of every network: equal but for a remainder, which goes to the first ones."""
        size = len(self.components)
        return [total // size + (place < total % size) for place in range(size)]

    @torch.no_grad()
    def draws(
        self, x: Array, num_draws: int | None = None, seed: int = 0, block: int | None = None
    ) -> Tensor:
        """(T, N, outputs) in the target's units, in double precision; arguments as of `blocks`."""
        return torch.cat(list(self.blocks(x, num_draws, seed, block)))

    def predict(
        self, x: Array, num_draws: int | None = None, seed: int = 0, block: int | None = None
    ) -> Prediction:
        """The predictive distribution of rows, draws kept.

        Args:
            x: (N, K) columns as those of the table.
            num_draws: T of all networks together.
            seed: of the draws.
            block: rows that are multiplied at a time, see `bayesdrop.blocks`; N if None.
        """
        return Prediction.from_draws(self.draws(x, num_draws, seed, block), self.likelihood)

    @torch.no_grad()
    def log_prob(self, x: Array, y: NDArray[Any], num_draws: int | None = None, seed: int = 0) -> Tensor:
        """(N,) log density of each row's targets, or log-probability of its labels; draws are not kept."""
        likelihood, targets = self.likelihood, torch.from_numpy(np.ascontiguousarray(y))
        parts, count = [], 0
        for outputs in self.blocks(x, num_draws, seed):
            scores = torch.stack([likelihood.log_prob(output, targets) for output in outputs])
            # All labels of a row together.
            parts.append((scores.sum(-1) if self.noise == "labels" else scores).logsumexp(0))
            count += len(outputs)
        return torch.stack(parts).logsumexp(0) - math.log(count)

    @torch.no_grad()
    def mean_weights(self, x: Array) -> Tensor:
        """(N, D) means, or probabilities, of networks with mean weights: "weight averaging", no draws.

        Args:
            x: (N, K) columns as those of the table.
        """
        inputs = {name: encoder(x) for name, encoder in self.encoders.items()}
        means = []
        for component in self.components:
            output = mean_weight_outputs(component.network, inputs[component.encoder]).double()
            if self.target is None:
                means.append(expected(output, self.noise, output.shape[-1]))
            else:
                means.append(
                    self.likelihood.moments(self.in_units(output, component.network.log_variance))[0]
                )
        return torch.stack(means).mean(0)

    def rates(self) -> list[list[float]]:
        """Mean drop rate of every layer of every network."""
        return [[float(p.mean()) for p in one.network.p] for one in self.components]


def gamma_quantiles(shape: float, count: int) -> Tensor:
    """Quantiles of Gamma(shape, 1) at (i + 1/2) / count, by bisection. Shape (count,), double precision."""
    levels = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    a = torch.tensor(shape, dtype=torch.float64)
    low = torch.zeros(count, dtype=torch.float64)
    high = torch.full((count,), shape + 20 * math.sqrt(shape) + 40, dtype=torch.float64)
    for _ in range(80):
        middle = 0.5 * (low + high)
        below = torch.special.gammainc(a, middle) < levels
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return 0.5 * (low + high)
