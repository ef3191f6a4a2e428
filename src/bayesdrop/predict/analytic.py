"""Predictive moments in one pass, with no draws."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesdrop.errors import NoRandomness, must
from bayesdrop.inputs import Inputs, arguments
from bayesdrop.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from bayesdrop.predict.moments import moments_of_tape
from bayesdrop.predict.sampler import Output, checked_output, no_randomness, picked
from bayesdrop.predict.statistics import Statistics
from bayesdrop.randomness import random_state_kept
from bayesdrop.trace import Selection, Subject, probe, recorded

__all__ = ["batch_moments", "check_likelihood"]


def check_likelihood(likelihood: Likelihood | None) -> None:
    """Raise unless outputs are raw or Gaussian: other likelihoods have no closed form."""
    if likelihood is not None and not isinstance(likelihood, Gaussian | HeteroscedasticGaussian):
        hint = "Use method='draws'."
        raise TypeError(
            must("predict", "likelihood", "Gaussian or None for method='moments'", likelihood, hint)
        )


def batch_moments(
    model: nn.Module,
    batch: Inputs,
    rows: int,
    likelihood: Likelihood | None,
    selection: Selection,
    output: Output | None = None,
) -> Statistics:
    """Mean and variance of one batch, propagated through the model and then through the likelihood.

    With a `HeteroscedasticGaussian`, s is taken as Gaussian: E exp(s) = exp(E s + Var s / 2).
    """
    subject, inputs = Subject(model), arguments(batch)
    known = probe(subject, inputs)
    with random_state_kept():
        draw, recorder, returned = recorded(
            subject, inputs, lambda value: picked(value, output), selection=selection, findings=known
        )
    value = checked_output(returned, rows)
    if not any(site.random for site in draw.sites.values()):
        raise NoRandomness(no_randomness(list(draw.sites.values())))
    tape = recorder.tape(value)
    if tape is None:
        raise ValueError(f"predict: method='moments' cannot follow this model: {recorder.broken}.")
    mean, epistemic = moments_of_tape(tape)
    aleatoric: Tensor = torch.zeros_like(mean)
    if isinstance(likelihood, Gaussian):
        aleatoric = likelihood.moments(mean)[1].contiguous()
    elif isinstance(likelihood, HeteroscedasticGaussian):
        mean, log_variance = likelihood.split(mean)
        epistemic, spread = likelihood.split(epistemic)
        aleatoric = (log_variance + 0.5 * spread).exp()
    return Statistics(
        mean=mean.cpu(),
        epistemic=epistemic.cpu(),
        aleatoric=aleatoric.cpu(),
        draws_used=torch.zeros(rows, dtype=torch.int64),
        classes=None,
        log_prob=None,
    )
