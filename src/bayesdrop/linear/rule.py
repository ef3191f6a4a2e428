"""The rule of Bayesian dropout for any model: log-likelihoods are averaged over perturbed parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import torch
from torch import Generator, Tensor

from bayesdrop.errors import must, real_numbers, whole_number, whole_seed

__all__ = ["DropPerturbation", "dropout_log_posterior"]

Parameters = Tensor | Mapping[str, Tensor]
MOST_ENUMERATED = 20


class DropPerturbation:
    """Each coordinate of the parameters is zero with chance f, independently: Eq. 12.

    Args:
        f: chance of dropping, in [0, 1): a number, or a tensor that broadcasts to the parameter. For
            a mapping of parameters, a mapping from names to rates; parameters without a rate are never
            dropped.

    >>> chances, perturbed = DropPerturbation(0.25).enumerate(torch.tensor([1.0, 2.0]))
    >>> perturbed.tolist(), chances.tolist()
    ([[0.0, 0.0], [0.0, 2.0], [1.0, 0.0], [1.0, 2.0]], [0.0625, 0.1875, 0.1875, 0.5625])
    """

    def __init__(self, f: float | Tensor | Mapping[str, float | Tensor]) -> None:
        named = f if isinstance(f, Mapping) else {"f": f}
        if not named:
            raise ValueError(must("DropPerturbation", "f", "rates of one name or more", f))
        for name, rate in named.items():
            rates = real_numbers("DropPerturbation", name, rate, "in [0, 1)")
            if not bool(((rates >= 0) & (rates < 1)).all()):
                raise ValueError(must("DropPerturbation", name, "in [0, 1)", rate))
        self.f = f

    def _rates(self, theta: Parameters) -> dict[str, Tensor]:
        """From names to rates of the shapes of the parameters; a single tensor has the name ""."""
        if isinstance(theta, Tensor):
            if isinstance(self.f, Mapping):
                raise TypeError(must("DropPerturbation", "theta", "a mapping, as f is", theta))
            named: Mapping[str, Any] = {"": self.f}
            values: Mapping[str, Tensor] = {"": theta}
        else:
            named = self.f if isinstance(self.f, Mapping) else dict.fromkeys(theta, self.f)
            values = theta
            missing = sorted(set(named) - set(values))
            if missing:
                raise ValueError(must("DropPerturbation", "f", f"rates of {sorted(values)}", missing))
        return {
            name: torch.as_tensor(rate, dtype=values[name].dtype, device=values[name].device).expand(
                values[name].shape
            )
            for name, rate in named.items()
        }

    @staticmethod
    def _masked(theta: Parameters, masks: Mapping[str, Tensor]) -> Any:
        if isinstance(theta, Tensor):
            return theta * masks[""]
        some = next(iter(masks.values()))
        return {
            name: value * masks[name] if name in masks else value.expand(some.shape[0], *value.shape)
            for name, value in theta.items()
        }

    def enumerate(self, theta: Parameters) -> tuple[Tensor, Any]:
        """Chances (S,) of all S masks, and the parameters under each, with a first axis of length S."""
        rates = self._rates(theta)
        size = sum(rate.numel() for rate in rates.values())
        if size > MOST_ENUMERATED:
            hint = "Give `num_draws` for Monte Carlo."
            requirement = f"of at most {MOST_ENUMERATED} dropped coordinates to enumerate"
            raise ValueError(must("dropout_log_posterior", "theta", requirement, size, hint))
        flat = torch.cat([rate.reshape(-1) for rate in rates.values()])
        keep = torch.tensor(list(product((0.0, 1.0), repeat=size)), dtype=flat.dtype, device=flat.device)
        chances = torch.where(keep > 0, 1 - flat, flat).prod(1)
        return chances, self._masked(theta, self._split(keep, rates))

    def sample(self, theta: Parameters, num_draws: int, generator: Generator) -> Any:
        """The parameters under `num_draws` independent masks, on a first axis."""
        rates = self._rates(theta)
        flat = torch.cat([rate.reshape(-1) for rate in rates.values()])
        uniform = torch.rand(num_draws, len(flat), generator=generator, dtype=torch.float64)
        keep = (uniform.to(flat) >= flat).to(flat)
        return self._masked(theta, self._split(keep, rates))

    @staticmethod
    def _split(keep: Tensor, rates: Mapping[str, Tensor]) -> dict[str, Tensor]:
        parts = torch.split(keep, [rate.numel() for rate in rates.values()], dim=1)
        named = zip(rates.items(), parts, strict=True)
        return {name: part.reshape(-1, *rate.shape) for (name, rate), part in named}


def dropout_log_posterior(
    log_prior: Callable[[Any], Tensor],
    log_likelihood: Callable[[Any], Tensor],
    perturb: DropPerturbation | Callable[[Any, Generator], Any],
    *,
    num_draws: int | None = None,
    seed: int = 0,
) -> Callable[[Any], Tensor]:
    """The log posterior of Bayesian dropout for any model, up to a constant: the target of a sampler.

        log p(theta) = log q(theta) + E log q(x | theta~) + constant,      theta~ ~ q(theta~ | theta)

    The perturbation is not inferred from data, which is why the logarithm is inside the expectation. In the
    paper each observation has its own perturbation, which makes no difference for the expectation of a sum.

    Args:
        log_prior: theta -> log q(theta), shape (). Theta is a tensor, or a mapping of tensors.
        log_likelihood: theta~ -> log q(x | theta~) of all data, shape (). Run under `torch.func.vmap`.
        perturb: a `DropPerturbation`, or a function (theta, generator) -> theta~ for Monte Carlo.
        num_draws: how many perturbations to average over; None sums over all masks of a `DropPerturbation`.
        seed: of the draws. Every call uses the same ones (common random numbers), so that the function is
            deterministic and its gradient is exact.

    Returns: theta -> log p(theta) + constant, differentiable.
    Reference: Herlau, Morup & Schmidt (2022), "Bayesian Dropout", Eq. 10.

    >>> log_posterior = dropout_log_posterior(
    ...     lambda w: -0.5 * w.square().sum(), lambda w: -0.5 * (1.0 - w.sum()) ** 2, DropPerturbation(0.5)
    ... )
    >>> log_posterior(torch.tensor([1.0]))
    tensor(-0.7500)
    """
    owner = "dropout_log_posterior"
    if num_draws is not None:
        num_draws = whole_number(owner, "num_draws", num_draws, at_least=1, hint="None enumerates all masks.")
    seed = whole_seed(owner, seed)
    for name, function in (("log_prior", log_prior), ("log_likelihood", log_likelihood)):
        if not callable(function):
            raise TypeError(must(owner, name, "a function of the parameters", function))
    if not isinstance(perturb, DropPerturbation):
        if not callable(perturb):
            raise TypeError(must(owner, "perturb", "a DropPerturbation or a function", perturb))
        if num_draws is None:
            hint = "Only a DropPerturbation can be enumerated."
            raise ValueError(must(owner, "num_draws", "a positive int for a function", num_draws, hint))

    def perturbed(theta: Any) -> tuple[Tensor | None, Any]:
        if num_draws is None:
            assert isinstance(perturb, DropPerturbation)
            return perturb.enumerate(theta)
        generator = Generator().manual_seed(seed)
        if isinstance(perturb, DropPerturbation):
            return None, perturb.sample(theta, num_draws, generator)
        return None, _stacked([perturb(theta, generator) for _ in range(num_draws)])

    def log_posterior(theta: Any) -> Tensor:
        chances, several = perturbed(theta)
        values: Tensor = torch.func.vmap(log_likelihood)(several)
        if values.dim() != 1:
            raise ValueError(must(owner, "log_likelihood", "of shape ()", f"shape {tuple(values.shape[1:])}"))
        expected = values.mean() if chances is None else (chances * values).sum()
        return log_prior(theta) + expected

    return log_posterior


def _stacked(draws: list[Any]) -> Any:
    if isinstance(draws[0], Mapping):
        return {name: torch.stack([draw[name] for draw in draws]) for name in draws[0]}
    return torch.stack(draws)
