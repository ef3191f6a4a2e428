"""The function that an attack increases, and its gradient in the inputs: of the mean weights or of draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from bayesdrop.errors import (
    NoRandomness,
    is_one_of,
    must,
    must_be_finite,
    must_be_module,
    must_be_tensor,
    whole_number,
    whole_seed,
)
from bayesdrop.likelihoods import Likelihood, SoftmaxLikelihood
from bayesdrop.trace import FunctionDraw, evaluating

__all__ = ["Climb", "Goal", "Through", "checked_climb", "loss_gradient"]

Through = Literal["mean", "draws"]
Goal = Literal["wrong", "sure"]


class Climb:
    """The function of the inputs that an attack increases.

    Args:
        owner: the attack that errors name.
        model: any module.
        likelihood: what its outputs mean.
        through: "mean" or "draws".
        num_draws: functions in each step.
        seed: of the functions.
        goal: "wrong" or "sure".
    """

    def __init__(
        self,
        owner: str,
        model: nn.Module,
        likelihood: Likelihood,
        *,
        through: Through,
        num_draws: int,
        seed: int,
        goal: Goal,
    ) -> None:
        self.owner = owner
        self.model = model
        self.likelihood = likelihood
        self.through = through
        self.num_draws = num_draws
        self.seed = seed
        self.goal = goal

    def gradient(self, x: Tensor, y: Tensor, step: int = 0) -> Tensor:
        """(N, ...) gradient of the sum over rows: that of each row, as rows do not depend on each other.

        Args:
            x: (N, ...) inputs.
            y: targets.
            step: number of the step; each step uses other functions.
        """
        value: Callable[[Tensor], Tensor]
        if self.goal == "sure":
            rival = self._rival(x, y, step)

            def value(output: Tensor) -> Tensor:
                return self.likelihood.log_prob(output, rival)
        else:

            def value(output: Tensor) -> Tensor:
                return -self.likelihood.log_prob(output, y)

        total = torch.zeros_like(x)
        functions = self._functions(step)
        for function in functions:
            # A new leaf for this pass: the gradient goes to it alone, and not to parameters.
            leaf = x.detach().clone().requires_grad_()
            with function, torch.enable_grad():
                height = value(self._output(leaf)).sum()
                if not height.requires_grad:
                    want = "differentiable in its inputs"
                    raise ValueError(must(self.owner, "model", want, "an output without a gradient"))
                (slope,) = torch.autograd.grad(height, leaf)
            if isinstance(function, FunctionDraw) and not any(s.random for s in function.sites.values()):
                raise NoRandomness(
                    f"{self.owner}: `model` must contain a stochastic layer or dropout with p > 0 to be "
                    "attacked through its draws; got none. Pass through='mean'."
                )
            total += slope
        mean = total / len(functions)
        must_be_finite(self.owner, "gradient of the loss", mean)
        return mean

    def _functions(self, step: int) -> list[AbstractContextManager[object]]:
        """Contexts, in each of which the model is one of the functions of a step."""
        if self.through == "mean":
            return [evaluating(self.model)]
        indices = range(step * self.num_draws, (step + 1) * self.num_draws)
        return [FunctionDraw(self.model, seed=self.seed, index=index) for index in indices]

    def _output(self, x: Tensor) -> Tensor:
        output = self.model(x)
        must_be_tensor(self.owner, "output of the model", output, floating=True)
        checked: Tensor = output
        return checked

    @torch.no_grad()
    def _rival(self, x: Tensor, y: Tensor, step: int) -> Tensor:
        """The class other than y with the highest probability, averaged over the functions of the step."""
        assert isinstance(self.likelihood, SoftmaxLikelihood)
        total: Tensor | float = 0.0
        for function in self._functions(step):
            with function:
                total = total + self.likelihood.class_log_probs(self._output(x)).exp()
        assert isinstance(total, Tensor)
        return total.scatter(-1, y.long().unsqueeze(-1), -1.0).argmax(-1)


def checked_climb(
    owner: str,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    likelihood: Likelihood,
    *,
    through: Through,
    num_draws: int,
    seed: int,
    goal: Goal,
) -> Climb:
    """The function to increase, after a check of the arguments that all attacks have."""
    must_be_module(owner, "model", model)
    if isinstance(model, Likelihood):
        raise TypeError(must(owner, "model", "a network, not a likelihood", model))
    must_be_tensor(owner, "x", x, floating=True)
    must_be_tensor(owner, "y", y)
    if x.dim() < 2 or not x.numel():
        raise ValueError(must(owner, "x", "(N, ...), with at least one value", tuple(x.shape)))
    if y.dim() < 1 or len(y) != len(x):
        raise ValueError(must(owner, "y", f"{len(x)} rows, as `x` has", tuple(y.shape)))
    must_be_finite(owner, "x", x)
    must_be_finite(owner, "y", y)
    if not isinstance(likelihood, Likelihood):
        raise TypeError(must(owner, "likelihood", "a Likelihood, as Categorical()", likelihood))
    if not is_one_of(through, ("mean", "draws")):
        raise ValueError(must(owner, "through", "'mean' or 'draws'", through))
    if not is_one_of(goal, ("wrong", "sure")):
        raise ValueError(must(owner, "goal", "'wrong' or 'sure'", goal))
    if goal == "sure" and (not isinstance(likelihood, SoftmaxLikelihood) or y.is_floating_point()):
        want = "'wrong' unless the likelihood is Categorical() and `y` are labels"
        raise ValueError(must(owner, "goal", want, goal))
    num_draws = whole_number(owner, "num_draws", num_draws, at_least=1, at_most=10**6)
    seed = whole_seed(owner, seed)
    return Climb(owner, model, likelihood, through=through, num_draws=num_draws, seed=seed, goal=goal)


@contextmanager
def outside_inference() -> Iterator[None]:
    """A context in which gradients are enabled, whatever the caller has disabled."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def loss_gradient(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    likelihood: Likelihood,
    *,
    through: Through = "mean",
    num_draws: int = 10,
    seed: int = 0,
    goal: Goal = "wrong",
) -> Tensor:
    """The gradient, in the inputs, of the function that an attack increases.

        through="mean":    g_n = d/dx_n  L(f(x_n), y_n)                  f has averaged weights, as in eval()
        through="draws":   g_n = (1/T) sum_t d/dx_n  L(f_t(x_n), y_n)    f_t: functions 0 to T - 1 of `seed`

    goal="wrong": L = -log p(y_n | f). goal="sure": L = log p(k_n | f), k_n being the most probable class
    other than y_n by the probabilities averaged over the functions: the attack makes the model sure of it.

    Nothing is changed: training flags, `.grad` of parameters, BatchNorm, torch's random state.

    Args:
        model: any module; for "draws" one with something random in it.
        x: (N, ...) inputs.
        y: targets, as the likelihood takes them.
        likelihood: what the outputs mean.
        through: the network that the attacker knows: "mean" or "draws".
        num_draws: T.
        seed: of the functions.
        goal: "wrong" or "sure".

    Returns: the shape of `x`.

    >>> net = nn.Linear(2, 1)
    >>> _ = nn.init.ones_(net.weight), nn.init.zeros_(net.bias)
    >>> from bayesdrop import Gaussian
    >>> loss_gradient(net, torch.zeros(1, 2), torch.ones(1, 1), Gaussian(1.0))
    tensor([[-1., -1.]])
    """
    climb = checked_climb(
        "attacks.loss_gradient",
        model,
        x,
        y,
        likelihood,
        through=through,
        num_draws=num_draws,
        seed=seed,
        goal=goal,
    )
    with outside_inference():
        return climb.gradient(x.detach().clone(), y)
