"""Prediction: the predictive distribution of N rows from T draws."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import (
    must,
    must_be_finite,
    must_be_flag,
    must_be_tensor,
    real_number,
    real_numbers,
    whole_number,
    whole_seed,
)
from bayesdrop.functional import entropy
from bayesdrop.likelihoods import (
    Bernoulli,
    Categorical,
    Likelihood,
    NumberLikelihood,
    SoftmaxLikelihood,
)
from bayesdrop.likelihoods.gaussian import check_targets, gaussian_log_prob, normal_cdf
from bayesdrop.predict.statistics import ClassStatistics, DrawStatistics, Statistics, draw_covariance

__all__ = ["Prediction", "frozen_copy"]


@dataclass(frozen=True)
class _Scores:
    """Log-likelihood of targets that were scored during `predict`."""

    targets: Tensor
    log_prob: Tensor  #: (N, ...) log-mean-exp over draws
    joint: Tensor | None  #: (T,) sum over rows, one number a draw; None if batches used different draws


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictive distribution of N rows, from T draws. Made by `bayesdrop.predict`.

    `variance = epistemic + aleatoric` is the law of total variance: the spread of the draws' means, and
    the mean of the draws' variances. Both divide by T, as the mixture of the T draws does.

    Attributes:
        mean: (N, D) mean of y; class probabilities for class likelihoods, laid out as the outputs are.
        epistemic: (N, D) variance of the draws' means. NaN for one draw, which has no spread.
        aleatoric: (N, D) mean of the draws' variances; 0 without a likelihood.
        draws_used: (N,) how many draws each row used.
        likelihood: what the outputs mean, as it was when predicting; None for raw outputs.
        shared: whether each draw was one function for all rows.
        plan: what the engine did, in a few lines.
    """

    mean: Tensor
    epistemic: Tensor
    aleatoric: Tensor
    draws_used: Tensor
    likelihood: Likelihood | None
    shared: bool
    plan: str
    _classes: ClassStatistics | None
    _draws: Tensor | None
    _scores: _Scores | None
    _covariance: Tensor | None

    @classmethod
    def from_draws(
        cls, draws: Tensor, likelihood: Likelihood | None = None, *, shared: bool = True
    ) -> Prediction:
        """A prediction from outputs that were computed elsewhere, as by an ensemble or another library.

        Args:
            draws: (T, N, ...) raw outputs, draws on axis 0.
            likelihood: what the outputs mean; None for raw outputs.
            shared: whether `draws[t]` is one function for all rows.

        >>> Prediction.from_draws(torch.tensor([[[1.0]], [[3.0]]])).mean
        tensor([[2.]])
        """
        must_be_tensor("Prediction", "draws", draws)
        if likelihood is not None and not isinstance(likelihood, Likelihood):
            raise TypeError(
                must("Prediction", "likelihood", "a Likelihood, as Categorical(), or None", likelihood)
            )
        must_be_flag("Prediction", shared=shared)
        if draws.dim() < 2 or draws.shape[0] < 1 or draws.shape[1] < 1:
            raise ValueError(
                must("Prediction", "draws", "(T, N, ...) with T and N at least 1", tuple(draws.shape))
            )
        if not draws.is_floating_point():
            raise TypeError(must("Prediction", "draws", "of a floating dtype", draws.dtype))
        likelihood = frozen_copy(likelihood)
        with torch.no_grad():
            running = DrawStatistics(likelihood)
            for output in draws:
                running.update(output)
        return cls.from_statistics(
            running.result(),
            likelihood,
            shared=shared,
            plan="draws made elsewhere",
            draws=draws.detach().cpu(),
        )

    @classmethod
    def from_statistics(
        cls,
        statistics: Statistics,
        likelihood: Likelihood | None,
        *,
        shared: bool,
        plan: str,
        draws: Tensor | None,
        targets: Tensor | None = None,
        joint: Tensor | None = None,
    ) -> Prediction:
        """A prediction from statistics of draws; `likelihood` is not copied."""
        scores = None
        if targets is not None and statistics.log_prob is not None:
            scores = _Scores(targets, statistics.log_prob, joint)
        return cls(
            mean=statistics.mean,
            epistemic=statistics.epistemic,
            aleatoric=statistics.aleatoric,
            draws_used=statistics.draws_used,
            likelihood=likelihood,
            shared=shared,
            plan=plan,
            _classes=statistics.classes,
            _draws=draws,
            _scores=scores,
            _covariance=statistics.covariance,
        )

    def __repr__(self) -> str:
        kind = "raw outputs" if self.likelihood is None else type(self.likelihood).__name__
        kept = "kept" if self._draws is not None else "not kept"
        return f"Prediction({tuple(self.mean.shape)}, {kind}, {self.num_draws} draws, {kept})"

    @property
    def num_draws(self) -> int:
        """T; where draws stopped early, the largest number that any row used."""
        return int(self.draws_used.max())

    @property
    def is_analytic(self) -> bool:
        """Whether moments were propagated without draws (`method="moments"`); y is then taken as Gaussian."""
        return self.num_draws == 0

    def __len__(self) -> int:
        return self.mean.shape[0]

    # moments

    @property
    def variance(self) -> Tensor:
        """(N, D) epistemic + aleatoric."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Tensor:
        """(N, D) square root of `variance`."""
        return self.variance.sqrt()

    @property
    def standard_error(self) -> Tensor:
        """(N, D) Monte Carlo standard error of `mean`: sqrt(epistemic / (T - 1))."""
        if self.is_analytic:
            return torch.zeros_like(self.mean)
        if self.num_draws < 2:
            return torch.full_like(self.mean, math.nan)
        others = (self.draws_used - 1).to(self.mean.dtype).reshape(-1, *[1] * (self.mean.dim() - 1))
        return (self.epistemic / others).sqrt()

    @property
    def epistemic_covariance(self) -> Tensor:
        """(N, D, D) covariance of the draws' means, between the outputs of a row; diagonal: `epistemic`.

            (1/T) sum_t m_t m_t' - m m',    m_t = E[y | f_t(x)],  m their mean

        For classes that exclude each other (N, ..., K, K), as of `class_probs`. Computed during
        `predict(..., covariance=True)`, or else from draws that were kept.
        """
        if self._covariance is not None:
            return self._covariance
        if self.is_analytic:
            raise ValueError(
                "Prediction.epistemic_covariance: moments are propagated output by output; "
                "call predict(..., method='draws', covariance=True)."
            )
        if self._draws is None:
            raise ValueError(
                "Prediction.epistemic_covariance: it was not computed and the draws were not kept; "
                "call predict(..., covariance=True)."
            )
        with torch.no_grad():
            return draw_covariance("Prediction.epistemic_covariance", self.likelihood, self._draws)

    @property
    def covariance(self) -> Tensor:
        """(N, D, D) covariance between the outputs of a row, whose diagonal is `variance`.

            Cov[y] = Cov_t E[y | f_t(x)] + (1/T) sum_t Cov[y | f_t(x)]

        Given a function, the outputs of a row are independent: the second part is `aleatoric` on the
        diagonal, and noise_std^2 I of a `Gaussian`. The label of K classes that exclude each other, one-hot,
        has the covariance diag(p) - p p' of the averaged probabilities, (N, ..., K, K), whatever the draws.

        Reference: Gal & Ghahramani (2016), section 4, the predictive variance.
        """
        if isinstance(self.likelihood, SoftmaxLikelihood):
            probs = self.class_probs
            total = torch.diag_embed(probs) - probs.unsqueeze(-1) * probs.unsqueeze(-2)
            return total if self.num_draws > 1 else torch.full_like(total, math.nan)
        noise = self.aleatoric if self.aleatoric.dim() > 1 else self.aleatoric.unsqueeze(-1)
        return self.epistemic_covariance + torch.diag_embed(noise)

    @property
    def draws(self) -> Tensor:
        """(T, N, ...) raw outputs of the draws."""
        if self._draws is None:
            raise ValueError("Prediction.draws: the draws were not kept; call predict(..., keep_draws=True).")
        return self._draws

    # probabilities of targets

    def log_prob(self, y: Tensor) -> Tensor:
        """log (1/T) sum_t p(y_n | f_t(x_n)) at each point, in nats. Shape (N,), or (N, ...) of labels.

        Reference: Gal & Ghahramani (2016), Eq. 8.
        """
        likelihood = self._scored_likelihood("log_prob", y)
        if self.is_analytic:
            check_targets("Prediction.log_prob", self.mean, y)
            return gaussian_log_prob(self.mean, self.variance.log(), y)
        if self._draws is not None:
            running = DrawStatistics(likelihood, y)
            for output in self._draws:
                running.update(output)
            score = running.result().log_prob
            assert score is not None
            return score
        if self._scores is not None and torch.equal(self._scores.targets, y):
            return self._scores.log_prob
        if isinstance(likelihood, Categorical | Bernoulli):
            # The mean over draws of p(y | f_t) is the mean probability, which becomes a logit here.
            return likelihood.log_prob(likelihood.output_of(self.class_probs.log()), y)
        raise ValueError(self._not_kept("log_prob"))

    def joint_log_prob(self, y: Tensor) -> Tensor:
        """log (1/T) sum_t prod_n p(y_n | f_t(x_n)): all targets together, one function a draw. Shape ()."""
        likelihood = self._scored_likelihood("joint_log_prob", y)
        if not self.shared:
            raise ValueError(
                "Prediction.joint_log_prob: it needs functions; call predict(..., draws='shared')."
            )
        if self._draws is not None:
            joint = torch.stack(
                [likelihood.log_prob(output, y).sum(dtype=torch.float64) for output in self._draws]
            )
        elif (
            self._scores is not None
            and self._scores.joint is not None
            and torch.equal(self._scores.targets, y)
        ):
            joint = self._scores.joint
        else:
            raise ValueError(self._not_kept("joint_log_prob"))
        return (torch.logsumexp(joint, 0) - math.log(self.num_draws)).to(self.mean.dtype)

    # quantiles and samples

    def quantile(self, q: float | Sequence[float]) -> Tensor:
        """Quantiles of the predictive distribution, output by output.

        With a likelihood of numbers, as `Gaussian` or `Laplace`, the quantiles of the mixture of its T
        distributions, from its distribution function; without a likelihood, those of the draws.

        Args:
            q: one level or several, each in (0, 1).

        Returns: (N, D), or (len(q), N, D).
        """
        levels = real_numbers("Prediction.quantile", "q", q, "in (0, 1)")
        if levels.dim() > 1 or not levels.numel() or not bool(((levels > 0) & (levels < 1)).all()):
            raise ValueError(must("Prediction.quantile", "q", "in (0, 1)", q))
        likelihood = self.likelihood
        if likelihood is not None and not isinstance(likelihood, NumberLikelihood):
            raise TypeError(f"Prediction.quantile: a {type(likelihood).__name__} has classes, not quantiles.")
        if self.is_analytic:
            scores = torch.special.ndtri(levels).to(self.mean.dtype)
            shifted: Tensor = self.mean + self.std * scores.reshape(*levels.shape, *[1] * self.mean.dim())
            return shifted
        draws = self._kept("quantile")
        if likelihood is None:
            return torch.from_numpy(np.quantile(draws.numpy(), levels.numpy(), axis=0)).to(self.mean.dtype)
        with torch.no_grad():
            found = likelihood.mixture_quantiles(draws, levels.reshape(-1).tolist()).to(draws.dtype)
        return found if levels.dim() else found[0]

    def cdf(self, y: Tensor) -> Tensor:
        """P(target <= y) under the predictive distribution, output by output. Shape (N, D), double.

        With a likelihood of numbers, the mean over draws of each draw's distribution function; without a
        likelihood, the share of draws at or below y.
        """
        likelihood = self.likelihood
        if likelihood is not None and not isinstance(likelihood, NumberLikelihood):
            raise TypeError(f"Prediction.cdf: a {type(likelihood).__name__} has classes, not numbers.")
        check_targets("Prediction.cdf", self.mean, y)
        if self.is_analytic:
            return normal_cdf(y.to(torch.float64), self.mean, self.std)
        draws = self._kept("cdf")
        if likelihood is None:
            return (draws <= y).to(torch.float64).mean(0)
        # In double precision, as in `quantile`: single has no number between 1 - 6e-8 and 1.
        with torch.no_grad():
            return likelihood.cdf(draws.to(torch.float64), y.to(torch.float64)).mean(0)

    def central_level(self, y: Tensor) -> Tensor:
        """Probability of the narrowest central interval that holds y, output by output. Shape (N, D), double.

        max(1 - 2 F(y), 2 F(y-) - 1, 0), with F(y-) = P(target < y): |2 F(y) - 1| where the target is
        continuous. A whole number is held as soon as an interval reaches any of its probability.
        """
        at = self.cdf(y)
        y = y.to(torch.float64)
        before = self.cdf(torch.nextafter(y, torch.full_like(y, -math.inf)))
        return torch.maximum(1 - 2 * at, 2 * before - 1).clamp_min(0)

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Lower and upper end, each (N, D), of the central interval that has the probability `level`."""
        level = real_number("Prediction.interval", "level", level, "in (0, 1)", above=0, below=1)
        lower, upper = self.quantile([(1 - level) / 2, (1 + level) / 2])
        return lower, upper

    def sample(self, n: int, seed: int = 0, *, joint: bool | None = None) -> Tensor:
        """Samples of y: a random draw of the function, then the likelihood's noise.

        Args:
            n: how many samples.
            seed: of the choice of functions and of the noise.
            joint: True: `sample(n)[i]` uses one function for all rows, so that rows share what is uncertain
                about the function. False: the function is chosen separately for every row, so that rows are
                independent; the distribution of each row is the same. None: True if the draws are functions.

        Returns: (n, N, D), or labels (n, N, ...).
        """
        n = whole_number("Prediction.sample", "n", n, at_least=1)
        if joint is not None:
            must_be_flag("Prediction.sample", joint=joint)
        if joint and (self.is_analytic or not self.shared):
            hint = "It needs functions: call predict(..., draws='shared', method='draws')."
            raise ValueError(must("Prediction.sample", "joint", "False or None for these draws", joint, hint))
        generator = torch.Generator().manual_seed(whole_seed("Prediction.sample", seed))
        if self.is_analytic:
            normal = torch.randn((n, *self.mean.shape), generator=generator, dtype=self.mean.dtype)
            return self.mean + self.std * normal
        draws = self._kept("sample")
        if joint is False:
            rows = draws.shape[1]
            which = torch.randint(draws.shape[0], (n, rows), generator=generator)
            chosen = draws[which, torch.arange(rows)]
        else:
            chosen = draws[torch.randint(draws.shape[0], (n,), generator=generator)]
        if self.likelihood is None:
            return chosen
        with torch.no_grad():
            return torch.stack([self.likelihood.sample(output, generator) for output in chosen])

    # classes

    @property
    def probs(self) -> Tensor:
        """Class probabilities, averaged over draws and laid out as the outputs are.

        (N, K, ...) of a `Categorical`, or (N, ..., K) if its class axis is the last; of a `Bernoulli`, the
        probability that y = 1 for every output, (N, ...).
        """
        self._class_statistics("probs")
        return self.mean

    @property
    def class_axis(self) -> int:
        """The axis of `probs` that holds the classes; a `Bernoulli` has none."""
        self._class_statistics("class_axis")
        if not isinstance(self.likelihood, SoftmaxLikelihood):
            kind = type(self.likelihood).__name__
            raise AttributeError(
                f"Prediction.class_axis: a {kind} has no class axis; `class_probs` has its classes last."
            )
        return self.likelihood.axis_in(self.mean.shape)

    @property
    def class_probs(self) -> Tensor:
        """(N, ..., K) probabilities with the classes on the last axis; of a `Bernoulli`, those of 0 and 1."""
        complement = self._class_statistics("class_probs").complement
        if complement is not None:
            return torch.stack((complement, self.mean), -1)
        return self.mean.movedim(self.class_axis, -1)

    @property
    def label(self) -> Tensor:
        """(N, ...) the most probable class; 0 or 1 for every output of a `Bernoulli`."""
        return self.class_probs.argmax(-1)

    @property
    def entropy(self) -> Tensor:
        """(N, ...) entropy of the averaged probabilities: total uncertainty, in nats."""
        return entropy(self.class_probs)

    @property
    def expected_entropy(self) -> Tensor:
        """(N, ...) mean over draws of each draw's entropy: the aleatoric part, in nats."""
        return self._class_statistics("expected_entropy").expected_entropy

    @property
    def mutual_information(self) -> Tensor:
        """(N, ...) entropy - expected_entropy: the epistemic part, in nats. NaN for one draw."""
        information = (self.entropy - self.expected_entropy).clamp_min(0)
        return information if self.num_draws > 1 else torch.full_like(information, math.nan)

    @property
    def variation_ratio(self) -> Tensor:
        """(N, ...) share of draws that do not vote for the commonest class. NaN for one draw."""
        ratio = self._class_statistics("variation_ratio").variation_ratio
        return ratio if self.num_draws > 1 else torch.full_like(ratio, math.nan)

    # errors

    def _class_statistics(self, name: str) -> ClassStatistics:
        if self._classes is None:
            raise AttributeError(
                f"Prediction.{name} is for classes; call predict(..., likelihood=Categorical()) to have it, "
                "or Bernoulli()."
            )
        return self._classes

    def _scored_likelihood(self, name: str, y: Tensor) -> Likelihood:
        if self.likelihood is None:
            raise ValueError(
                f"Prediction.{name} needs a likelihood; call predict(..., likelihood=Gaussian(0.1))."
            )
        must_be_tensor(f"Prediction.{name}", "y", y)
        must_be_finite(f"Prediction.{name}", "y", y)
        if y.dim() < 1 or y.shape[0] != len(self):
            raise ValueError(must(f"Prediction.{name}", "y", f"{len(self)} rows", tuple(y.shape)))
        return self.likelihood

    def _kept(self, name: str) -> Tensor:
        if self._draws is None:
            raise ValueError(
                f"Prediction.{name} needs the draws, which were not kept; call predict(..., keep_draws=True)."
            )
        return self._draws

    def _not_kept(self, name: str) -> str:
        return (
            f"Prediction.{name} needs the draws, which were not kept; "
            "call predict(..., targets=y) to score them during the call, or keep_draws=True."
        )


def frozen_copy(likelihood: Likelihood | None) -> Likelihood | None:
    """A copy of the likelihood on the CPU, so that later training does not change a prediction."""
    if likelihood is None:
        return None
    return copy.deepcopy(likelihood).requires_grad_(False).eval().cpu()
