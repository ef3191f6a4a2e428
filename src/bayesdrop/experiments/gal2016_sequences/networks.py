"""The recurrent networks, which differ in their noise alone; how they are trained, and what is measured."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop import metrics
from bayesdrop.errors import must
from bayesdrop.experiments.gal2016_sequences.problems import ALPHABET, Problem, load_problem
from bayesdrop.experiments.one_pass import one_pass
from bayesdrop.fit import fit
from bayesdrop.layers import BernoulliDropout, ConcreteDropout, RecurrentDropout, StochasticLayer, rates
from bayesdrop.likelihoods import Categorical, Gaussian, Likelihood
from bayesdrop.metrics.scores import Score
from bayesdrop.objectives import NegativeELBO
from bayesdrop.predict import PartlyRandom, Prediction, predict
from bayesdrop.randomness import random_state_kept

__all__ = ["FRESH", "LEARNED", "NONE", "OUTER", "SHARED", "VARIANTS", "SequenceNet", "train_and_score"]

NONE, FRESH, OUTER = "no dropout", "fresh masks", "fresh masks, none inside"
SHARED, LEARNED = "one mask", "one mask, learned"
VARIANTS = (NONE, FRESH, OUTER, SHARED, LEARNED)
_CELLS = {"LSTM": nn.LSTM, "GRU": nn.GRU}
_EMBEDDING = 64


class SequenceNet(nn.Module):
    """A recurrent layer and a linear one, both with noise on what goes into them.

    Texts, in which characters are embedded, have an output at every step, other sequences one at the end.

    Args:
        kind: of the problem, as `Problem.kind`.
        cell: "LSTM" or "GRU".
        variant: of the noise, one of `VARIANTS`.
        features: of the input at a step.
        outputs: of the network.
        hidden: units of the recurrent layer.
        p: the fixed rate.
        p_init: where learned rates start.
        length_scale: of the prior.

    Shape: (N, L) characters -> (N, L, K); (N, L, D) -> (N, K).
    """

    def __init__(
        self,
        kind: str,
        cell: str,
        variant: str,
        *,
        features: int,
        outputs: int,
        hidden: int,
        p: float,
        p_init: float,
        length_scale: float,
    ) -> None:
        super().__init__()
        if cell not in _CELLS:
            raise ValueError(must("gal2016-sequences", "cells", "LSTM or GRU", cell))
        self.is_text = kind == "text"
        self.embed = nn.Embedding(len(ALPHABET), features) if self.is_text else nn.Identity()
        inner, last = _CELLS[cell](features, hidden, batch_first=True), nn.Linear(hidden, outputs)
        options: dict[str, Any] = {"length_scale": length_scale}
        self.last: StochasticLayer
        if variant == LEARNED:
            self.inner = RecurrentDropout(inner, "concrete", p_init, **options)
            self.last = ConcreteDropout(last, p_init, **options)
        else:
            rate = 0.0 if variant == NONE else p
            options["elementwise"] = variant in (FRESH, OUTER)
            inside = 0.0 if variant == OUTER else rate
            self.inner = RecurrentDropout(inner, "bernoulli", rate, recurrent_p=inside, **options)
            self.last = BernoulliDropout(last, rate, **options)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (N, L, K) for texts, (N, K) for other sequences."""
        states: Tensor = self.inner(self.embed(x))[0]
        outputs: Tensor = self.last(states if self.is_text else states[:, -1])
        return outputs


def train_and_score(key: Mapping[str, Any]) -> dict[str, float]:
    """A piece: a network is trained and tested.

    Returns: mean log-likelihoods "held out", also "..., averaged weights", and "trained on"; "calibration"
    error and "accuracy" in per cent; "AUROC <score> <kind from outside>"; learned rates, "rate <place>".
    """
    problem = load_problem(key["problem"], key["sizes"], key["seed"])
    likelihood: Likelihood = {
        "text": Categorical(class_axis=-1),
        "class": Categorical(),
        "number": Gaussian(),
    }[problem.kind]
    net = _network(key, problem)
    fit(
        net, (problem.x, problem.y), NegativeELBO(likelihood, num_data=len(problem.x)), epochs=key["epochs"],
        batch_size=key["batch_size"], lr=key["lr"], scheduler="linear", seed=key["seed"], progress=False,
    )  # fmt: skip

    def predicted(x: Tensor) -> Prediction:
        if key["variant"] == NONE:
            return one_pass(net, x, likelihood)
        with warnings.catch_warnings():
            # It warns of a recurrence without noise, which one of the variants has on purpose.
            warnings.simplefilter("ignore", PartlyRandom)
            return predict(
                net, x, num_draws=key["num_draws"], seed=key["seed"], likelihood=likelihood,
                keep_draws=problem.kind == "number",
            )  # fmt: skip

    some = slice(len(problem.x_new))
    inside = predicted(problem.x_new)
    found = {
        "held out": float(metrics.mean_log_likelihood(inside, problem.y_new)),
        "held out, averaged weights": float(
            metrics.mean_log_likelihood(one_pass(net, problem.x_new, likelihood), problem.y_new)
        ),
        "trained on": float(metrics.mean_log_likelihood(predicted(problem.x[some]), problem.y[some])),
        "calibration": 100 * _calibration_error(problem, inside),
    }
    if problem.kind != "number":
        found["accuracy"] = 100 * float(metrics.accuracy(inside, problem.y_new))
    for name, x in problem.outside.items():
        outside = predicted(x)
        for score in _scores(problem, key["variant"]):
            found[f"AUROC {score} {name}"] = float(metrics.ood_auroc(inside, outside, score=score, by="row"))
    if key["variant"] == LEARNED:
        places = {"inner.inputs.l0": "inputs", "inner.recurrent.l0": "recurrence", "last": "outputs"}
        found |= {f"rate {places[name]}": float(rate) for name, rate in rates(net).items()}
    return found


def _network(key: Mapping[str, Any], problem: Problem) -> SequenceNet:
    outputs = {"text": len(ALPHABET), "class": 10, "number": 1}[problem.kind]
    with random_state_kept():
        torch.manual_seed(key["seed"])
        return SequenceNet(
            problem.kind,
            key["cell"],
            key["variant"],
            features=_EMBEDDING if problem.kind == "text" else problem.x.shape[-1],
            outputs=outputs,
            hidden=key["hidden"],
            p=key["p"],
            p_init=key["p_init"],
            length_scale=key["length_scale"],
        )


def _calibration_error(problem: Problem, prediction: Prediction) -> float:
    if problem.kind == "number":
        return float(metrics.regression_calibration_error(prediction, problem.y_new))
    return float(metrics.expected_calibration_error(prediction, problem.y_new))


def _scores(problem: Problem, variant: str) -> tuple[Score, ...]:
    """Scores of the AUROC; none for numbers without dropout, whose variance is the same for all."""
    if problem.kind == "number":
        return () if variant == NONE else ("epistemic",)
    return ("entropy",) if variant == NONE else ("mutual_information", "entropy")
