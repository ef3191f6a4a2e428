"""SIVAE: a semi-implicit posterior by dropout of choices with learned rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from bayesdrop.errors import is_one_of, must, real_number, whole_number
from bayesdrop.recommend.autoencoder import Autoencoder
from bayesdrop.recommend.histories import Bag, choice_nll
from bayesdrop.recommend.masks import (
    ChoiceNoise,
    ConcreteChoices,
    FixedChoices,
    GaussianChoices,
    LearnableChoices,
    NoNoise,
)
from bayesdrop.vae.gaussian import drawn_code, mixture_divergence, standard_log_density

__all__ = ["SIVAE"]

Kind = Literal["learnable", "concrete", "gaussian", "fixed"]


@dataclass(eq=False)
class SIVAE(Autoencoder):
    """Variational autoencoder whose posterior is a mixture over masks of the history.

    For each user, K masks give K Gaussians q_j. With a code z_k ~ q_k from each, the loss is

        mean over k of   -log p(x | z_k) + beta (log h(z_k) - log p(z_k)),    h = (1 / K) sum_j q_j

    Dropout of choices has a learned rate for every item: by hard masks with an unbiased gradient from two
    passes (DisARM, with common noise), by relaxed masks (Concrete), or as the variance of normal noise. The
    other options are those of `Autoencoder`; learned rates start at `p`. `bayesdrop.vae.SIVAE` is the same
    method for rows of numbers.

    Args:
        dropout: "learnable", "concrete", "gaussian", "fixed", or None for no dropout.
        num_mixtures: K, number of masks.
        rate_lr: learning rate of the rates' logits.
        temperature: of "concrete".

    Reference: Boluki et al. (2020), sections 2.3 and 3.3, Eq. 6.
    """

    dropout: Kind | None = "learnable"
    num_mixtures: int = 2
    rate_lr: float = 1e-3
    temperature: float = 0.67

    _codes: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = ("learnable", "concrete", "gaussian", "fixed")
        if self.dropout is not None and not is_one_of(self.dropout, kinds):
            raise ValueError(must("SIVAE", "dropout", f"one of {', '.join(kinds)} or None", self.dropout))
        whole_number("SIVAE", "num_mixtures", self.num_mixtures, at_least=1)
        real_number("SIVAE", "rate_lr", self.rate_lr, "a positive number", above=0)
        real_number("SIVAE", "temperature", self.temperature, "a positive number", above=0)
        if self.dropout is not None and self.p <= 0:
            raise ValueError(must("SIVAE", "p", "above 0 with dropout", self.p))

    @classmethod
    def published(cls, **options: Any) -> Self:
        """The settings of the authors' script: ReLU, two layers each way, batches of 1,000, K = 3.

        Args:
            options: override these settings.
        """
        paper: dict[str, Any] = {
            "decoder_hidden": (600,),
            "activation": "relu",
            "layer_norm": False,
            "beta": 0.25,
            "beta_per_choice": False,
            "average": False,
            "batch_size": 1000,
            "num_mixtures": 3,
        }
        return cls(**{**paper, **options})

    def _noise(self, num_items: int) -> ChoiceNoise:
        if self.dropout == "learnable":
            return LearnableChoices(num_items, self.p)
        if self.dropout == "concrete":
            return ConcreteChoices(num_items, self.p, self.temperature)
        if self.dropout == "gaussian":
            return GaussianChoices(num_items, self.p)
        return NoNoise() if self.dropout is None else FixedChoices(self.p)

    def _groups(self) -> list[dict[str, Any]]:
        weights = [*self._coder.parameters(), *self._others.parameters()]
        rates = list(self._choice_noise.parameters())
        return [{"params": weights, "lr": self.lr}] + (
            [{"params": rates, "lr": self.rate_lr}] if rates else []
        )

    def _losses(self, bag: Bag, weight: Tensor, generator: torch.Generator) -> Tensor:
        many = bag.repeated(self.num_mixtures)
        mask = self._choice_noise.sample(many, generator)
        noise = torch.randn(len(many), self.latent, generator=generator)
        losses = self._mixture_losses(many, mask.factor, noise, weight)
        if isinstance(self._choice_noise, LearnableChoices):
            with torch.no_grad():
                other = self._choice_noise.mirrored(many, mask)
                mirrored = self._mixture_losses(many, other.factor, noise, weight)
            self._choice_noise.disarm_(many, mask, losses.detach(), mirrored)
        return losses

    def _mixture_losses(self, many: Bag, factor: Tensor, noise: Tensor, weight: Tensor) -> Tensor:
        """(B,) the loss of each user, given the masks and the noise of all K codes."""
        k = self.num_mixtures
        code = self._coder(many.scaled(factor))
        mean, log_variance = code.chunk(2, -1)
        z = drawn_code(mean, log_variance, noise)
        nll = choice_nll(self._coder.logits(z, many.candidates), many).view(k, -1)
        z, mean, log_variance = (one.view(k, -1, self.latent) for one in (z, mean, log_variance))
        return nll.mean(0) + weight * mixture_divergence(z, mean, log_variance, standard_log_density(z))
