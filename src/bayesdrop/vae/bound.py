"""The bound of an autoencoder: its terms, and the objective that `fit` minimises."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from bayesdrop.errors import must, real_number

if TYPE_CHECKING:
    from bayesdrop.vae.autoencoder import VAE

__all__ = ["BoundTerms", "NegativeBound", "checked_beta"]


def checked_beta(owner: str, beta: float) -> float:
    """The weight of the divergence, of which the product is finite in single precision."""
    return real_number(owner, "beta", beta, "a number from 0 to 1e15", at_least=0, at_most=1e15)


class BoundTerms(NamedTuple):
    """The parts of the negative bound, in nats a row: means over the batch, shape ()."""

    reconstruction: Tensor  #: -log p(x | z)
    divergence: Tensor  #: log q(z | x) - log p(z), or its mean over z where that is known
    loss: Tensor  #: reconstruction + beta divergence, with the gradient that training needs

    @property
    def nll(self) -> Tensor:
        """The reconstruction, under the name that `fit` keeps a history of."""
        return self.reconstruction

    @property
    def kl(self) -> Tensor:
        """The divergence, under the name that `fit` keeps a history of."""
        return self.divergence


class NegativeBound(nn.Module):
    """What `fit` minimises for a `VAE` or `SIVAE`: `model.bound(x, y, beta=beta).loss`.

        fit(model, (x, x), NegativeBound(), epochs=20)

    The second of the pair is what is explained: the input itself, or what a denoising model should make of
    it.

    Args:
        beta: weight of the divergence. May be changed between epochs, in a callback.
    """

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = checked_beta("NegativeBound", beta)

    def forward(self, model: VAE, x: Tensor, y: Tensor) -> BoundTerms:
        """The terms for one batch."""
        if not callable(getattr(model, "bound", None)):
            raise TypeError(must("NegativeBound", "model", "a VAE or SIVAE", model))
        return model.bound(x, y, beta=self.beta)
