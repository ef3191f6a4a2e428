"""What regression and classification share: options, recipes, further rows, predictions, files."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bayesdrop.blocks import BLOCK_ROWS, filled
from bayesdrop.engines import Engine, RayEngine, running_on
from bayesdrop.errors import is_one_of, layer_widths, must, must_be_flag, told_by, whole_number
from bayesdrop.estimators.files import read_estimator, write_estimator
from bayesdrop.predict import Prediction
from bayesdrop.scale import check_scale
from bayesdrop.stacked.encode import Array
from bayesdrop.stacked.fit import fit_tables, grow
from bayesdrop.stacked.mixture import Mixture
from bayesdrop.stacked.out_of_fold import out_of_fold
from bayesdrop.stacked.prepared import PreparedMixture
from bayesdrop.stacked.recipe import PRESETS, Candidate, FitRecipe, preset_recipe
from bayesdrop.stacked.settings import NoiseModel, Settings
from bayesdrop.stacked.table import TrainingTable

__all__ = ["DropoutEstimator", "PreparedEstimator"]

#: numbers of draws that are held at a time
_NUMBERS = 2**22
#: bytes that the weights of prepared draws may take
_MOST_HELD = 2**28


@dataclass(kw_only=True, eq=False, repr=False)
class DropoutEstimator(BaseEstimator):
    """See `DropoutRegressor` and `DropoutClassifier`."""

    _owner = "DropoutEstimator"

    # The arguments of the constructor, declared once; scikit-learn reads them from its signature.
    preset: str = "default"
    method: str | None = None
    hidden: int | Sequence[int] | None = None
    activation: str | None = None
    p: float | Sequence[float] | None = None
    input_p: float | None = None
    length_scale: float | None = None
    scale_by_fan_in: bool | None = None
    temperature: float | None = None
    per_unit: bool | None = None
    bins: int | None = None
    search: str = "preset"
    grid: Mapping[str, Sequence[Any]] | None = None
    restarts: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    schedule: str | None = None
    clip_norm: float | None = None
    early_stopping: bool = False
    patience: int = 10
    num_draws: int | None = None
    processes: int = 1
    random_state: int | np.random.RandomState | None = None
    progress: bool = False

    # what is fitted

    def recipe(self, rows: int, columns: int) -> FitRecipe:
        """How a table of a size is fitted: the preset with this estimator's options put in.

        Args:
            rows: N.
            columns: K.
        """
        self._check_options()
        made = preset_recipe(self.preset, rows, columns, **self._preset_options())
        candidates = _distinct([self._changed(candidate) for candidate in made.candidates])
        if self.search == "grid":
            candidates = _distinct([*self._gridded(candidates[0])])
        if self.search == "none":
            made = replace(
                made, candidates=tuple(candidates[:1]), parts=0, precisions=None, rounds=0, calibrate=False
            )
        else:
            made = replace(made, candidates=tuple(candidates))
        if self.search == "bayes":
            made = replace(made, candidates=tuple(candidates[:1]), rounds=4, parts=max(1, made.parts))
        if self.restarts is not None:
            if made.parts and not made.refit:
                made = replace(made, blocks=max(1, -(-self.restarts // made.parts)))
            else:
                made = replace(made, restarts=self.restarts)
        return made if self.num_draws is None else replace(made, num_draws=self.num_draws)

    def _check_options(self) -> None:
        """Check the options of the estimator itself; `Settings` checks those of the networks."""
        for name, options in (("preset", tuple(PRESETS)), ("search", ("preset", "none", "grid", "bayes"))):
            if not is_one_of(getattr(self, name), options):
                want = f"one of {', '.join(map(repr, options))}"
                raise ValueError(must(self._owner, name, want, getattr(self, name)))
        must_be_flag(self._owner, early_stopping=self.early_stopping, progress=self.progress)
        for name in ("restarts", "num_draws", "epochs"):
            if getattr(self, name) is not None:
                whole_number(self._owner, name, getattr(self, name), at_least=1)
        whole_number(self._owner, "patience", self.patience, at_least=1)
        whole_number(self._owner, "processes", self.processes, at_least=1)
        if self.grid is not None and not isinstance(self.grid, Mapping):
            raise TypeError(must(self._owner, "grid", "a mapping of settings to lists of values", self.grid))

    def _seed(self) -> int:
        """A seed from `random_state`: an int, a `RandomState`, or None for a random one."""
        state = self.random_state
        if state is not None and not isinstance(state, np.random.RandomState):
            state = whole_number(self._owner, "random_state", state, at_least=0, at_most=2**32 - 1)
        return int(check_random_state(state).randint(2**31 - 1))

    def _preset_options(self) -> dict[str, Any]:
        return {"noise": self._noise()} if self._noise() is not None else {}

    def _noise(self) -> NoiseModel | None:
        """The noise model; the preset's if None."""
        return None

    def _changed(self, candidate: Candidate) -> Candidate:
        """The candidate with the options that were given put into its settings.

        The noise is left to the preset, and patience counts with `early_stopping` only.
        """
        shared = {field.name for field in fields(self)} & set(Settings.__dataclass_fields__)
        given = {name: getattr(self, name) for name in shared - {"noise", "patience"}}
        changes = {name: value for name, value in given.items() if value is not None}
        if "hidden" in changes:
            changes["hidden"] = layer_widths(self._owner, changes["hidden"])
            if "p" not in changes and isinstance(candidate.settings.p, tuple):
                changes["p"] = candidate.settings.p[0]
        if self.early_stopping:
            changes.setdefault("schedule", "constant")
            changes.setdefault("lr", min(candidate.settings.lr, 1e-3))
            epochs = changes.get("epochs", candidate.settings.epochs)
            changes |= {"patience": self.patience, "check_every": max(1, epochs // 50)}
        elif "epochs" in changes:
            changes["check_every"] = max(1, changes["epochs"])
        settings = replace(candidate.settings, **changes)
        return replace(candidate, settings=settings, bins=candidate.bins if self.bins is None else self.bins)

    def _gridded(self, first: Candidate) -> Iterator[Candidate]:
        """A candidate with every combination of the grid's values, else as the first."""
        grid = dict(self.grid or {"p": [0.005, 0.02, 0.05, 0.1, 0.2], "length_scale": [1e-2, 1.0]})
        known = {*Settings.__dataclass_fields__, "bins"}
        if not set(grid) <= known:
            want = f"a mapping of {', '.join(sorted(known))} to lists"
            raise ValueError(must(self._owner, "grid", want, sorted(set(grid) - known)))
        for name, values in grid.items():
            listed = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str | bytes)
            if not listed or not len(values):
                raise TypeError(must(self._owner, "grid", f"a list of values for {name!r}", values))
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            bins = chosen.pop("bins", first.bins)
            yield replace(first, settings=replace(first.settings, **chosen), bins=bins)

    def _fit_table(
        self,
        x: Array,
        y: NDArray[Any],
        weight: Array | None,
        classes: int | None,
        groups: NDArray[np.int64] | None = None,
    ) -> None:
        if weight is not None:
            seen = weight > 0
            x, y, weight = x[seen], y[seen], weight[seen]
            groups = None if groups is None else groups[seen]
            if bool((weight == weight[0]).all()):
                weight = None
        self._check_rows(x, y)
        check_scale(self._owner, "X", x)
        recipe = self.recipe(*x.shape)
        self._check_groups(groups, recipe)
        table = TrainingTable(x, y, weight=weight, classes=classes, seed=self._seed(), groups=groups)
        with running_on(_joblib_engine()):
            self.mixture_: Mixture = fit_tables(
                [table], recipe, processes=self.processes, progress=self.progress
            )[0]
        self._table: TrainingTable | None = table

    def _grow_table(self, x: Array, y: NDArray[Any], weight: Array | None, groups: Any = None) -> None:
        """Train the networks further, on the rows of the fit and these."""
        table = getattr(self, "_table", None)
        if table is None:
            raise ValueError(
                f"{self._owner}.partial_fit: a loaded estimator does not hold the rows it was fitted to; "
                "fit it anew."
            )
        if table.weight is not None or weight is not None:
            old = np.ones(len(table.x)) if table.weight is None else table.weight
            new = np.ones(len(x)) if weight is None else weight
            weight = np.concatenate([old, new])
        if (groups is None) != (table.groups is None):
            want = "given where `fit` was given them, and only there"
            raise ValueError(must(self._owner, "groups", want, None if groups is None else "groups"))
        named = self._grouped(groups, x, new=False)
        grown = replace(
            table,
            x=np.concatenate([table.x, x]),
            y=np.concatenate([table.y, y]),
            weight=weight,
            groups=None if named is None else np.concatenate([table.groups, named]),
        )
        self.mixture_ = grow(self.mixture_, grown, len(table.x), epochs=self.epochs, processes=self.processes)
        self._table = grown

    def _grouped(self, groups: Any, x: Array, *, new: bool = True) -> NDArray[np.int64] | None:
        """(N,) groups as 0, 1, ..., from names or numbers; unless `new`, known names keep their numbers."""
        if new:
            self._groups: dict[Any, int] = {}
        if groups is None:
            return None
        named = np.asarray(groups)
        if named.shape != (len(x),):
            raise ValueError(must(self._owner, "groups", f"of shape ({len(x)},), one a row", named.shape))
        lacking = [name is None or (isinstance(name, float) and math.isnan(name)) for name in named.tolist()]
        if any(lacking):
            raise ValueError(
                must(self._owner, "groups", "known for every row", f"row {lacking.index(True)}: none")
            )
        places = self._groups
        return np.array([places.setdefault(name, len(places)) for name in named.tolist()], dtype=np.int64)

    def _check_groups(self, groups: NDArray[np.int64] | None, recipe: FitRecipe) -> None:
        if groups is None or not recipe.parts:
            return
        if recipe.holdout == "last":
            want = f"None with the preset {self.preset!r}, which holds out the last rows"
            raise ValueError(must(self._owner, "groups", want, "groups"))
        if len(np.unique(groups)) < 2:
            raise ValueError(must(self._owner, "groups", "of at least 2 groups", "1 group"))

    def _check_rows(self, x: Array, y: NDArray[Any]) -> None:
        if len(x) < 2:
            raise ValueError(f"{self._owner}: `X` must have at least 2 rows; got 1 sample.")

    def _weight(self, sample_weight: Any, x: Array) -> Array | None:
        if sample_weight is None:
            return None
        with told_by(self._owner, "sample_weight"):
            weight: Array = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
            if not np.isfinite(weight).all():
                raise ValueError("Weights must be finite.")
        return weight

    def out_of_fold(self) -> Iterator[tuple[NDArray[np.int64], Prediction]]:
        """Predictions of the rows of the fit by the networks that did not see them, some rows at a time.

        They measure the estimator without a test set: every network of the default holds out a part of the
        rows.

        Yields: places of rows, counted among those of weight above 0, and their predictions: of 4,000 random
            rows at most, and of none where networks were fitted to all rows.
        """
        check_is_fitted(self)
        table = getattr(self, "_table", None)
        if table is None:
            raise ValueError(
                f"{self._owner}.out_of_fold: a loaded estimator does not hold the rows it was fitted to."
            )
        return out_of_fold(self.mixture_, table.x)

    def holds_rows_out(self, rows: int, columns: int) -> bool:
        """Whether a fit to a table of a size keeps networks that held rows out: it then has `out_of_fold`.

        Args:
            rows: N.
            columns: K.
        """
        recipe = self.recipe(rows, columns)
        return recipe.parts > 0 and not recipe.refit

    @property
    def search_results_(self) -> tuple[dict[str, Any], ...]:
        """Every candidate with the log-likelihood of rows it had not seen, and how often it was picked."""
        check_is_fitted(self)
        return self.mixture_.search

    @property
    def rates_(self) -> list[list[float]]:
        """Mean drop rate of every layer of every network."""
        check_is_fitted(self)
        return self.mixture_.rates()

    # prediction

    def predict_dist(self, X: Any, *, num_draws: int | None = None, seed: int = 0) -> Prediction:
        """The predictive distribution of rows as a `Prediction`, in the target's units, draws kept.

        Args:
            X: (N, K) columns.
            num_draws: T of all networks together; the recipe's if None.
            seed: of the draws.
        """
        return self.mixture_.predict(self._checked(X), num_draws, seed)

    def outside(self, X: Any) -> NDArray[np.bool_]:
        """(N, K) which cells lie far outside the columns of the fit; do not trust a row that has one.

        A cell is outside when it is farther from the seen values than the distance between the column's
        1 % and 99 % quantiles. Predictions take it for a value at that distance, so that they are of the size
        of predictions at the edge of the table.

        Args:
            X: (N, K) columns.
        """
        return self.mixture_.seen.outside(self._checked(X))

    def _checked(self, X: Any) -> Array:
        check_is_fitted(self)
        with told_by(self._owner, "X"), large_numbers():
            x: Array = validate_data(self, X, reset=False, dtype=np.float64)
        return x

    def predictions(
        self, X: Any, *, num_draws: int | None = None, seed: int = 0, blocks: bool = False
    ) -> Iterator[Prediction]:
        """`predict_dist` of some rows at a time, in order, so that draws of a long table are never all held.

        A draw is a function: where the rows are cut changes nothing but last bits, and with `blocks` not even
        these.

        Args:
            X: (N, K) columns.
            num_draws: T of all networks together; the recipe's if None.
            seed: of the draws.
            blocks: compute rows in blocks of one size, see `bayesdrop.blocks`. The last prediction then has
                further rows, which fill its block.
        """
        x, mixture = self._checked(X), self.mixture_
        draws = mixture.num_draws if num_draws is None else num_draws
        rows = _rows_at_a_time(mixture, draws)
        if blocks:
            x, rows = filled(x), max(1, rows // BLOCK_ROWS) * BLOCK_ROWS
        for start in range(0, len(x), rows):
            yield mixture.predict(x[start : start + rows], num_draws, seed, BLOCK_ROWS if blocks else None)

    def prepared(self, *, num_draws: int | None = None, seed: int = 0) -> PreparedEstimator:
        """The estimator with its draws made once, for many predictions with the same draws.

        Args:
            num_draws: T of all networks together; the recipe's if None.
            seed: of the draws.
        """
        check_is_fitted(self)
        return PreparedEstimator(self.mixture_, num_draws, seed)

    # files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one safetensors file; nothing is pickled.

        The rows it was fitted to are not written: a loaded estimator predicts, and is fitted anew, but
        takes no further rows.
        """
        check_is_fitted(self)
        write_estimator(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The estimator from a file that `save` wrote."""
        made: Self = read_estimator(cls, path)
        return made

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "mixture_")


class PreparedEstimator:
    """A fitted estimator's draws, held for many predictions; made by `DropoutEstimator.prepared`.

    If the weights of all draws would take more than 256 MB, draws are made anew in every call.

    Args:
        mixture: the networks.
        num_draws: T of all networks together; the mixture's own if None.
        seed: of the draws.
    """

    def __init__(self, mixture: Mixture, num_draws: int | None, seed: int) -> None:
        self.mixture_, self._seed = mixture, seed
        self.num_draws = mixture.num_draws if num_draws is None else num_draws
        held = PreparedMixture.bytes_needed(mixture, self.num_draws) <= _MOST_HELD
        self._held = PreparedMixture(mixture, self.num_draws, seed) if held else None

    def predictions(self, x: Array) -> Iterator[Prediction]:
        """See `DropoutEstimator.predictions`; the rows are (N, K) finite numbers and not checked again."""
        rows = _rows_at_a_time(self.mixture_, self.num_draws)
        for start in range(0, len(x), rows):
            part = x[start : start + rows]
            if self._held is None:
                yield self.mixture_.predict(part, self.num_draws, self._seed)
            else:
                yield self._held.predict(part)


def _rows_at_a_time(mixture: Mixture, num_draws: int) -> int:
    outputs = mixture.components[0].network.widths[-1] + 1
    return max(1, _NUMBERS // (num_draws * outputs))


def _joblib_engine() -> Engine | None:
    """Ray, inside of `joblib.parallel_config("ray")`; None elsewhere."""
    backend = get_active_backend()[0]
    return RayEngine() if type(backend).__module__.startswith("ray.") else None


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    return list(dict.fromkeys(candidates))


def large_numbers() -> np.errstate:
    """Silence overflow while scikit-learn checks columns: it sums them, and numbers near 1e308 overflow."""
    return np.errstate(over="ignore", invalid="ignore")


def as_array(value: torch.Tensor) -> NDArray[np.float64]:
    """A tensor as an array of the same shape."""
    array: NDArray[np.float64] = value.detach().numpy()
    return array
