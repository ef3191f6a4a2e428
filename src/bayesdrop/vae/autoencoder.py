"""VAE: an autoencoder with random codes, for any encoder, decoder and likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import wraps
from typing import NamedTuple, ParamSpec

import torch
from torch import Tensor, nn

from bayesdrop.errors import (
    must,
    must_be_finite,
    must_be_flag,
    must_be_module,
    must_be_tensor,
    told_by,
    whole_number,
    whole_seed,
)
from bayesdrop.functional.arm import Estimator, check_passes
from bayesdrop.likelihoods import Likelihood
from bayesdrop.objectives import arm_loss
from bayesdrop.trace import evaluating
from bayesdrop.vae.bound import BoundTerms, checked_beta
from bayesdrop.vae.flow import IAF
from bayesdrop.vae.gaussian import drawn_code, log_density, standard_kl
from bayesdrop.vae.priors import Prior, StandardNormal

__all__ = ["VAE", "Drawn", "evaluated"]

P = ParamSpec("P")

#: codes of a row that are decoded together
_TOGETHER = 50


def evaluated(method: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """A decorator: the method runs without gradients and with the model in eval mode; flags are restored."""

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        model = args[0]
        assert isinstance(model, nn.Module)
        with torch.no_grad(), evaluating(model):
            return method(*args, **kwargs)

    return run


class Drawn(NamedTuple):
    """Codes of the posterior, and its density there."""

    z: Tensor  #: (S, N, L)
    log_q: Tensor  #: (S, N) log q(z | x), without the constant of all Gaussians


class VAE(nn.Module):
    """Variational autoencoder.

        log p(x) >= E_q(z | x) [ log p(x | z) ] - KL(q(z | x) || p(z)),    q = N(mean(x), diag exp s(x))

    The encoder may contain any noise of this library; with `LearnableDropout` or `LearnableNoise`, the
    gradient of `bound(x).loss` in the rates is estimated without bias from two passes. In `eval()` there is
    no noise. Where noise should be a part of the posterior, use `SIVAE`.

    Args:
        encoder: (N, ...) -> (N, 2 L), means and log-variances; with a flow (N, 3 L), also a context.
        decoder: (n, L) -> outputs (n, ...) of the likelihood.
        likelihood: of a row given the decoder's output, as `Bernoulli()`, `Gaussian()`, `Multinomial()`.
        latent: L, numbers of a code.
        prior: p(z); the standard normal if None.
        flow: transforms the codes, see `IAF`.
        estimator: of the gradient in rates of learned masks, see `arm_loss`.

    Reference: Kingma & Welling (2014); Boluki et al. (2020), Eq. 4.

    >>> from bayesdrop import Gaussian
    >>> model = VAE(nn.Linear(6, 4), nn.Linear(2, 6), likelihood=Gaussian(0.5), latent=2)
    >>> model.bound(torch.zeros(5, 6)).loss.shape
    torch.Size([])
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        likelihood: Likelihood,
        latent: int,
        prior: Prior | None = None,
        flow: IAF | None = None,
        estimator: Estimator = "disarm",
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        for name, part in (("encoder", encoder), ("decoder", decoder)):
            must_be_module(owner, name, part)
            if isinstance(part, Likelihood):
                raise TypeError(must(owner, name, "a network", part))
        if not isinstance(likelihood, Likelihood):
            raise TypeError(must(owner, "likelihood", "a Likelihood, as Bernoulli()", likelihood))
        latent = whole_number(owner, "latent", latent, at_least=1)
        if not (prior is None or isinstance(prior, Prior)):
            raise TypeError(must(owner, "prior", "a Prior, as StandardNormal(), or None", prior))
        if not (flow is None or isinstance(flow, IAF)):
            raise TypeError(must(owner, "flow", "an IAF or None", flow))
        if flow is not None and flow.latent != latent:
            raise ValueError(must(owner, "flow", f"for codes of {latent} numbers", flow.latent))
        check_passes(owner, estimator, None)
        self.encoder = encoder
        self.decoder = decoder
        self.likelihood = likelihood
        self.latent = latent
        self.prior = StandardNormal() if prior is None else prior
        self.flow = flow
        self.estimator: Estimator = estimator

    # training

    def bound(self, x: Tensor, target: Tensor | None = None, *, beta: float = 1.0) -> BoundTerms:
        """The terms of the negative bound, by one code a row (K of them in a `SIVAE`).

        Args:
            x: (N, ...) rows to encode.
            target: (N, ...) rows to reconstruct; x itself if None.
            beta: weight of the divergence.

        In `train()` mode, `loss.backward()` gives all gradients. The encoder's noise depends on the mode.
        """
        target = self._checked(x, target)
        beta = checked_beta(type(self).__name__, beta)
        noise = self._normal((*self._draws_shape(), len(x), self.latent))
        terms: list[tuple[Tensor, Tensor]] = []

        def losses(_: nn.Module) -> Tensor:
            nll, divergence = self._terms(x, target, noise)
            terms.append((nll, divergence))
            return nll + beta * divergence

        # Passes after the first are only for the gradient of learned masks.
        loss = arm_loss(self, losses, estimator=self.estimator)
        nll, divergence = terms[0]
        return BoundTerms(nll.mean(), divergence.mean(), loss)

    def forward(self, x: Tensor) -> Tensor:
        """The decoder's output at the mean code of every row."""
        self._checked(x, None)
        output: Tensor = self.decoder(self._mean_code(x))
        return output

    def _draws_shape(self) -> tuple[int, ...]:
        return (1,)

    def _terms(self, x: Tensor, target: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) -log p(x | z) and the divergence of every row, for noise (1, N, L)."""
        mean, log_variance, context = self._encoded(x)
        drawn = self._bent(drawn_code(mean, log_variance, noise), noise, log_variance, context)
        nll = -self._log_prob(drawn.z, target)[0]
        if isinstance(self.prior, StandardNormal) and self.flow is None:
            return nll, standard_kl(mean, log_variance)
        return nll, (drawn.log_q - self.prior.log_density(drawn.z, self._encode))[0]

    def _bent(self, z: Tensor, noise: Tensor, log_variance: Tensor, context: Tensor | None) -> Drawn:
        log_q = log_density(noise, log_variance)
        if self.flow is None or context is None:
            return Drawn(z, log_q)
        bent, log_slope = self.flow(z.flatten(0, 1), context.expand(z.shape).flatten(0, 1))
        return Drawn(bent.view(z.shape), log_q - log_slope.view(log_q.shape))

    def _encoded(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """(N, L) means, log-variances, and the flow's context."""
        return self._split(self.encoder(x), x)

    def _split(self, code: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        parts = 2 if self.flow is None else 3
        want = (x.shape[0], parts * self.latent)
        if not isinstance(code, Tensor) or tuple(code.shape) != want:
            got = tuple(code.shape) if isinstance(code, Tensor) else code
            wanted = f"a module that gives {want}: {parts} numbers for each of latent={self.latent}"
            raise ValueError(must(type(self).__name__, "encoder", wanted, got))
        mean, log_variance, *context = code.chunk(parts, -1)
        return mean, log_variance, context[0] if context else None

    def _encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log-variances for the prior: of the encoder without the noise of the posterior."""
        mean, log_variance, _ = self._split(self.encoder(x), x)
        return mean, log_variance

    def _log_prob(self, z: Tensor, target: Tensor) -> Tensor:
        """(S, N) log p(target | z) from codes (S, N, L)."""
        count = len(z)
        output = self.decoder(z.flatten(0, 1))
        many = target.expand(count, *target.shape).flatten(0, 1) if count > 1 else target
        with told_by(type(self).__name__, "decoder", "target"):
            found: Tensor = self.likelihood.log_prob(output, many)
        if found.dim() > 1:
            found = found.flatten(1).sum(1)
        return found.view(count, -1)

    # evaluation

    @evaluated
    def lower_bound(
        self,
        x: Tensor,
        target: Tensor | None = None,
        *,
        num_samples: int = 1,
        seed: int = 0,
        batch_size: int = 500,
    ) -> Tensor:
        """(N,) the bound on log p(x) of every row, in nats: minus `bound(x).loss` at beta = 1, row by row.

        Args:
            x: (N, ...).
            target: rows to reconstruct; x itself if None.
            num_samples: number of estimates, of which the mean is returned.
            seed: of codes and masks.
            batch_size: rows at a time.
        """
        num_samples = whole_number(
            f"{type(self).__name__}.lower_bound", "num_samples", num_samples, at_least=1
        )
        found = []
        for part, goal, generator in self._batches("lower_bound", x, target, seed, batch_size):
            total = torch.zeros(len(part), device=part.device)
            for _ in range(num_samples):
                noise = self._normal((*self._draws_shape(), len(part), self.latent), generator)
                nll, divergence = self._terms_of(part, goal, noise, _seed(generator))
                total = total - nll - divergence
            found.append(total / num_samples)
        return torch.cat(found)

    @evaluated
    def log_likelihood(
        self,
        x: Tensor,
        target: Tensor | None = None,
        *,
        num_importance: int = 1000,
        seed: int = 0,
        batch_size: int = 100,
    ) -> Tensor:
        """(N,) an estimate of log p(x), in nats, by importance sampling with the posterior.

            log (1/S) sum_s p(x | z_s) p(z_s) / q(z_s | x),    z_s ~ q(z | x)

        The mean inside the log is unbiased, so that the log is too low on average, by less the larger S:
        compare it with `lower_bound`. Where the posterior is a mixture over masks, codes come in groups of 50
        masks with one code each, and q is the mixture of the group: the mean stays unbiased.

        Args:
            x: (N, ...).
            target: rows to reconstruct; x itself if None.
            num_importance: S.
            seed: of codes and masks.
            batch_size: rows at a time.

        Reference: Burda, Grosse & Salakhutdinov (2016).
        """
        owner = f"{type(self).__name__}.log_likelihood"
        num_importance = whole_number(owner, "num_importance", num_importance, at_least=1)
        found = []
        for part, goal, generator in self._batches("log_likelihood", x, target, seed, batch_size):
            weights = []
            for start in range(0, num_importance, _TOGETHER):
                count = min(_TOGETHER, num_importance - start)
                noise = self._normal((count, len(part), self.latent), generator)
                drawn = self._drawn(part, noise, _seed(generator))
                log_prior = self.prior.log_density(drawn.z, self._encode)
                weights.append(self._log_prob(drawn.z, goal) + log_prior - drawn.log_q)
            found.append(torch.logsumexp(torch.cat(weights), 0) - math.log(num_importance))
        return torch.cat(found)

    @evaluated
    def reconstruct(
        self, x: Tensor, *, num_draws: int | None = None, seed: int = 0, batch_size: int = 500
    ) -> Tensor:
        """The mean of a row given its code, of the shape of the likelihood's mean.

        Args:
            x: (N, ...).
            num_draws: codes of a row (and masks, in a `SIVAE`) that the mean is averaged over; None for the
                mean code alone, without any noise.
            seed: of codes and masks.
            batch_size: rows at a time.
        """
        if num_draws is not None:
            num_draws = whole_number(f"{type(self).__name__}.reconstruct", "num_draws", num_draws, at_least=1)
        found = []
        for part, _, generator in self._batches("reconstruct", x, None, seed, batch_size):
            if num_draws is None:
                found.append(self.likelihood.moments(self.decoder(self._mean_code(part)))[0])
                continue
            total: Tensor | None = None
            for _draw in range(num_draws):
                noise = self._normal((1, len(part), self.latent), generator)
                z = self._drawn(part, noise, _seed(generator)).z[0]
                mean = self.likelihood.moments(self.decoder(z))[0]
                total = mean if total is None else total + mean
            assert total is not None
            found.append(total / num_draws)
        return torch.cat(found)

    @evaluated
    def sample(self, num_rows: int, *, mean: bool = False, seed: int = 0) -> Tensor:
        """New rows: codes of the prior, decoded.

        Args:
            num_rows: how many rows.
            mean: return the mean of each row given its code, instead of a sample of it.
            seed: of codes and rows.
        """
        owner = f"{type(self).__name__}.sample"
        num_rows = whole_number(owner, "num_rows", num_rows, at_least=1)
        must_be_flag(owner, mean=mean)
        generator = torch.Generator().manual_seed(whole_seed(owner, seed))
        z = self.prior.sample(self._normal((num_rows, self.latent), generator), self._encode, generator)
        output = self.decoder(z)
        return self.likelihood.moments(output)[0] if mean else self.likelihood.sample(output, generator)

    def _mean_code(self, x: Tensor) -> Tensor:
        mean, _, context = self._split(self.encoder(x), x)
        return mean if self.flow is None else self.flow(mean, context)[0]

    def _terms_of(self, x: Tensor, target: Tensor, noise: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """`_terms` in eval mode, with seeded masks where there are some."""
        return self._terms(x, target, noise)

    def _drawn(self, x: Tensor, noise: Tensor, seed: int) -> Drawn:
        """Codes from noise (S, N, L), in eval mode, with seeded masks where there are some."""
        mean, log_variance, context = self._encoded(x)
        return self._bent(drawn_code(mean, log_variance, noise), noise, log_variance, context)

    def _batches(
        self, method: str, x: Tensor, target: Tensor | None, seed: int, batch_size: int
    ) -> Iterator[tuple[Tensor, Tensor, torch.Generator]]:
        """For every batch its rows, its targets and a generator."""
        owner = f"{type(self).__name__}.{method}"
        goal = self._checked(x, target)
        batch_size = whole_number(owner, "batch_size", batch_size, at_least=1)
        numbers = torch.Generator().manual_seed(whole_seed(owner, seed))
        for start in range(0, len(x), batch_size):
            rows = slice(start, start + batch_size)
            generator = torch.Generator().manual_seed(_seed(numbers))
            yield x[rows], goal[rows], generator

    def _checked(self, x: Tensor, target: Tensor | None) -> Tensor:
        """The target, x itself if None; raise if x is not a batch of rows."""
        owner = type(self).__name__
        must_be_tensor(owner, "x", x)
        if x.dim() < 2 or not x.numel():
            raise ValueError(must(owner, "x", "(N, ...) with at least one row", tuple(x.shape)))
        must_be_finite(owner, "x", x)
        if target is None:
            return x
        must_be_tensor(owner, "target", target)
        if target.dim() < 1 or len(target) != len(x):
            raise ValueError(must(owner, "target", f"of {len(x)} rows, as x", tuple(target.shape)))
        return target

    def _normal(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        """Standard normal numbers, in the decoder's precision and on its device."""
        like = next((p for p in self.decoder.parameters() if p.is_floating_point()), torch.zeros(()))
        if generator is None:
            return torch.randn(shape, dtype=like.dtype, device=like.device)
        return torch.randn(shape, dtype=like.dtype, generator=generator).to(like.device)


def _seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator))
