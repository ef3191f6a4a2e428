"""Log-likelihood of the targets: at each point, and all together."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.likelihoods import Bernoulli, Categorical
from bayesdrop.metrics.targets import check_tensor, labelled, must_be_prediction
from bayesdrop.predict import Prediction

__all__ = ["joint_log_likelihood", "mean_log_likelihood", "point_log_likelihood"]


def mean_log_likelihood(prediction: Prediction, y: Tensor, *, ignore_index: int | None = None) -> Tensor:
    """Log density of a target, averaged over draws at each point and then over points.

        (1/N) sum_n log (1/T) sum_t p(y_n | f_t(x_n))

    `joint_log_likelihood` multiplies over points first; the two differ. A vector of targets is one
    point, and so is every label of an image. Minus infinity if a target has the probability 0.

    Args:
        prediction: with a likelihood.
        y: targets as the likelihood takes them.
        ignore_index: a label that does not count (classes only); None for that of the likelihood.

    Returns: shape (). Nats per point; higher is better.
    Reference: Gal & Ghahramani (2016), Eq. 8.
    """
    value = point_log_likelihood("mean_log_likelihood", prediction, y, ignore_index)
    return value.mean().to(prediction.mean.dtype)


def joint_log_likelihood(prediction: Prediction, y: Tensor) -> Tensor:
    """Log density of all targets together, one function per draw.

        (1/N) log (1/T) sum_t prod_n p(y_n | f_t(x_n))

    `mean_log_likelihood` averages over draws at each point first; the two differ.

    Returns: shape (). Nats per point; higher is better.
    """
    points = point_log_likelihood("joint_log_likelihood", prediction, y).numel()
    return prediction.joint_log_prob(y.detach().to(prediction.mean.device)) / points


def point_log_likelihood(
    owner: str, prediction: Prediction, y: Tensor, ignore_index: int | None = None
) -> Tensor:
    """log (1/T) sum_t p(y_n | f_t(x_n)) of every point that counts, flat, in double precision.

    Args:
        owner: the metric, for its errors.
        prediction: with a likelihood.
        y: targets as the likelihood takes them.
        ignore_index: a label that does not count.
    """
    must_be_prediction(owner, prediction)
    if prediction.likelihood is None:
        hint = "Call predict(..., likelihood=Gaussian(0.1)), say."
        raise ValueError(must(owner, "prediction", "one with a likelihood", prediction, hint))
    check_tensor(owner, y)
    y = y.detach().to(prediction.mean.device)
    if ignore_index is not None and not isinstance(prediction.likelihood, Categorical | Bernoulli):
        raise ValueError(must(owner, "ignore_index", "None unless the targets are labels", ignore_index))
    if isinstance(prediction.likelihood, Categorical | Bernoulli):
        valid = labelled(owner, prediction, y, ignore_index).valid
        # A void label need not be a class: it is replaced by class 0, and its score is left out. Targets that
        # the likelihood accepts are not changed, so that `log_prob` finds the scores of `predict(targets=y)`.
        own = getattr(prediction.likelihood, "ignore_index", None)
        known = bool(valid.all()) or (own is not None and ignore_index in (None, own))
        value = prediction.log_prob(y if known else torch.where(valid, y, 0))[valid]
    else:
        value = prediction.log_prob(y).reshape(-1)
    if not value.numel():
        raise ValueError(must(owner, "y", "at least one value", y))
    if bool(value.isnan().any()):
        count = f"NaN at {int(value.isnan().sum())} of {value.numel()} points"
        raise ValueError(must(owner, "prediction", "a density at every target", count))
    return value.to(torch.float64)
