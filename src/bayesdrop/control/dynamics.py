"""DynamicsModel: a network with dropout that predicts the next state of a world, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop.control.features import StateFeatures, scale_of
from bayesdrop.control.transitions import Transitions
from bayesdrop.errors import is_one_of, must, real_number, whole_number
from bayesdrop.fit import History, fit
from bayesdrop.layers import BernoulliDropout, ConcreteDropout, set_rates
from bayesdrop.likelihoods import HeteroscedasticGaussian
from bayesdrop.models import mlp
from bayesdrop.objectives import NegativeELBO

__all__ = ["DynamicsModel", "fit_dynamics"]

Dropout = Literal["concrete", "fixed"]


class DynamicsModel(nn.Module):
    """From a state and an action to the distribution of the change of the state.

        s' - s ~ N(c m(s, a), c^2 exp(v(s, a))),        c the fixed output scale
        v = low + softplus(o - low)

    m and o come from a network with dropout before every weight layer: a draw is one way in which the world
    may move. Concrete dropout learns the rates, which fall as data come in; fixed rates stay as they are
    unless `set_p` changes them.

    Args:
        state_size: S.
        action_size: A.
        angles: places of the parts of the state that are angles; the network sees their sine and cosine.
        state_scale: typical size of every feature of the state, see `StateFeatures`.
        action_scale: typical size of every action.
        output_scale: typical size of the changes of the state, one for each part.
        hidden: widths of the hidden layers.
        dropout: "concrete" (rates start at p and are learned) or "fixed".
        p: chance of dropping.
        input_p: chance of dropping inputs; as `p` if None, 0 for none.
        length_scale: of the weights' prior.
        temperature: of Concrete dropout, whose masks are hard and have the gradient of relaxed ones.
        least_log_variance: low, the lower bound of v, in units of the output scale.
        activation: makes the non-linearity.

    Shape: (N, S + A) -> (N, 2 S): means m, then log-variances v, as `HeteroscedasticGaussian` has them.
    Reference: Gal, Hron & Kendall (2017), section 4.5; Gal, McAllister & Rasmussen (2016).
    """

    output_scale: Tensor
    action_scale: Tensor

    def __init__(
        self,
        state_size: int,
        action_size: int,
        *,
        angles: Sequence[int] = (),
        state_scale: float | Sequence[float] | None = None,
        action_scale: float | Sequence[float] | None = None,
        output_scale: float | Sequence[float] | None = None,
        hidden: int | Sequence[int] = (200, 200),
        dropout: Dropout = "concrete",
        p: float = 0.1,
        input_p: float | None = None,
        length_scale: float = 1e-2,
        temperature: float = 0.1,
        least_log_variance: float = -4.0,
        activation: Callable[[], nn.Module] = nn.SiLU,
    ) -> None:
        super().__init__()
        owner = "DynamicsModel"
        self.action_size = whole_number(owner, "action_size", action_size, at_least=1)
        if not is_one_of(dropout, ("concrete", "fixed")):
            raise ValueError(must(owner, "dropout", "'concrete' or 'fixed'", dropout))
        self.features = StateFeatures(state_size, angles=angles, scale=state_scale)
        self.state_size = self.features.state_size
        self.register_buffer("action_scale", scale_of(owner, "action_scale", action_scale, self.action_size))
        self.register_buffer("output_scale", scale_of(owner, "output_scale", output_scale, self.state_size))
        self.least_log_variance = real_number(
            owner, "least_log_variance", least_log_variance, "a finite number"
        )
        self.dropout: Dropout = dropout
        options: dict[str, Any] = {"length_scale": length_scale, "layer": BernoulliDropout}
        if dropout == "concrete":
            options |= {"layer": ConcreteDropout, "temperature": temperature, "masks": "straight-through"}
        inputs = self.features.size + self.action_size
        self.body = mlp(
            inputs, hidden, 2 * self.state_size, p=p, input_p=input_p, activation=activation, **options
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Means and log-variances of the scaled changes, from states and actions side by side."""
        size = self.state_size + self.action_size
        if inputs.dim() != 2 or inputs.shape[1] != size:
            want = f"of shape (N, {size}): states, then actions"
            raise ValueError(must("DynamicsModel", "inputs", want, tuple(inputs.shape)))
        return self.bounded(self.body(self.network_inputs(*inputs.split_with_sizes(self._sizes, dim=1))))

    @property
    def _sizes(self) -> list[int]:
        return [self.state_size, self.action_size]

    def network_inputs(self, state: Tensor, action: Tensor) -> Tensor:
        """The inputs of `body` for states (N, S) and actions (N, A)."""
        return torch.cat((self.features(state), action / self.action_scale), dim=-1)

    def bounded(self, output: Tensor) -> Tensor:
        """The output of `body` with log-variances that stay above the least one."""
        mean, raw = output.chunk(2, dim=-1)
        low = self.least_log_variance
        return torch.cat((mean, low + F.softplus(raw - low)), dim=-1)

    def next_state(self, state: Tensor, output: Tensor, normal: Tensor | None = None) -> Tensor:
        """The next state, given the output of `forward`: its mean, or with noise around that.

        Args:
            state: (N, S).
            output: (N, 2 S); its first S columns are enough for the mean.
            normal: (N, S) of standard normal numbers; None for the mean.
        """
        mean = output.narrow(-1, 0, self.state_size)
        if normal is not None:
            log_variance = output.narrow(-1, self.state_size, self.state_size)
            mean = mean + torch.exp(0.5 * log_variance) * normal
        return torch.addcmul(state, mean, self.output_scale)

    def set_p(self, p: float, *, input_p: float | None = None) -> None:
        """Set the rates of a model with `dropout="fixed"`.

        Args:
            p: chance of dropping, of all layers.
            input_p: chance of dropping inputs; as `p` if None. It has no effect where inputs have no dropout.
        """
        if self.dropout != "fixed":
            raise ValueError(must("DynamicsModel.set_p", "dropout", "'fixed'", self.dropout))
        for argument, value in (("p", p), ("input_p", p if input_p is None else input_p)):
            real_number("DynamicsModel.set_p", argument, value, "in [0, 1)", at_least=0, below=1 - 1e-7)
        for place, layer in enumerate(self.body):
            if isinstance(layer, BernoulliDropout):
                set_rates(layer, p if place or input_p is None else input_p)

    def data(self, transitions: Transitions) -> tuple[Tensor, Tensor]:
        """Inputs (N, S + A) and scaled changes (N, S) to train on."""
        sizes = (transitions.states.shape[1], transitions.actions.shape[1])
        if sizes != (self.state_size, self.action_size):
            want = f"of {self.state_size} state parts and {self.action_size} actions, as the model"
            raise ValueError(must("DynamicsModel", "transitions", want, sizes))
        inputs = torch.cat((transitions.states, transitions.actions), dim=1)
        return inputs, (transitions.next_states - transitions.states) / self.output_scale


