"""Cascades: a weak fast model, and a strong slow one for the rows that the weak one is least sure of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.errors import (
    NoRandomness,
    must,
    must_be_finite,
    must_be_tensor,
    real_number,
    whole_number,
    whole_seed,
)
from bayesdrop.inputs import Inputs, call, num_rows, take_rows
from bayesdrop.likelihoods import Likelihood
from bayesdrop.metrics.scores import Score, uncertainty
from bayesdrop.metrics.targets import has_classes
from bayesdrop.predict import Prediction, predict
from bayesdrop.trace import evaluating

__all__ = ["Cascade", "Cascaded", "cascade", "passed_on"]

#: a network, or a function from inputs to a prediction
Predictor = nn.Module | Callable[[Any], Prediction]


def passed_on(score: Tensor, share: float) -> Tensor:
    """The round(share N) rows of highest score, as a mask; of equal scores the first rows come first.

    Args:
        score: (N,) how unsure each row is.
        share: of rows, from 0 to 1.

    >>> passed_on(torch.tensor([0.1, 0.9, 0.5, 0.7]), 0.5)
    tensor([False,  True, False,  True])
    """
    must_be_tensor("passed_on", "score", score)
    if score.dim() != 1:
        raise ValueError(must("passed_on", "score", "of shape (N,), one a row", tuple(score.shape)))
    must_be_finite("passed_on", "score", score)
    share = real_number("passed_on", "share", share, "a share of the rows, in [0, 1]", at_least=0, at_most=1)
    passed = torch.zeros(len(score), dtype=torch.bool, device=score.device)
    passed[score.argsort(descending=True, stable=True)[: round(share * len(score))]] = True
    return passed


@dataclass(frozen=True, eq=False)
class Cascaded:
    """The result of a cascade: the weak model's prediction, and the strong one's for some rows.

    Attributes:
        weak: of all rows.
        strong: of the rows that were passed on, in their order; None if there were none.
        passed: (N,) whether each row was passed on.
        score: (N,) how unsure the weak model was.
    """

    weak: Prediction
    strong: Prediction | None
    passed: Tensor
    score: Tensor

    def __len__(self) -> int:
        """N."""
        return len(self.passed)

    @property
    def share(self) -> float:
        """Share of rows that were passed on."""
        return float(self.passed.double().mean())

    @property
    def mean(self) -> Tensor:
        """The strong model's mean for rows that were passed on, the weak one's for the others."""
        return self._merged("mean")

    @property
    def variance(self) -> Tensor:
        """The variance of the same models."""
        return self._merged("variance")

    @property
    def probs(self) -> Tensor:
        """Class probabilities."""
        return self._merged("probs")

    @property
    def label(self) -> Tensor:
        """The likeliest class."""
        return self._merged("label")

    @property
    def entropy(self) -> Tensor:
        """Entropy of the class probabilities, in nats."""
        return self._merged("entropy")

    def _merged(self, name: str) -> Tensor:
        merged: Tensor = getattr(self.weak, name).clone()
        if self.strong is not None:
            merged[self.passed] = getattr(self.strong, name).to(merged)
        return merged


@dataclass(frozen=True, eq=False)
class Cascade:
    """A weak and a strong model as one, see `cascade`; called with inputs, it gives a `Cascaded`."""

    weak: Predictor
    strong: Predictor
    share: float | None
    threshold: float | None
    score: Score | None
    likelihood: Likelihood | None
    num_draws: int
    strong_draws: int
    seed: int
    batch_size: int | None

    def __call__(self, x: Inputs) -> Cascaded:
        """Predict with the weak model, and pass on the rows that it is unsure of.

        Args:
            x: rows, as for `predict`: a tensor, or a tuple or mapping of tensors.
        """
        weak, score = self._weak(x)
        if self.threshold is not None:
            passed = score > self.threshold
        else:
            assert self.share is not None
            passed = passed_on(score, self.share)
        chosen = passed.nonzero()[:, 0]
        strong = None
        if len(chosen):
            strong = self._predicted("strong", self.strong, take_rows(x, chosen), self.strong_draws)
            want = (len(chosen), *weak.mean.shape[1:])
            if tuple(strong.mean.shape) != want or has_classes(strong) != has_classes(weak):
                kind = f"a model of the same outputs as `weak`, of shape {want} here"
                raise ValueError(must("cascade", "strong", kind, tuple(strong.mean.shape)))
        return Cascaded(weak, strong, passed, score)

    def with_threshold(self, x: Inputs, y: Tensor | None = None, *, cost: float | None = None) -> Cascade:
        """The same cascade with a threshold chosen on validation rows, for rows that come one by one.

        Without a cost: the threshold above which `share` of these rows lie (fewer if scores are equal). With
        a
        cost: the threshold that is cheapest on these rows,

            (1/N) ( sum of the losses of the merged predictions + cost (number of rows passed on) )

        where the loss is 1 for a wrong label, or a row's squared error.

        Args:
            x: validation rows.
            y: their targets; needed with a cost.
            cost: of one row of the strong model, in units of the loss.
        """
        owner = "Cascade.with_threshold"
        weak, score = self._weak(x)
        if cost is None:
            if self.share is None:
                raise ValueError(must(owner, "cost", "given for a cascade without a share", None))
            return replace(self, share=None, threshold=_threshold(score, round(self.share * len(score))))
        cost = real_number(owner, "cost", cost, "a number of at least 0", at_least=0)
        if y is None:
            raise ValueError(must(owner, "y", "given with a cost", None))
        must_be_tensor(owner, "y", y)
        strong = self._predicted("strong", self.strong, x, self.strong_draws)
        order = score.argsort(descending=True, stable=True)
        change = (_losses(owner, strong, y) - _losses(owner, weak, y) + cost)[order]
        total = torch.cat([change.new_zeros(1), change.cumsum(0)])
        ranked = score[order]
        # A threshold cannot separate rows of equal score.
        cuts = torch.ones(len(total), dtype=torch.bool)
        cuts[1:-1] = ranked[1:] < ranked[:-1]
        total[~cuts] = math.inf
        return replace(self, share=None, threshold=_threshold(score, int(total.argmin())))

    def _weak(self, x: Inputs) -> tuple[Prediction, Tensor]:
        weak = self._predicted("weak", self.weak, x, self.num_draws)
        score = uncertainty(weak, self.score, owner="cascade")
        if score.dim() != 1:
            want = "a model with one label a row, or numbers"
            raise ValueError(must("cascade", "weak", want, f"scores of shape {tuple(score.shape)}"))
        return weak, score

    def _predicted(self, argument: str, model: Predictor, x: Inputs, num_draws: int) -> Prediction:
        if not isinstance(model, nn.Module):
            found: Any = model(x)
            if not isinstance(found, Prediction):
                raise TypeError(must("cascade", argument, "a function that gives a Prediction", found))
            return found
        try:
            return predict(
                model,
                x,
                num_draws=num_draws,
                likelihood=self.likelihood,
                seed=self.seed,
                batch_size=self.batch_size,
            )
        except NoRandomness:
            if argument == "weak" and self.score not in (None, "entropy", "max_prob"):
                raise
        # A model without randomness: a prediction of a single draw.
        rows, size = num_rows(x, "cascade"), self.batch_size
        places = torch.split(torch.arange(rows), size or rows)
        with torch.no_grad(), evaluating(model):
            output = torch.cat([call(model, take_rows(x, place)) for place in places])
        return Prediction.from_draws(output.unsqueeze(0), self.likelihood)


def cascade(
    weak: Predictor,
    strong: Predictor,
    *,
    share: float | None = None,
    threshold: float | None = None,
    score: Score | None = None,
    likelihood: Likelihood | None = None,
    num_draws: int = 100,
    strong_draws: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> Cascade:
    """A fast model for the rows that it is sure of, and a slower one for the others.

    The `share` of the rows of a call that the weak model is least sure of is passed on, or all rows whose
    score is above a `threshold`; `Cascade.with_threshold` chooses one on validation rows, by the share or by
    a cost.

    Args:
        weak: the fast model: a network, or a function from inputs to a `Prediction`.
        strong: the slow model, of the same form; it need not be random.
        share: of rows that are passed on, from 0 to 1.
        threshold: the score above which a row is passed on. Either `share` or `threshold` must be given.
        score: how unsure the weak model is, see `metrics.uncertainty`: "entropy", "expected_entropy",
            "mutual_information", "variation_ratio" or "max_prob" for classes, "std", "epistemic" or
            "aleatoric" for numbers.
        likelihood: what the networks' outputs mean, as for `predict`.
        num_draws: of the weak model.
        strong_draws: of the strong model; as many if None.
        seed: of the draws.
        batch_size: rows at a time.

    Reference: Gal & Ghahramani (2015), section 4.2.

    >>> from bayesdrop import Categorical
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    >>> both = cascade(net, nn.Linear(3, 2), share=0.25, likelihood=Categorical(), num_draws=10)
    >>> found = both(torch.randn(8, 3))
    >>> int(found.passed.sum()), found.probs.shape
    (2, torch.Size([8, 2]))
    """
    for name, model in (("weak", weak), ("strong", strong)):
        if not callable(model) or isinstance(model, type | Likelihood):
            want = "an nn.Module, or a function from inputs to a Prediction"
            raise TypeError(must("cascade", name, want, model))
    if (share is None) == (threshold is None):
        want = "given if `threshold` is not, and only then"
        raise ValueError(must("cascade", "share", want, share))
    if share is not None:
        share = real_number(
            "cascade", "share", share, "a share of the rows, in [0, 1]", at_least=0, at_most=1
        )
    if threshold is not None:
        threshold = real_number("cascade", "threshold", threshold, "a number")
    if score is not None and not isinstance(score, str):
        raise ValueError(must("cascade", "score", "the name of a score, as 'entropy', or None", score))
    if not (likelihood is None or isinstance(likelihood, Likelihood)):
        raise TypeError(must("cascade", "likelihood", "a Likelihood or None", likelihood))
    num_draws = whole_number("cascade", "num_draws", num_draws, at_least=1)
    strong_draws = num_draws if strong_draws is None else strong_draws
    return Cascade(
        weak,
        strong,
        share,
        threshold,
        score,
        likelihood,
        num_draws,
        whole_number("cascade", "strong_draws", strong_draws, at_least=1),
        whole_seed("cascade", seed),
        None if batch_size is None else whole_number("cascade", "batch_size", batch_size, at_least=1),
    )


def _threshold(score: Tensor, number: int) -> float:
    """A threshold that at most `number` rows exceed: the score of the first row that is not passed on."""
    return -math.inf if number >= len(score) else float(score.sort(descending=True).values[number])


def _losses(owner: str, prediction: Prediction, y: Tensor) -> Tensor:
    """(N,) 1 for a wrong label, or the squared error of a row."""
    guess = prediction.label if has_classes(prediction) else prediction.mean
    if y.shape != guess.shape:
        raise ValueError(must(owner, "y", f"of shape {tuple(guess.shape)}", tuple(y.shape)))
    if has_classes(prediction):
        return (guess != y).double()
    return (guess - y).double().square().reshape(len(y), -1).sum(1)
