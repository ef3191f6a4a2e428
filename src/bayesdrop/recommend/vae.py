"""MultVAE and MultDAE: autoencoders of choices with a multinomial likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from bayesdrop.recommend.autoencoder import Autoencoder
from bayesdrop.recommend.histories import Bag, choice_nll
from bayesdrop.vae.gaussian import standard_kl

__all__ = ["CDAE", "MultDAE", "MultVAE"]


@dataclass(eq=False)
class MultVAE(Autoencoder):
    """Variational autoencoder of a user's choices.

        E_q(z | x) [ -sum_i x_i log softmax_i f(z) ] + beta KL(q(z | x) || N(0, I))

    The options are those of `Autoencoder`. The defaults are ours: a linear decoder whose biases start at the
    popularity of the items, a normalised encoder, a weight of the divergence that grows with the length of
    the history, and averaged weights. `MultVAE.published()` has the settings of the paper.

    Reference: Liang, Krishnan, Hoffman & Jebara (2018); the VAE of Boluki et al. (2020), table 2.
    """

    @classmethod
    def published(cls, **options: Any) -> Self:
        """The settings of Liang et al. (2018).

        Args:
            options: override these settings.
        """
        paper: dict[str, Any] = {
            "decoder_hidden": (600,),
            "activation": "tanh",
            "layer_norm": False,
            "beta": 0.2,
            "beta_per_choice": False,
            "average": False,
            "batch_size": 500,
        }
        return cls(**{**paper, **options})

    def _losses(self, bag: Bag, weight: Tensor, generator: torch.Generator) -> Tensor:
        noisy = bag.scaled(self._choice_noise.sample(bag, generator).factor)
        code = self._coder(noisy)
        z = self._code(code, torch.randn(len(bag), self.latent, generator=generator))
        return choice_nll(self._coder.logits(z, bag.candidates), bag) + weight * standard_kl(
            *code.chunk(2, -1)
        )


@dataclass(eq=False)
class MultDAE(Autoencoder):
    """Denoising autoencoder of a user's choices: a code without noise, and dropout of choices.

    The options are those of `Autoencoder`; `beta` has no effect.

    Reference: Liang et al. (2018).
    """

    hidden: int = 200
    activation: str = "tanh"
    layer_norm: bool = False
    weight_decay: float = 2e-5

    _codes: ClassVar[int] = 1
    _has_divergence: ClassVar[bool] = False

    def _code(self, code: Tensor, noise: Tensor | None) -> Tensor:
        return code

    def _losses(self, bag: Bag, weight: Tensor, generator: torch.Generator) -> Tensor:
        noisy = bag.scaled(self._choice_noise.sample(bag, generator).factor)
        return choice_nll(self._coder.logits(self._coder(noisy), bag.candidates), bag)


@dataclass(eq=False)
class CDAE(MultDAE):
    """Collaborative denoising autoencoder.

    The published form has a vector for every training user, and none for new users. Here the code of every
    user comes from the history, by the encoder and a sigmoid.

    Reference: Wu, DuBois, Zheng & Ester (2016).
    """

    activation: str = "sigmoid"