def fit_dynamics(
    model: DynamicsModel,
    transitions: Transitions,
    *,
    steps: int = 1000,
    batch_size: int = 100,
    lr: float = 2e-3,
    rate_lr: float = 1e-2,
    clip_norm: float | None = 5.0,
    seed: int = 0,
) -> History:
    """Train a model on transitions, from its present weights; the last fifth at a fifth of the learning rate.

    Args:
        model: trained in place.
        transitions: all that were seen so far; their number is the N of the regulariser.
        steps: least number of steps of the optimiser; whole epochs are run.
        batch_size: rows of a step.
        lr: learning rate of the weights.
        rate_lr: learning rate of the drop rates.
        clip_norm: largest norm of the gradient.
        seed: of the order of rows and the noise.

    Returns: the history of `fit`.
    """
    steps = whole_number("fit_dynamics", "steps", steps, at_least=1)
    inputs, targets = model.data(transitions)
    epochs = math.ceil(steps / math.ceil(len(inputs) / batch_size))
    total = epochs * math.ceil(len(inputs) / batch_size)

    def factor(step: int) -> float:
        return 1.0 if step < 0.8 * total else 0.2

    return fit(
        model,
        (inputs, targets),
        NegativeELBO(HeteroscedasticGaussian(), num_data=len(inputs)),
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        rate_lr=rate_lr,
        clip_norm=clip_norm,
        scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor),
        seed=seed,
        progress=False,
    )
