"""SIVAE: an autoencoder whose posterior is a mixture over masks of its input."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must, must_be_tensor, real_number, whole_number, whole_seed
from bayesdrop.functional.arm import Estimator
from bayesdrop.layers import (
    ActivationNoise,
    BernoulliNoise,
    ConcreteNoise,
    LearnableNoise,
    VariationalGaussianNoise,
)
from bayesdrop.likelihoods import Likelihood
from bayesdrop.trace import RowDraw
from bayesdrop.vae.autoencoder import VAE, Drawn, evaluated
from bayesdrop.vae.gaussian import drawn_code, mixture_divergence, mixture_log_density
from bayesdrop.vae.priors import Prior

__all__ = ["SIVAE", "InputNoise"]

NoiseKind = Literal["learnable", "concrete", "gaussian", "fixed"]
_KINDS = ("learnable", "concrete", "gaussian", "fixed")


class InputNoise(nn.Module):
    """Noise on every number of a row, whatever the shape of a row.

    Args:
        noise: of as many units as a row has numbers.
    """

    def __init__(self, noise: ActivationNoise) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, x: Tensor) -> Tensor:
        """The noisy row, of its shape."""
        noisy: Tensor = self.noise(x.flatten(1))
        return noisy.view(x.shape)


class SIVAE(VAE):
    """Variational autoencoder whose posterior is a mixture of Gaussians, one for every mask of the input.

        q(z | x) = E_m q(z | x, m),    q(z | x, m) = N(mean(m x), diag exp s(m x))

    The density of the mixture over all masks is not known; that of K masks is, and gives a bound that grows
    with K to the bound of q itself. K masks of a row give K Gaussians q_j, and the density of each code
    z_k ~ q_k is that of their mixture h:

        loss = mean over k of   -log p(x | z_k) + beta (log h(z_k) - log p(z_k)),    h = (1 / K) sum_j q_j

    The rates of the masks, one for every input, are learned along with the weights, from the same bound.
    "learnable": hard masks; the gradient is unbiased, by two passes with mirrored masks and all other
    noise in common (DisARM or another `estimator`). "concrete": relaxed masks. "gaussian": inputs times
    N(1, a), a learned; rates are then p = a / (1 + a). "fixed": masks of a fixed rate. Masks are a part of
    the posterior, and are drawn in `eval()` too.

    Args:
        encoder: (N, ...) -> (N, 2 L), means and log-variances. Its noise, if any, is part of the mixture.
        decoder: (n, L) -> outputs (n, ...) of the likelihood.
        likelihood: of a row given the decoder's output, as `Bernoulli()`, `Gaussian()`, `Multinomial()`.
        latent: L, numbers of a code.
        num_inputs: how many numbers a row has; needed if `noise` is a name.
        num_masks: K.
        noise: "learnable", "concrete", "gaussian" or "fixed"; a layer of `bayesdrop.layers`, as
            `LearnableNoise(784)`; or None for the noise of the encoder alone.
        p: where the rates start.
        temperature: of "concrete".
        prior: p(z); the standard normal if None.
        estimator: of the gradient in rates of "learnable" masks, see `arm_loss`.

    Reference: Boluki et al. (2020), section 2.3, Eqs 5 and 6 (the text's beta is on log h - log p); Yin &
    Zhou (2018). Their V is our K - 1; the bound is averaged over which of the K masks is that of the code.
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        likelihood: Likelihood,
        latent: int,
        num_inputs: int | None = None,
        num_masks: int = 3,
        noise: NoiseKind | ActivationNoise | None = "learnable",
        p: float = 0.5,
        temperature: float = 0.67,
        prior: Prior | None = None,
        estimator: Estimator = "disarm",
    ) -> None:
        super().__init__(
            encoder, decoder, likelihood=likelihood, latent=latent, prior=prior, estimator=estimator
        )
        num_masks = whole_number("SIVAE", "num_masks", num_masks, at_least=1)
        p = real_number("SIVAE", "p", p, "in (0, 1)", above=0, below=1)
        temperature = real_number(
            "SIVAE",
            "temperature",
            temperature,
            "a positive number, from 1e-6 to 1e6",
            at_least=1e-6,
            at_most=1e6,
        )
        if num_inputs is not None:
            num_inputs = whole_number("SIVAE", "num_inputs", num_inputs, at_least=1)
        if noise is not None and not isinstance(noise, ActivationNoise):
            if not is_one_of(noise, _KINDS):
                want = f"one of {', '.join(map(repr, _KINDS))}, a layer such as LearnableNoise(784), or None"
                raise ValueError(must("SIVAE", "noise", want, noise))
            if num_inputs is None:
                hint = "It is 784 for images of 28 x 28."
                raise ValueError(
                    must(
                        "SIVAE", "num_inputs", f"given for noise={noise!r}, the numbers of a row", None, hint
                    )
                )
            noise = _input_noise(noise, num_inputs, p, temperature)
        self.num_masks = num_masks
        # One module, so that one draw holds the noise of both parts.
        self.noisy_encoder = encoder if noise is None else nn.Sequential(InputNoise(noise), encoder)
        # In a tuple, so that it is not registered as a second child.
        self._input_noise = (noise,)

    @property
    def input_rates(self) -> Tensor | None:
        """(D,) chance of dropping each input, or () for all; None if there is no noise on the inputs."""
        noise = self._input_noise[0]
        return None if noise is None else noise.p.detach()

    @evaluated
    def log_posterior(self, z: Tensor, x: Tensor, *, num_masks: int = 100, seed: int = 0) -> Tensor:
        """(N,) log q(z | x), a density, by a mean over masks: unbiased before the log.

        Args:
            z: (N, L) codes.
            x: (N, ...) inputs.
            num_masks: masks of a row.
            seed: of the masks.

        Reference: Boluki et al. (2020), Eq. 5.
        """
        owner = "SIVAE.log_posterior"
        num_masks = whole_number(owner, "num_masks", num_masks, at_least=1)
        seed = whole_seed(owner, seed)
        self._checked(x, None)
        must_be_tensor(owner, "z", z, floating=True)
        if tuple(z.shape) != (len(x), self.latent):
            raise ValueError(must(owner, "z", f"of shape {(len(x), self.latent)}", tuple(z.shape)))
        mean, log_variance = self._masked(x, num_masks, seed)
        found = mixture_log_density(z.unsqueeze(0), mean, log_variance)[0]
        return found - 0.5 * self.latent * math.log(2 * math.pi)

    def _checked(self, x: Tensor, target: Tensor | None) -> Tensor:
        goal = super()._checked(x, target)
        noise = self._input_noise[0]
        if noise is not None and x[0].numel() != noise.num_units:
            want = f"(N, ...) with {noise.num_units} numbers a row"
            raise ValueError(must("SIVAE", "x", want, tuple(x.shape)))
        return goal

    def _draws_shape(self) -> tuple[int, ...]:
        return (self.num_masks,)

    def _masked(self, x: Tensor, count: int, seed: int | None) -> tuple[Tensor, Tensor]:
        """(K, N, L) means and log-variances of as many masks.

        Args:
            x: (N, ...).
            count: K.
            seed: of the masks; None for fresh ones from torch's generator, in training.
        """
        if seed is None:
            # K passes, and not one of K N rows: each learned mask then has the loss of its row.
            codes = [self._split(self.noisy_encoder(x), x) for _ in range(count)]
            return torch.stack([code[0] for code in codes]), torch.stack([code[1] for code in codes])
        many = x.expand(count, *x.shape).flatten(0, 1)
        with RowDraw(self.noisy_encoder, seed=seed):
            mean, log_variance, _ = self._split(self.noisy_encoder(many), many)
        shape = (count, len(x), self.latent)
        return mean.view(shape), log_variance.view(shape)

    def _terms(self, x: Tensor, target: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        seed = None if self.training else int(torch.randint(2**62, ()))
        return self._mixture_terms(x, target, noise, seed)

    def _terms_of(self, x: Tensor, target: Tensor, noise: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        return self._mixture_terms(x, target, noise, seed)

    def _mixture_terms(
        self, x: Tensor, target: Tensor, noise: Tensor, seed: int | None
    ) -> tuple[Tensor, Tensor]:
        """(N,) means over K masks of -log p(x | z_k) and of log h(z_k) - log p(z_k), for noise (K, N, L)."""
        mean, log_variance = self._masked(x, len(noise), seed)
        z = drawn_code(mean, log_variance, noise)
        log_prior = self.prior.log_density(z, self._encode)
        return -self._log_prob(z, target).mean(0), mixture_divergence(z, mean, log_variance, log_prior)

    def _drawn(self, x: Tensor, noise: Tensor, seed: int) -> Drawn:
        mean, log_variance = self._masked(x, len(noise), seed)
        z = drawn_code(mean, log_variance, noise)
        return Drawn(z, mixture_log_density(z, mean, log_variance))


def _input_noise(kind: str, num_inputs: int, p: float, temperature: float) -> ActivationNoise:
    if kind == "learnable":
        return LearnableNoise(num_inputs, p)
    if kind == "concrete":
        return ConcreteNoise(num_inputs, p, temperature=temperature, masks="relaxed", per="unit")
    if kind == "gaussian":
        return VariationalGaussianNoise(num_inputs, p, per="unit")
    return BernoulliNoise(num_inputs, p)
