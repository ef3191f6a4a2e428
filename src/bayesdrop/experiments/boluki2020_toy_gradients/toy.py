"""The toy network, with two hidden units that are dropped: its exact gradient, and estimates of it."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor, nn

from bayesdrop.functional.relax import relaxed_moments
from bayesdrop.layers import ConcreteDropout, LearnableDropout
from bayesdrop.objectives import arm_loss

__all__ = ["ESTIMATORS", "Toy"]

#: by the name that is shown: an estimator of `arm_loss`, or the temperature of a relaxation
ESTIMATORS: dict[str, str | float] = {
    "ARM": "arm",
    "DisARM": "disarm",
    "LOO": "loo",
    "REINFORCE": "reinforce",
    "Concrete t = 0.1": 0.1,
    "Concrete t = 2/3": 2 / 3,
}


class Toy:
    """The network, its data, the exact gradient, and estimates of it.

    Gradients are with respect to a, the logits of the keep chances: unit k is kept with chance sigmoid(a_k).

    Args:
        num_data: points x ~ N(0, 1).
        seed: of the weights and the points.
    """

    def __init__(self, num_data: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.w, self.v = torch.randn(2, 2, generator=generator)
        x = torch.randn(num_data, 1, generator=generator)
        #: (N, 2) what a kept unit adds to the output
        self.hidden = torch.relu(x * self.w)
        self.y = (x * self.w) @ self.v.unsqueeze(1)

    def exact_loss(self, a: Tensor) -> Tensor:
        """L(a), by the sum over the four masks. Shape ()."""
        keep = torch.sigmoid(a.double())
        parts = (self.hidden * self.v).double()
        total = torch.zeros((), dtype=torch.float64)
        for mask in product((0.0, 1.0), repeat=2):
            z = torch.tensor(mask, dtype=torch.float64)
            chance = (keep * z + (1 - keep) * (1 - z)).prod()
            total = total + chance * (self.y.double().squeeze(1) - parts @ z).square().mean()
        return total

    def exact_gradient(self, a: Tensor) -> Tensor:
        """dL/da_k = s_k (1 - s_k) mean_i (E[L_i | z_k = 1] - E[L_i | z_k = 0]), s_k = sigmoid(a_k). (2,)."""
        keep = torch.sigmoid(a.double())
        parts, y = (self.hidden * self.v).double(), self.y.double().squeeze(1)
        gradient = []
        for unit, other in ((0, 1), (1, 0)):
            difference = torch.zeros((), dtype=torch.float64)
            for z, chance in ((1.0, keep[other]), (0.0, 1 - keep[other])):
                rest = y - z * parts[:, other]
                difference += chance * ((rest - parts[:, unit]).square() - rest.square()).mean()
            gradient.append(keep[unit] * (1 - keep[unit]) * difference)
        return torch.stack(gradient)

    def relaxed_gradient(self, a: Tensor, temperature: float) -> Tensor:
        """The gradient that Concrete estimates, that of the loss with relaxed masks. Shape (2,).

        The loss is quadratic in the masks, so their first two moments suffice; quadrature gives those.
        """
        a = a.double().requires_grad_()
        keep = torch.sigmoid(a)
        mean, variance = (moment * keep**n for n, moment in enumerate(relaxed_moments(-a, temperature), 1))
        parts, y = (self.hidden * self.v).double(), self.y.double().squeeze(1)
        loss = (y - parts @ mean).square().mean() + (parts.square() @ variance).mean()
        gradient: Tensor = torch.autograd.grad(loss, a)[0]
        return gradient

    def estimates(self, a: Tensor, estimator: str | float, count: int) -> Tensor:
        """Independent estimates, each from one mask (ARM, DisARM, LOO: two) for every point. (count, 2)."""
        linear = nn.Linear(2, 1, bias=False)
        linear.weight.requires_grad_(False).copy_(self.v)
        p = torch.sigmoid(-a)
        layer: LearnableDropout | ConcreteDropout
        if isinstance(estimator, str):
            layer = LearnableDropout(linear, p, per="unit", scaling="raw")
        else:
            layer = ConcreteDropout(linear, p, per="unit", temperature=estimator)

        def losses(model: nn.Module) -> Tensor:
            # ConcreteDropout divides its masks by 1 - p; the toy's masks are raw.
            hidden = self.hidden if isinstance(estimator, str) else self.hidden * (1 - layer.p)
            squares: Tensor = (self.y - model(hidden)).square()
            return squares.squeeze(1)

        found = []
        for _ in range(count):
            if isinstance(estimator, str):
                loss = arm_loss(layer, losses, estimator=estimator)  # type: ignore[arg-type]
            else:
                loss = losses(layer).mean()
            (gradient,) = torch.autograd.grad(loss, layer.logit_p)
            found.append(-gradient)
        return torch.stack(found).double()
