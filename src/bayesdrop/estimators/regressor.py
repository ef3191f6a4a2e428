"""DropoutRegressor: regression on tables with intervals that hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from bayesdrop.errors import is_one_of, must, must_be_flag, real_number, told_by
from bayesdrop.estimators.base import DropoutEstimator, as_array, large_numbers
from bayesdrop.predict import Prediction
from bayesdrop.stacked.encode import Array
from bayesdrop.stacked.out_of_fold import interval_levels
from bayesdrop.stacked.settings import NoiseModel

__all__ = ["DropoutRegressor"]


@dataclass(kw_only=True, eq=False, repr=False)
class DropoutRegressor(RegressorMixin, DropoutEstimator):
    """Regression with Bayesian dropout networks: a mean, and how far the truth may be from it.

    Columns and targets are standardised inside; everything that comes out is in the target's units. The
    default fits a mixture of dropout posteriors: networks that predict their own noise, with and without a
    piecewise-linear encoding of the columns, with and without predictions of boosted trees among their
    inputs. Each holds out some rows, and what they say about those rows chooses the mixture and sets its
    noise (see `bayesdrop.stacked.FitRecipe`).

    Args:
        preset: "default", "quick", "best", or a paper's protocol: "gal2016", "gal2018", "two-layers".
        method: posterior: "bernoulli", "concrete", "learnable", "gaussian", "dropconnect", "mixture",
            "variational" or "meanfield". This and the following replace what the preset says where they are
            not None.
        hidden: width of every hidden layer, or an int for one layer.
        activation: "relu", "silu", "gelu" or "tanh".
        p: chance of dropping hidden units, or where learned rates start: one number, or one per hidden layer.
        input_p: the same for inputs.
        length_scale: prior length scale l: weights have the prior N(0, I / l^2).
        scale_by_fan_in: use l sqrt(K_in) instead of l.
        temperature: of the concrete relaxation.
        per_unit: learn a rate for every unit instead of every layer.
        noise: "fixed", "map", "learned" or "heteroscedastic"; the preset's if None.
        noise_std: standard deviation of a "fixed" noise in the target's units, or where other noise starts,
            in standard deviations of the target.
        bins: intervals of the columns' encoding; 0 for none.
        search: "preset": as the preset does. "none": one candidate, trained on all rows. "grid": `grid`
            around the first candidate. "bayes": p and length scale by a Gaussian process (needs the extra
            "tune").
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
        processes: train over so many processes; on Ray inside of `joblib.parallel_config("ray")`.
        random_state: seed of everything random.
        progress: show a bar (needs the extra "cli").

    Attributes:
        mixture_: the networks, a `bayesdrop.stacked.Mixture`.
        search_results_: candidates, their log-likelihood on held-out rows, how often each was picked.
        rates_: mean drop rate of every layer of every network.

    >>> import numpy as np
    >>> x = np.linspace(-2, 2, 60)[:, None]
    >>> model = DropoutRegressor(preset="quick", epochs=20, random_state=0).fit(x, np.sin(x[:, 0]))
    >>> mean, std = model.predict(x[:3], return_std=True)
    >>> mean.shape, bool((std > 0).all())
    ((3,), True)
    """

    _owner = "DropoutRegressor"

    noise: NoiseModel | None = None
    noise_std: float | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit to rows.

        Args:
            X: (N, K) numbers, an array or a frame.
            y: (N,) or (N, D) targets.
            sample_weight: (N,) weights of the rows; those of weight 0 are left out.
            groups: (N,) names or numbers of groups, as of patients or shops, where new rows come from new
                groups. Rows of one group are held out together, and intervals hold for rows of new groups.
        """
        x, target = self._validated(X, y, reset=True)
        self._fit_table(x, target, self._weight(sample_weight, x), None, self._grouped(groups, x))
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Add rows: the networks are trained further, on all rows so far.

        Args:
            X: (N, K) numbers.
            y: (N,) or (N, D) targets.
            sample_weight: (N,) weights of the rows.
            groups: (N,) groups of these rows, if the first rows had groups, and only then.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y, sample_weight, groups=groups)
        x, target = self._validated(X, y, reset=False)
        self._grow_table(x, target, self._weight(sample_weight, x), groups)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean, (N,) or (N, D); with `return_std` the predictive standard deviation too.

        Args:
            X: (N, K) numbers.
            return_std: whether to give the standard deviation, noise included.
        """
        parts = [(one.mean, one.std) for one in self.predictions(X)]
        mean = np.concatenate([as_array(part[0]) for part in parts])
        if not return_std:
            return self._shaped(mean)
        return self._shaped(mean), self._shaped(np.concatenate([as_array(part[1]) for part in parts]))

    def predict_interval(self, X: Any, level: float = 0.95, *, joint: bool = False) -> tuple[Array, Array]:
        """Lower and upper ends, (N,) or (N, D) each, of intervals that hold a share `level` of targets.

        They are the predictive distribution's central interval of a probability that is set by the rows of
        the fit: it held `level` of these, each predicted by the networks that had not seen it (see
        `bayesdrop.stacked.out_of_fold`). If no rows were held out, or too few, the probability is `level`.

        Args:
            X: (N, K) numbers.
            level: in (0, 1).
            joint: of several targets, whether a share `level` of rows has all of them inside; otherwise each
                target has a share `level` inside. Without rows that set it, the probability of each is
                then 1 - (1 - level) / D.
        """
        owner = f"{self._owner}.predict_interval"
        level = real_number(owner, "level", level, "in (0, 1)", above=0, below=1)
        must_be_flag(owner, joint=joint)
        lower, upper = [], []
        for prediction in self.predictions(X):
            low, high = self.interval_of(prediction, level, joint=joint)
            lower.append(low)
            upper.append(high)
        return self._shaped(np.concatenate(lower)), self._shaped(np.concatenate(upper))

    def interval_of(
        self, prediction: Prediction, level: float, *, shares: Array | None = None, joint: bool = False
    ) -> tuple[Array, Array]:
        """As `predict_interval`, (N, D) each, of a prediction that was made by `predictions`.

        Args:
            prediction: of this estimator.
            level: in (0, 1).
            shares: (n, D) that set the interval, see `bayesdrop.stacked.Mixture`; those of the fit if None.
            joint: as of `predict_interval`.
        """
        shares = self.mixture_.shares if shares is None else shares
        shares = np.empty((0, self._num_targets)) if shares is None else shares
        levels = interval_levels(shares, level, joint=joint)
        ends = [prediction.interval(float(one)) for one in np.unique(levels)]
        which = np.searchsorted(np.unique(levels), levels)
        found = [np.stack([as_array(pair[end]) for pair in ends]) for end in (0, 1)]
        columns = np.arange(len(levels))
        return found[0][which, :, columns].T, found[1][which, :, columns].T

    def log_likelihood(self, X: Any, y: Any) -> Array:
        """(N,) log density of each row's targets, in the target's units: nats, higher is better.

        Args:
            X: (N, K) numbers.
            y: (N,) or (N, D) targets.
        """
        x = self._checked(X)
        target = np.asarray(y, dtype=np.float64).reshape(len(x), -1)
        return as_array(self.mixture_.log_prob(x, target))

    def _noise(self) -> NoiseModel | None:
        if self.noise is not None and not is_one_of(
            self.noise, ("fixed", "map", "learned", "heteroscedastic")
        ):
            want = "'fixed', 'map', 'learned' or 'heteroscedastic'"
            raise ValueError(must(self._owner, "noise", want, self.noise))
        return self.noise

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        if y is None:
            raise ValueError(f"{self._owner}: requires y to be passed, but the target y is None.")
        with told_by(self._owner, "X", "y"), large_numbers():
            x, target = validate_data(
                self, X, y, reset=reset, dtype=np.float64, multi_output=True, y_numeric=True
            )
            target = np.asarray(target, dtype=np.float64)
        if reset:
            self._one_target: bool = target.ndim == 1
        target = target.reshape(len(x), -1)
        if not reset and target.shape[1] != self._num_targets:
            raise ValueError(must(self._owner, "y", f"{self._num_targets} targets", target.shape[1]))
        self._num_targets: int = target.shape[1]
        return x, target

    def _check_rows(self, x: Array, y: NDArray[Any]) -> None:
        super()._check_rows(x, y)
        constant = np.flatnonzero(y.max(0) == y.min(0))
        if len(constant):
            which = f"target {constant[0]}" if y.shape[1] > 1 else "the target"
            value = float(y[0, constant[0]])
            raise ValueError(f"{self._owner}: `y` must vary; {which} is {value:g} in all {len(y)} rows.")
        # Variances are squares: beyond these sizes they overflow or vanish.
        width, largest = 0.5 * y.max(0) - 0.5 * y.min(0), np.abs(y).max(0)
        odd = np.flatnonzero((width < 1e-100) | (largest > 1e100))
        if len(odd):
            got = f"from {y[:, odd[0]].min():g} to {y[:, odd[0]].max():g}"
            want = "of a size between 1e-100 and 1e100"
            raise ValueError(must(self._owner, "y", want, got, "Give it in another unit."))

    def _shaped(self, value: Array) -> Array:
        return value[:, 0] if self._one_target else value
