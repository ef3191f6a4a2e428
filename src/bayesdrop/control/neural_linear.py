"""NeuralLinear: Bayesian linear regression of every arm's reward on the last features of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from bayesdrop.control.bandits import NetworkBandit
from bayesdrop.errors import must
from bayesdrop.trace import evaluating

__all__ = ["NeuralLinear", "NormalInverseGamma"]


@dataclass(frozen=True, eq=False)
class NormalInverseGamma:
    """Distribution of the weights and the noise variance of a linear regression, conjugate to it.

        s^2 ~ InverseGamma(a, b),    w | s^2 ~ N(mean, s^2 precision^-1)

    Attributes:
        mean: (D,), of the weights.
        precision: (D, D), positive definite.
        shape: a.
        scale: b.
    """

    mean: Tensor
    precision: Tensor
    shape: float
    scale: float

    @classmethod
    def prior(cls, size: int, *, precision: float = 0.25, shape: float = 6.0, scale: float = 6.0) -> Self:
        """A prior of mean zero, with the constants of Riquelme, Tucker & Snoek (2018), appendix."""
        eye = torch.eye(size, dtype=torch.float64)
        return cls(torch.zeros(size, dtype=torch.float64), precision * eye, shape, scale)

    def posterior(self, features: Tensor, rewards: Tensor) -> NormalInverseGamma:
        """The posterior given rewards (N,) at features (N, D).

        precision' = precision + Z'Z,  mean' = precision'^-1 (precision mean + Z'r),  a' = a + N / 2,
        b' = b + (r'r + mean' precision mean - mean'' precision' mean') / 2
        """
        z, r = features.double(), rewards.double()
        precision = self.precision + z.t() @ z
        mean = torch.linalg.solve(precision, self.precision @ self.mean + z.t() @ r)
        # Equal to the formula above, but as a sum of squares, which loses no digits by subtraction.
        drift = mean - self.mean
        gap = (r - z @ mean).square().sum() + drift @ self.precision @ drift
        return NormalInverseGamma(mean, precision, self.shape + len(r) / 2, self.scale + float(gap) / 2)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` samples of the weights, (count, D)."""
        # The global generator, seeded from ours and put back afterwards, samples the gamma variables.
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            gamma = torch._standard_gamma(torch.full((count,), self.shape, dtype=torch.float64))
        normal = torch.randn(count, len(self.mean), generator=generator, dtype=torch.float64)
        factor = torch.linalg.cholesky(self.precision)
        # precision = L L', so that L'^-1 e has the covariance precision^-1.
        spread = torch.linalg.solve_triangular(factor.t(), normal.t(), upper=True).t()
        drawn: Tensor = self.mean + (self.scale / gamma).sqrt().unsqueeze(1) * spread
        return drawn


class NeuralLinear(NetworkBandit):
    """Thompson sampling with an exact posterior over the last layer, given the features of a network.

    The network is trained as in `NetworkBandit`. After every round, the rewards of each arm are regressed on
    the outputs of the last layer but one, and a constant, from all pulls. For every context, the weights of
    every arm are sampled.

    Args:
        network: `nn.Sequential` that ends in a linear layer; features are those of its mean weights.
        num_features: D.
        num_arms: K.
        options: as of `NetworkBandit`.

    Reference: Riquelme, Tucker & Snoek (2018), section 3 and appendix; Snoek et al. (2015).
    """

    def __init__(self, network: nn.Module, num_features: int, num_arms: int, **options: Any) -> None:
        super().__init__(network, num_features, num_arms, **options)
        if not isinstance(network, nn.Sequential) or len(network) < 2:
            want = "an nn.Sequential of a body and a last layer"
            raise TypeError(must("NeuralLinear", "network", want, network))
        self._body = network[:-1]
        size = self._features(torch.zeros(1, num_features)).shape[1]
        self.posteriors = [NormalInverseGamma.prior(size) for _ in range(num_arms)]

    @torch.no_grad()
    def _features(self, contexts: Tensor) -> Tensor:
        with evaluating(self._body):
            body: Tensor = self._body(contexts)
        return torch.cat([body.double(), body.new_ones(len(body), 1).double()], 1)

    def _learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        super()._learn(contexts, arms, rewards)
        features, pulled = self._features(self._contexts), self._pulls[:, 0].long()
        for arm in range(self.num_arms):
            mine = pulled == arm
            prior = NormalInverseGamma.prior(features.shape[1])
            self.posteriors[arm] = prior.posterior(features[mine], self._pulls[mine, 1])

    def _best(self, contexts: Tensor, turn: Tensor) -> Tensor:
        features = self._features(contexts)
        drawn = [posterior.sample(len(contexts), self._generator) for posterior in self.posteriors]
        return torch.stack([(features * weights).sum(1) for weights in drawn], 1).argmax(1)
