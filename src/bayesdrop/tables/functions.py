"""Functions: the draws of a model, to be asked about rows again and again.

A draw is a function. When a column is changed and the draws stay the same, every difference is due to the
column, and none to sampling.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdrop.likelihoods import Categorical
from bayesdrop.predict import Prediction
from bayesdrop.stacked.encode import Encoder
from bayesdrop.tables.cells import Array
from bayesdrop.tables.schema import Column, Schema

__all__ = ["Functions", "Parts", "affordable_rows", "inputs_in_use", "inputs_of", "standardised"]

#: numbers of draws that are held at a time
_NUMBERS = 2**22
#: multiplications that a section of a report may cost, a second or two; rows that it has at least and at most
_WORK, _LEAST_ROWS, _MOST_ROWS = 4e10, 500, 20_000


@dataclass(frozen=True, eq=False)
class Parts:
    """The mean prediction of N rows, and the two parts of its uncertainty.

    Attributes:
        mean: (N, 1) numbers, or (N, classes) probabilities.
        epistemic: (N,) variance of the draws' means, or mutual information in nats: lack of data.
        aleatoric: (N,) mean of the draws' variances, or expected entropy in nats: noise.
    """

    mean: Array
    epistemic: Array
    aleatoric: Array


class Functions:
    """T functions of a model, the same in every call.

    Args:
        predict: from (N, K) inputs to their `Prediction`, by the same T draws in every call.
        outputs: how many numbers a draw has for a row.
        num_draws: T.
    """

    def __init__(self, predict: Callable[[Array], Prediction], *, outputs: int, num_draws: int) -> None:
        self._predict = predict
        self._rows = max(1, _NUMBERS // (num_draws * outputs))
        self.num_draws = num_draws

    @staticmethod
    def of(estimator: Any, num_draws: int | None = None) -> Functions:
        """Functions of a fitted estimator; those of its predictions, if `num_draws` is None.

        Args:
            estimator: a fitted DropoutRegressor or DropoutClassifier.
            num_draws: T, at most the estimator's own number of draws, which None stands for.
        """
        mixture = estimator.mixture_
        count = mixture.num_draws if num_draws is None else min(num_draws, mixture.num_draws)
        outputs = mixture.components[0].network.widths[-1] + 1
        return Functions(lambda x: mixture.predict(x, count), outputs=outputs, num_draws=count)

    def parts(self, x: Array) -> Parts:
        """Mean and uncertainty of (N, K) inputs, N at least 1."""
        made = [_parts(self._predict(chunk)) for chunk in self._chunks(x)]
        return Parts(*(np.concatenate([getattr(one, name) for one in made]) for name in _NAMES))

    def values(self, x: Array) -> Array:
        """(T, N, 1) means of numbers, or (T, N, classes) probabilities, of every draw."""
        return np.concatenate([_values(self._predict(chunk)) for chunk in self._chunks(x)], 1)

    def _chunks(self, x: Array) -> Iterator[Array]:
        for start in range(0, len(x), self._rows):
            yield x[start : start + self._rows]


_NAMES = ("mean", "epistemic", "aleatoric")


def _parts(prediction: Prediction) -> Parts:
    if isinstance(prediction.likelihood, Categorical):
        probs = prediction.probs.double().numpy()
        spread, noise = prediction.mutual_information, prediction.expected_entropy
        return Parts(probs / probs.sum(1, keepdims=True), spread.double().numpy(), noise.double().numpy())
    return Parts(
        prediction.mean.double().numpy()[:, :1],
        prediction.epistemic.double().numpy()[:, 0],
        prediction.aleatoric.double().numpy()[:, 0],
    )


@torch.no_grad()
def _values(prediction: Prediction) -> Array:
    likelihood = prediction.likelihood
    draws = prediction.draws
    if likelihood is not None:
        draws = torch.stack([likelihood.moments(draw)[0] for draw in draws])
    values: Array = draws.double().numpy()
    return values


def inputs_of(schema: Schema) -> list[tuple[Column, slice]]:
    """Every column that the model uses, and which of the K inputs are the column's."""
    made, start = [], 0
    for column in schema.used:
        made.append((column, slice(start, start + column.width)))
        start += column.width
    return made


def standardised(estimator: Any, rows: Array) -> Callable[[Array], Array]:
    """A function from (N, K) inputs to (N, K) of mean 0 and variance 1, as a model's networks get them.

    Values far outside those of the fit are put at the bound.

    Args:
        estimator: fitted.
        rows: (M, K) inputs of rows of the fit, by whose mean and variance inputs are standardised.
    """
    encoder = Encoder.of(rows, seen=estimator.mixture_.seen)

    def apply(x: Array) -> Array:
        made: Array = encoder(x).double().numpy()
        return made

    return apply


def inputs_in_use(estimator: Any) -> NDArray[np.int64]:
    """Places of the inputs that some network uses, directly or by a guess, which is made from all of them."""
    encoders: Sequence[Encoder] = list(estimator.mixture_.encoders.values())
    everything = np.arange(len(estimator.mixture_.seen.low))
    told = [everything if one.chosen is None or one.guess is not None else one.chosen for one in encoders]
    return np.unique(np.concatenate(told))


def affordable_rows(estimator: Any, num_draws: int) -> int:
    """Rows that can be predicted in a second or two, by the sizes of the networks alone.

    Args:
        estimator: fitted.
        num_draws: T of every prediction.
    """
    networks: Sequence[Any] = estimator.mixture_.components
    sizes = [sum(a * b for a, b in itertools.pairwise(w)) for w in (one.network.widths for one in networks)]
    return int(np.clip(_WORK / (num_draws * np.mean(sizes)), _LEAST_ROWS, _MOST_ROWS))
