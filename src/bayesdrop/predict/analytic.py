"""Predictive moments in one pass, with no draws."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesdrop.draws import Selection
from bayesdrop.draws.study import study
from bayesdrop.draws.subject import Subject
from bayesdrop.errors import NoRandomness, must
from bayesdrop.inputs import Inputs, arguments
from bayesdrop.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from bayesdrop.predict.accumulate import Statistics
from bayesdrop.predict.moments import moments_of_tape
from bayesdrop.predict.output import Output, checked_output, picked
from bayesdrop.predict.record import recording
from bayesdrop.predict.sampler import no_randomness
from bayesdrop.randomness import random_state_kept

__all__ = ["batch_moments", "check_likelihood"]


def check_likelihood(likelihood: Likelihood | None) -> None:
    """Classes, and noise that is not Gaussian, have no closed form."""
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
    """Mean and variance of one batch: propagated through the model, then through the likelihood.

    With a `HeteroscedasticGaussian`, s is taken as Gaussian: E exp(s) = exp(E s + Var s / 2).
    """
    subject, inputs = Subject(model), arguments(batch)
    known = study(subject, inputs)
    with random_state_kept():
        draw, returned = subject.run(
            lambda module: recording(module, batch, per_row=False, index=0, selection=selection, study=known),
            inputs,
            lambda value: picked(value, output),
        )
    value = checked_output(returned, rows)
    if not any(site.random for site in draw.sites.values()):
        raise NoRandomness(no_randomness(list(draw.sites.values())))
    tape = draw.record.tape(value)
    if tape is None:
        raise ValueError(f"predict: method='moments' cannot follow this model: {draw.record.broken}.")
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
