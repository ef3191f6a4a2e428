"""The negative evidence lower bound."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bayesdrop.errors import must, must_be_module, must_be_tensor, whole_number
from bayesdrop.functional.arm import Estimator, check_passes
from bayesdrop.inputs import Inputs, call
from bayesdrop.layers.base import StochasticLayer, positive_scale, total_kl
from bayesdrop.likelihoods import Gaussian, Likelihood
from bayesdrop.objectives.arm import arm_loss, learns_masks
from bayesdrop.trace import FunctionDraw, evaluating

__all__ = ["ElboTerms", "NegativeELBO"]


class ElboTerms(NamedTuple):
    """The parts of the bound, in nats per data point."""

    nll: Tensor  #: () mean over the batch of -log p(y | f(x))
    kl: Tensor  #: () KL(q || prior) / num_data

    @property
    def loss(self) -> Tensor:
        """What training minimises: nll + kl."""
        return self.nll + self.kl


class NegativeELBO(nn.Module):
    """Negative evidence lower bound, in nats per data point.

        loss = -(1/M) sum_batch log p(y_i | f(x_i)) + KL(q || prior) / N

    The losses in the papers are multiples of it, up to constants: with a Gaussian of precision tau, half the
    squared error with weight decay is loss / tau, and the squared error 2 loss / tau; the heteroscedastic
    exp(-s) (y - m)^2 + s is 2 loss; the cross-entropy is the loss itself.

    Args:
        likelihood: what the model's output means; its own parameters (a learned noise) become parameters of
            this module.
        num_data: N, the number of rows in the whole training set. May be changed as data grow.
        length_scale: prior length scale for all layers, used instead of the layers' own.
        estimator: of the gradient in the rates of `LearnableDropout`, see `arm_loss`. Loops that call the
            objective need not know of it.
        num_passes: of that estimator.

    `objective(model, x, y)` gives `ElboTerms`. Targets (N, ...); values of a row are summed.
    Reference: Gal & Ghahramani (2016), Eq. 4; Gal, Hron & Kendall (2017), Eq. 1.

    >>> from bayesdrop import BernoulliDropout
    >>> model = nn.Sequential(BernoulliDropout(nn.Linear(2, 1), p=0.5))
    >>> terms = NegativeELBO(Gaussian(1.0), num_data=10)(model, torch.ones(4, 2), torch.ones(4, 1))
    >>> terms.loss.shape
    torch.Size([])
    """

    def __init__(
        self,
        likelihood: Likelihood,
        *,
        num_data: int,
        length_scale: float | None = None,
        estimator: Estimator = "disarm",
        num_passes: int | None = None,
    ) -> None:
        super().__init__()
        # Checked here too: nn.Module.__setattr__ would register a module before the property could refuse it.
        num_data = _checked_num_data(num_data)
        if not isinstance(likelihood, Likelihood):
            raise TypeError(must("NegativeELBO", "likelihood", "a Likelihood, as Gaussian()", likelihood))
        if length_scale is not None:
            length_scale = positive_scale("NegativeELBO", "length_scale", length_scale)
        self.likelihood = likelihood
        self.length_scale = length_scale
        self.num_data = num_data
        self.estimator: Estimator = estimator
        self.num_passes = check_passes("NegativeELBO", estimator, num_passes)

    @property
    def num_data(self) -> int:
        """N, the number of rows in the whole training set."""
        return self._num_data

    @num_data.setter
    def num_data(self, value: int) -> None:
        self._num_data = _checked_num_data(value)

    def extra_repr(self) -> str:
        """The size of the data, for `print`."""
        return f"num_data={self.num_data}, length_scale={self.length_scale}"

    def forward(self, model: nn.Module, x: Inputs, y: Tensor) -> ElboTerms:
        """The two terms for one batch, with the noise of the model's mode."""
        must_be_module("NegativeELBO", "model", model)
        must_be_tensor("NegativeELBO", "y", y)
        if not any(isinstance(layer, StochasticLayer) for layer in model.modules()):
            hint = "Wrap its weight layers, as BernoulliDropout(nn.Linear(3, 2), p=0.1)."
            raise ValueError(must("NegativeELBO", "model", "a model with stochastic layers", model, hint))

        def nll_per_row(network: nn.Module) -> Tensor:
            log_prob = self.likelihood.log_prob(call(network, x), y)
            return -(log_prob.flatten(1).sum(1) if log_prob.dim() > 1 else log_prob)

        if learns_masks(model):
            nll = arm_loss(model, nll_per_row, estimator=self.estimator, num_passes=self.num_passes)
        else:
            nll = nll_per_row(model).mean()
        return ElboTerms(nll, total_kl(model, self.length_scale) / self.num_data)

    @property
    def has_m_step(self) -> bool:
        """Whether the noise is set in closed form by `m_step`."""
        return isinstance(self.likelihood, Gaussian) and self.likelihood.noise == "map"

    @torch.no_grad()
    def m_step(
        self, model: nn.Module, batches: Iterable[tuple[Inputs, Tensor]], *, num_draws: int = 1, seed: int = 0
    ) -> None:
        """Set a "map" noise to the mode of its posterior, with E_q (y - f)^2 averaged over draws.

        Args:
            model: in any mode; its flags and statistics are left as they are.
            batches: (x, y) pairs that cover the training set once.
            num_draws: functions drawn for the expectation.
            seed: of those draws.

        Reference: Gal, Hron & Kendall (2017), appendix D.
        """
        if not self.has_m_step or not isinstance(self.likelihood, Gaussian):
            raise ValueError(
                must("NegativeELBO.m_step", "likelihood", "Gaussian(noise='map')", self.likelihood)
            )
        noise = self.likelihood.log_noise_std
        error = torch.zeros_like(noise, dtype=torch.float64)
        count = 0
        with evaluating(model):
            draws = [FunctionDraw(model, seed=seed, index=index) for index in range(num_draws)]
            for x, y in batches:
                for draw in draws:
                    with draw:
                        square = (y - call(model, x)).square().to(torch.float64)
                    error += square.reshape(-1, noise.shape[0]).sum(0) if noise.dim() else square.sum()
                count += y.numel() // (noise.shape[0] if noise.dim() else 1)
        self.likelihood.m_step((error / num_draws).to(noise.dtype), count)


def _checked_num_data(value: int) -> int:
    hint = "Pass len(train_set), not the batch size."
    return whole_number("NegativeELBO", "num_data", value, at_least=1, hint=hint)
