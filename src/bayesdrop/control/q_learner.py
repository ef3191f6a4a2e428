"""QLearner: the update of a Q-network from replayed transitions."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.control.replay import Batch
from bayesdrop.control.settings import QLearning
from bayesdrop.errors import Diverged, must, must_be_module, whole_number
from bayesdrop.layers import StochasticLayer, total_kl
from bayesdrop.objectives import arm_loss
from bayesdrop.trace import evaluating

__all__ = ["QLearner", "check_network"]


def check_network(owner: str, network: nn.Module, inputs: int) -> int:
    """The number of actions of a Q-network; raise unless it takes (N, inputs) to (N, number of actions).

    Args:
        owner: the caller, for errors.
        network: any module.
        inputs: numbers of an observation.
    """
    must_be_module(owner, "network", network)
    inputs = whole_number(owner, "inputs", inputs, at_least=1)
    try:
        with torch.no_grad(), evaluating(network):
            values = network(torch.zeros(2, inputs))
    except (RuntimeError, ValueError) as error:
        hint = f"It fails: {error}"
        raise ValueError(must(owner, "network", f"a network of {inputs} inputs", network, hint)) from error
    if not isinstance(values, Tensor) or values.dim() != 2 or len(values) != 2:
        got = tuple(values.shape) if isinstance(values, Tensor) else values
        raise ValueError(must(owner, "network", "one that gives (N, actions) for (N, inputs)", got))
    if not bool(torch.isfinite(values).all()):
        raise ValueError(must(owner, "network", "one with finite values", values.flatten()[0]))
    return values.shape[1]


class QLearner:
    """Trains any Q-network as `QLearning` says: plain SGD on replayed transitions.

    In training every row has its own noise: the value of the action that was taken and the values of the next
    state are computed under different masks. Learnable (ARM) rates have the gradient of `arm_loss`.

    Args:
        network: (N, inputs) -> (N, actions).
        learning: its settings.
    """

    def __init__(self, network: nn.Module, learning: QLearning) -> None:
        self.network, self.learning = network, learning
        self.target = network if learning.target_every is None else copy.deepcopy(network)
        layers = [layer for layer in network.modules() if isinstance(layer, StochasticLayer)]
        rates = list({id(p): p for layer in layers for p in layer.rate_parameters()}.values())
        known = {id(p) for p in rates}
        rest = [p for p in network.parameters() if p.requires_grad and id(p) not in known]
        if not rest:
            raise ValueError(must("QLearner", "network", "a network with weights to train", network))
        # With learned rates, the divergence contains the penalty of the weights, in place of weight decay.
        self.learns_rates = bool(rates)
        decay = 0.0 if rates else learning.weight_decay
        groups: list[dict[str, Any]] = [
            {"params": [p for p in rest if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in rest if p.dim() <= 1]},
            {"params": rates, "lr": learning.learning_rate_of_rates},
        ]
        self.optimizer = torch.optim.SGD([group for group in groups if group["params"]], lr=learning.lr)
        self.updates = 0

    def update(self, batch: Batch, *, num_data: int) -> float:
        """Make one step of SGD; return the loss without the regulariser.

        Args:
            batch: transitions, (1, B, ...) each.
            num_data: N of the regulariser: transitions that the agent has met so far.
        """
        learning = self.learning
        x, actions = batch.observations.flatten(0, 1), batch.actions.reshape(-1, 1)
        # Training mode, so that values of the next state have noise too, in a target network as well.
        self.network.train()
        self.target.train()
        with torch.no_grad():
            following = self.target(batch.next_observations.flatten(0, 1)).amax(1)
        ongoing = 1 - batch.terminated.flatten()
        wanted = batch.rewards.flatten() + learning.gamma * ongoing * following

        def loss_per_row(network: nn.Module) -> Tensor:
            values: Tensor = network(x).gather(1, actions).squeeze(1)
            losses: Tensor = 0.5 * (values - wanted).square()
            return losses

        loss = arm_loss(self.network, loss_per_row)
        whole = loss + total_kl(self.network) / num_data if self.learns_rates else loss
        self.optimizer.zero_grad()
        whole.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.updates += 1
        if learning.target_every is not None and self.updates % learning.target_every == 0:
            self.target.load_state_dict(self.network.state_dict())
        value = loss.item()
        if not math.isfinite(value):
            raise Diverged(
                f"QLearner: the loss is {value} at update {self.updates}. Lower `lr`.",
                step=self.updates,
                epoch=1,
            )
        return value
