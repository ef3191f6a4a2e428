"""The terms of an autoencoder's bound."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from bayesdrop.errors import real_number

__all__ = ["BoundTerms", "checked_beta"]


def checked_beta(owner: str, beta: float) -> float:
    """The weight of the divergence; raise unless products with it are finite in single precision."""
    return real_number(owner, "beta", beta, "a number from 0 to 1e15", at_least=0, at_most=1e15)


class BoundTerms(NamedTuple):
    """The parts of the negative bound, in nats a row: means over the batch, shape ()."""

    reconstruction: Tensor  #: -log p(x | z)
    divergence: Tensor  #: log q(z | x) - log p(z), or its mean over z where that is known
    loss: Tensor  #: reconstruction + beta divergence, with the gradient that training needs

    @property
    def nll(self) -> Tensor:
        """The reconstruction, under the name that `fit` records in its history."""
        return self.reconstruction

    @property
    def kl(self) -> Tensor:
        """The divergence, under the name that `fit` records in its history."""
        return self.divergence
