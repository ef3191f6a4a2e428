"""The names of the methods, and what tables and images have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bayesdrop.fit import fit
from bayesdrop.inject import Injection, inject
from bayesdrop.likelihoods import Likelihood

__all__ = ["METHODS", "Clock", "injections", "plain_loss", "seeded_network", "trained"]

#: in the order of tables and pictures; the first six share one trained network
METHODS = (
    "bare",
    "temperature",
    "injected",
    "injected everywhere",
    "injected, no labels",
    "last-layer Laplace",
    "dropout, trained",
    "mean-field VI",
    "ensemble",
)
#: rates that are tried before every map: few, as every draw is a pass of the whole network there
_FEW_RATES = (0.005, 0.02, 0.05, 0.1, 0.2)


class Clock:
    """CPU seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Add the time of the block to a name."""
        start = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start


def plain_loss(likelihood: Likelihood) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """The mean negative log-likelihood of a network without noise."""
    return lambda model, x, y: -likelihood.log_prob(model(x), y).mean()


def seeded_network(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A network whose first weights follow the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def trained(net: nn.Module, data: tuple[Tensor, Tensor], objective: Any, seed: int, **options: Any) -> Any:
    """Train a network in place; returns it in eval mode."""
    fit(net, data, objective, seed=seed, scheduler="cosine", progress=False, **options)
    return net.eval()


_Way = Literal["injected", "injected everywhere", "injected, no labels"]


def injections(
    net: nn.Module,
    held_out: tuple[Tensor, Tensor],
    likelihood: Likelihood,
    num_draws: int,
    clock: Clock,
) -> dict[str, Injection]:
    """The network injected in three ways; each takes CPU time under its name."""
    few = min(30, num_draws)
    ways: dict[_Way, Callable[[], Injection]] = {
        "injected": lambda: inject(net, held_out, likelihood=likelihood, num_draws=num_draws),
        "injected everywhere": lambda: inject(
            net, (held_out[0][:500], held_out[1][:500]), likelihood=likelihood, where="every layer",
            rates=_FEW_RATES, scales=(1.0,), num_draws=few, tolerance=0.05,
        ),
        "injected, no labels": lambda: inject(
            net, held_out[0], likelihood=likelihood, target="information", num_draws=num_draws
        ),
    }  # fmt: skip
    found: dict[str, Injection] = {}
    for name, make in ways.items():
        with clock.of(f"train {name}"):
            found[name] = make()
    return found
