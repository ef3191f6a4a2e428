"""DropoutClassifier: classes with probabilities that mean what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from bayesdrop.errors import must, told_by
from bayesdrop.estimators.base import DropoutEstimator, as_array, large_numbers
from bayesdrop.stacked.encode import Array
from bayesdrop.stacked.settings import NoiseModel

__all__ = ["DropoutClassifier"]


class DropoutClassifier(ClassifierMixin, DropoutEstimator):
    """Classification with Bayesian dropout networks.

    The options are those of `DropoutRegressor`, which says more of some, without the noise. `predict_dist(X)`
    has entropy, mutual information and variation ratio of every row; its classes are in the order of
    `classes_`.

    Several labels a row: with y of shape (N, L), of 0 and 1, every column is a yes or no of its own
    (`bayesdrop.Bernoulli`), and probabilities, predictions and uncertainties have that shape too.

    Args:
        preset: "default", "quick", "best", or a paper's protocol: "gal2016", "gal2018", "two-layers".
        method: posterior: "bernoulli", "concrete", "learnable", "gaussian", "dropconnect", "mixture",
            "variational" or "meanfield".
        hidden: width of every hidden layer, or an int for one layer.
        activation: "relu", "silu", "gelu" or "tanh".
        p: chance of dropping hidden units, or where learned rates start: one number, or one per hidden layer.
        input_p: the same for inputs.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        temperature: of the concrete relaxation.
        per_unit: learn a rate for every unit instead of every layer.
        bins: intervals of the columns' encoding; 0 for none.
        search: "preset", "none", "grid" or "bayes".
        grid: mapping of settings to lists of values.
        restarts: networks of the mixture (rounded up to whole blocks where rows are held out).
        epochs: passes over the data.
        batch_size: rows of a step.
        lr: learning rate.
        schedule: "one-cycle" or "constant".
        clip_norm: largest norm of a network's gradient.
        early_stopping: stop a network when rows that it does not see are no longer predicted better.
        patience: checks without improvement before it stops; there are some 50 checks in all.
        num_draws: draws of all networks together.
        processes: train over so many processes.
        random_state: seed of everything random.
        progress: show a bar (needs the extra "cli").

    Attributes:
        classes_: the labels; with several labels a row, the numbers of their columns.
        multilabel_: whether a row has several labels.
        mixture_: the networks, a `bayesdrop.stacked.Mixture`.
        search_results_: candidates, their log-likelihood on held-out rows, how often each was picked.
        rates_: mean drop rate of every layer of every network.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(80, 2))
    >>> model = DropoutClassifier(preset="quick", epochs=20, random_state=0).fit(x, x[:, 0] > 0)
    >>> model.predict_proba(x[:3]).shape
    (3, 2)
    """

    _owner = "DropoutClassifier"
    multilabel_: bool

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit to rows.

        Args:
            X: (N, K) numbers, an array or a frame.
            y: (N,) labels, or (N, L) of 0 and 1.
            sample_weight: (N,) weights of the rows; those of weight 0 are left out.
            groups: (N,) names or numbers of groups, as of patients or shops, where new rows come from new
                groups. Rows of one group are held out together.
        """
        x, labels = self._validated(X, y, reset=True)
        if self.multilabel_:
            self._fit_table(x, labels, self._weight(sample_weight, x), None, self._grouped(groups, x))
            return self
        self.classes_ = np.unique(labels)
        weight = self._weight(sample_weight, x)
        seen = labels if weight is None else labels[weight > 0]
        if len(np.unique(seen)) < 2:
            raise ValueError(f"{self._owner}: `y` must have at least 2 classes; got one class.")
        self._fit_table(x, self._places(labels), weight, len(self.classes_), self._grouped(groups, x))
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Sequence[Any] | None = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
    ) -> Self:
        """Add rows: the networks are trained further, on all rows so far.

        Args:
            X: (N, K) numbers.
            y: (N,) labels, or (N, L) of 0 and 1.
            classes: all labels there will ever be, in the first call; those of `y` if None. With several
                labels a row, the numbers of the columns.
            sample_weight: (N,) weights of the rows.
            groups: (N,) groups of these rows, if the first rows had groups, and only then.
        """
        if not self.__sklearn_is_fitted__():
            x, labels = self._validated(X, y, reset=True)
            if self.multilabel_:
                self._check_columns(classes)
                self._fit_table(x, labels, self._weight(sample_weight, x), None, self._grouped(groups, x))
                return self
            self.classes_ = np.unique(labels if classes is None else classes)
            weight, own = self._weight(sample_weight, x), self._grouped(groups, x)
            self._fit_table(x, self._places(labels), weight, len(self.classes_), own)
            return self
        x, labels = self._validated(X, y, reset=False)
        places = labels if self.multilabel_ else self._places(labels)
        self._grow_table(x, places, self._weight(sample_weight, x), groups)
        return self

    def predict_proba(self, X: Any) -> Array:
        """(N, K) class probabilities, in the order of `classes_`; with several labels (N, L) chances of 1.

        Args:
            X: (N, columns) numbers.
        """
        probs = np.concatenate([as_array(one.probs) for one in self.predictions(X)])
        if self.multilabel_:
            return probs
        # Without the rounding of draws: some readers of probabilities check that they sum to 1.
        value: Array = probs / probs.sum(1, keepdims=True)
        return value

    def predict(self, X: Any) -> NDArray[Any]:
        """(N,) the most probable labels; (N, L) of 0 and 1 with several labels a row.

        Args:
            X: (N, columns) numbers.
        """
        probs = self.predict_proba(X)
        if self.multilabel_:
            return (probs > 0.5).astype(np.int64)
        places = probs.argmax(1)
        labels: NDArray[Any] = self.classes_[places]
        return labels

    def log_likelihood(self, X: Any, y: Any) -> Array:
        """(N,) log probability of each label; of all labels of a row at once where it has several.

        Args:
            X: (N, columns) numbers.
            y: (N,) labels, or (N, L) of 0 and 1.
        """
        x = self._checked(X)
        if self.multilabel_:
            return as_array(self.mixture_.log_prob(x, self._yes_or_no(np.asarray(y))))
        return as_array(self.mixture_.log_prob(x, self._places(np.asarray(y))))

    def _preset_options(self) -> dict[str, Any]:
        return {"noise": self._noise()}

    def _noise(self) -> NoiseModel | None:
        return "labels" if getattr(self, "multilabel_", False) else "classes"

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, NDArray[Any]]:
        if y is None:
            raise ValueError(f"{self._owner}: requires y to be passed, but the target y is None.")
        with told_by(self._owner, "X", "y"), large_numbers():
            several = _has_columns(y)
            if not reset and several != self.multilabel_:
                want = f"of shape (N, {len(self.classes_)})" if self.multilabel_ else "of shape (N,)"
                raise ValueError(must(self._owner, "y", f"{want}, as in the fit", np.shape(y)))
            x, labels = validate_data(self, X, y, reset=reset, dtype=np.float64, multi_output=several)
            if several:
                found = labels.toarray() if hasattr(labels, "toarray") else labels
                if reset:
                    self.multilabel_ = True
                    self.classes_ = np.arange(found.shape[1])
                return x, self._yes_or_no(found)
            check_classification_targets(labels)
        if reset:
            self.multilabel_ = False
        return x, labels

    def _check_columns(self, classes: Sequence[Any] | None) -> None:
        if classes is not None and not np.array_equal(classes, self.classes_):
            want = f"None, or the numbers of the columns of `y`, 0 to {len(self.classes_) - 1}"
            raise ValueError(must(self._owner, "classes", want, classes))

    def _yes_or_no(self, y: NDArray[Any]) -> NDArray[np.bool_]:
        """(N, L) labels as bool."""
        if y.ndim != 2 or y.shape[1] != len(self.classes_):
            raise ValueError(must(self._owner, "y", f"of shape (N, {len(self.classes_)})", y.shape))
        yes = y == 1
        odd = ~(yes | (y == 0))
        if odd.any():
            hint = "Several columns of `y` are labels that do not exclude each other."
            raise ValueError(must(self._owner, "y", "0 or 1 in every column", y[odd][0].item(), hint))
        return np.asarray(yes, dtype=np.bool_)

    def _places(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """(N,) labels as their places in `classes_`."""
        unknown = set(np.unique(labels).tolist()) - set(self.classes_.tolist())
        if unknown:
            shown = sorted(map(str, unknown))[:5]
            raise ValueError(must(self._owner, "y", f"among the classes {self.classes_.tolist()}", shown))
        return np.searchsorted(self.classes_, labels).astype(np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _has_columns(y: Any) -> bool:
    """Whether `y` has several columns, as an array, a frame or a sparse matrix."""
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    return len(shape) == 2 and shape[1] > 1
