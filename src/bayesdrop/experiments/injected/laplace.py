"""The Laplace approximation at the last linear map: Gaussian weights from the curvature of the loss.

    q(W) = N(W, (sum_n J_n + lambda I)^-1),     J_n the Gauss-Newton curvature of row n's loss in W

f is linear in the weights of the last map, so that J_n is the curvature in f, spread over the features phi_n
(with a one for the bias): phi_n phi_n^T / s_n^2 for a mean of known variance s_n^2, phi_n phi_n^T / 2 for its
log-variance, and (diag(p_n) - p_n p_n^T) x phi_n phi_n^T for classes. (Daxberger et al., 2021, "Laplace
redux"; MacKay, 1992.) The prior precision lambda is chosen by the likelihood of held-out rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesdrop.likelihoods import Categorical, HeteroscedasticGaussian, Likelihood
from bayesdrop.metrics import mean_log_likelihood
from bayesdrop.predict import Prediction

__all__ = ["LastLayerLaplace"]

PRECISIONS = (1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)


class LastLayerLaplace:
    """The posterior of the last layer's weights, as draws of them.

    Args:
        net: the modules in order, the last of them an `nn.Linear`.
        x: training inputs.
        held_out: inputs and targets by which lambda is chosen.
        likelihood: of the outputs: `HeteroscedasticGaussian` of one number, or `Categorical`.
        num_draws: of its predictions.

    Attributes:
        precision: lambda.
    """

    def __init__(
        self,
        net: nn.Sequential,
        x: Tensor,
        held_out: tuple[Tensor, Tensor],
        likelihood: Likelihood,
        num_draws: int,
    ) -> None:
        last = net[-1]
        assert isinstance(last, nn.Linear)
        self.body, self.likelihood = net[:-1], likelihood
        with torch.no_grad():
            self.mean = torch.cat([last.weight, last.bias.unsqueeze(1)], 1).double()
            curvature = self._curvature(self._features(x))
            values, vectors = torch.linalg.eigh(curvature)
            generator = torch.Generator().manual_seed(0)
            shape = (num_draws, *values.shape)
            normal = torch.randn(shape, generator=generator, dtype=torch.float64)
            self.precision, best = PRECISIONS[-1], -torch.inf
            for precision in PRECISIONS:
                spread = (normal / (values.clamp_min(0) + precision).sqrt()).unsqueeze(-2) @ vectors.mT
                draws = self.mean + spread.squeeze(-2).reshape(num_draws, *self.mean.shape)
                score = float(mean_log_likelihood(self._predicted(draws, held_out[0]), held_out[1]))
                if score > best:
                    best, self.precision, self._draws = score, precision, draws

    def predict(self, x: Tensor) -> Prediction:
        """The prediction for inputs (N, ...), with T = `num_draws` draws of the last layer's weights."""
        with torch.no_grad():
            return self._predicted(self._draws, x)

    def _predicted(self, draws: Tensor, x: Tensor) -> Prediction:
        """By weights (T, D, F + 1)."""
        outputs = self._features(x) @ draws.mT
        return Prediction.from_draws(outputs.float(), self.likelihood)

    def _features(self, x: Tensor) -> Tensor:
        """(N, F + 1) what the last layer is given, and a one for the bias."""
        features = torch.cat([self.body(part) for part in torch.split(x, 1000)]).double()
        return torch.cat([features, features.new_ones(len(features), 1)], 1)

    def _curvature(self, features: Tensor) -> Tensor:
        """Summed over rows: (2, F + 1, F + 1), a block an output, or (K (F + 1), K (F + 1)) for classes."""
        outputs = features @ self.mean.T
        if isinstance(self.likelihood, HeteroscedasticGaussian):
            weights = (-outputs[:, 1]).exp(), torch.full((len(outputs),), 0.5, dtype=torch.float64)
            return torch.stack([features.T @ (features * w.unsqueeze(1)) for w in weights])
        assert isinstance(self.likelihood, Categorical)
        probs = outputs.softmax(1)
        classes, width = self.mean.shape
        whole = torch.empty(classes, width, classes, width, dtype=torch.float64)
        for a in range(classes):
            for b in range(a, classes):
                weight = probs[:, a] * (float(a == b) - probs[:, b])
                block = features.T @ (features * weight.unsqueeze(1))
                whole[a, :, b], whole[b, :, a] = block, block
        return whole.reshape(classes * width, classes * width)
