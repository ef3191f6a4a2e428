"""The objective that `fit` minimises for an autoencoder."""

from __future__ import annotations

from torch import Tensor, nn

from bayesdrop.errors import must
from bayesdrop.vae.autoencoder import VAE
from bayesdrop.vae.bound import BoundTerms, checked_beta

__all__ = ["NegativeBound"]


class NegativeBound(nn.Module):
    """The objective of `fit` for a `VAE` or `SIVAE`: `model.bound(x, y, beta=beta).loss`.

        fit(model, (x, x), NegativeBound(), epochs=20)

    The second of the pair is to be reconstructed: the input itself, or for a denoising model the clean input.

    Args:
        beta: weight of the divergence. May be changed between epochs, in a callback.
    """

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = checked_beta("NegativeBound", beta)

    def forward(self, model: VAE, x: Tensor, y: Tensor) -> BoundTerms:
        """The terms for one batch."""
        if not isinstance(model, VAE):
            raise TypeError(must("NegativeBound", "model", "a VAE or SIVAE", model))
        return model.bound(x, y, beta=self.beta)
