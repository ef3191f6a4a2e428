"""Policies: from a state to an action within its limit."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bayesdrop.control.features import StateFeatures
from bayesdrop.errors import must_be_module, real_number, whole_number

__all__ = ["MLPPolicy", "RBFPolicy"]


class MLPPolicy(nn.Module):
    """One hidden layer of tanh units: a = limit tanh(W2 tanh(W1 f(s) + b1) + b2).

    Args:
        features: f, the features of a state.
        action_size: A.
        hidden: number of hidden units.
        limit: largest size of an action, of either sign.

    Shape: (N, S) -> (N, A).
    """

    def __init__(
        self, features: StateFeatures, action_size: int = 1, *, hidden: int = 50, limit: float = 1.0
    ) -> None:
        super().__init__()
        owner = "MLPPolicy"
        must_be_module(owner, "features", features)
        self.features = features
        self.action_size = whole_number(owner, "action_size", action_size, at_least=1)
        hidden = whole_number(owner, "hidden", hidden, at_least=1)
        self.limit = real_number(owner, "limit", limit, "a positive number", above=0)
        self.body = nn.Sequential(
            nn.Linear(features.size, hidden), nn.Tanh(), nn.Linear(hidden, self.action_size)
        )

    def forward(self, state: Tensor) -> Tensor:
        """Actions for states."""
        return self.limit * torch.tanh(self.body(self.features(state)))

    def stacked(self, parameters: Mapping[str, Tensor], state: Tensor) -> Tensor:
        """Actions (B, N, A) of B such policies, whose parameters are (B, ...), for states (B, N, S)."""
        first = (parameters["body.0.bias"].unsqueeze(1), parameters["body.0.weight"].mT)
        second = (parameters["body.2.bias"].unsqueeze(1), parameters["body.2.weight"].mT)
        hidden = torch.tanh(torch.baddbmm(first[0], self.features(state), first[1]))
        return self.limit * torch.tanh(torch.baddbmm(second[0], hidden, second[1]))


class RBFPolicy(nn.Module):
    """Radial basis functions, squashed as in PILCO:

        a = limit (9 sin v + sin 3 v) / 8,      v = sum_i w_i exp(-|(f(s) - c_i) / l|^2 / 2)

    The squashing is periodic, and flat where it is largest and smallest.

    Args:
        features: f, the features of a state.
        action_size: A.
        units: number of basis functions; centres c_i start as standard normal numbers, weights w_i small,
            length scales l, one for each feature, at 1.
        limit: largest size of an action, of either sign.

    Shape: (N, S) -> (N, A).
    Reference: Deisenroth & Rasmussen (2011); Gal, McAllister & Rasmussen (2016).
    """

    def __init__(
        self, features: StateFeatures, action_size: int = 1, *, units: int = 30, limit: float = 1.0
    ) -> None:
        super().__init__()
        owner = "RBFPolicy"
        must_be_module(owner, "features", features)
        self.features = features
        self.action_size = whole_number(owner, "action_size", action_size, at_least=1)
        units = whole_number(owner, "units", units, at_least=1)
        self.limit = real_number(owner, "limit", limit, "a positive number", above=0)
        self.centres = nn.Parameter(torch.randn(units, features.size))
        self.weights = nn.Parameter(0.1 * torch.randn(units, self.action_size))
        self.log_length = nn.Parameter(torch.zeros(features.size))

    def forward(self, state: Tensor) -> Tensor:
        """Actions for states."""
        apart = (self.features(state).unsqueeze(-2) - self.centres) * torch.exp(-self.log_length)
        v = torch.exp(-0.5 * apart.square().sum(-1)) @ self.weights
        return self.limit * (9 * torch.sin(v) + torch.sin(3 * v)) / 8
