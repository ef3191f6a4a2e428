"""Other libraries on one split of a table, by arrays: also a program of its own, for another environment.

    python peers.py NAME given.npz found.npz

Nothing of bayesdrop is imported here, and each library only where it is used. All have their defaults, but
for the number of trees: boosting goes on until a tenth of the rows, held out for that, has not gained for 50
rounds. What is given:

- `numbers`, `test_numbers`: (N, A) columns of numbers, NaN where a cell is missing;
- `names`, `test_names`: (N, B) columns of categories as places, -1 where missing, and `sizes`, (B,) how many
  categories the training rows have: a test row with another one has that number for its place;
- `y`: (N,) numbers, or places of the labels; `classes`: how many there are, 0 for numbers;
- `seed` of what is random, and `level` of intervals.

What is found: `mean`, `std` of a Gaussian, and `lower`, `upper` where an interval is not that Gaussian's; or
`probs`, (M, K); `seconds` of CPU time; `failed`, a sentence, instead of all else where a library gave up.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PEERS", "fit_and_predict"]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Given = Mapping[str, NDArray[Any]]
Found = dict[str, Any]

#: trees at the most, which early stopping hardly ever lets them reach; NGBoost's are slow
_MOST_TREES, _MOST_SLOW_TREES, _PATIENCE = 5000, 2000, 50
#: rows that are held out for early stopping, and for the residuals of split conformal prediction
_STOP, _CALIBRATE = 0.1, 0.15
#: rows that a Gaussian process finds its kernel by, rows that it knows, inputs with a length scale each
_KERNEL_ROWS, _PROCESS_ROWS, _SCALED_INPUTS = 1000, 2000, 30


def fit_and_predict(name: str, given: Given) -> Found:
    """What a peer says about test rows.

    Args:
        name: one of `PEERS`.
        given: arrays, as above.
    """
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = PEERS[name](given)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            return {"failed": f"{type(error).__name__}: {error}"[:200]}
    if not all(np.isfinite(part).all() for part in found.values()):
        return {"failed": "its predictions are not finite"}
    return {**found, "seconds": time.process_time() - start}


def ngboost(given: Given) -> Found:
    """NGBoost: natural gradient boosting of a Normal, or of class probabilities."""
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import k_categorical

    x, test = _dense(given)
    y, classes, seed = given["y"], int(given["classes"]), int(given["seed"])
    fitted, held = _hold_out(y, classes, _STOP, seed)
    options: dict[str, Any] = {"random_state": seed, "verbose": False, "n_estimators": _MOST_SLOW_TREES}
    model = NGBClassifier(Dist=k_categorical(classes), **options) if classes else NGBRegressor(**options)
    model.fit(x[fitted], y[fitted], X_val=x[held], Y_val=y[held], early_stopping_rounds=_PATIENCE)
    best = model.best_val_loss_itr
    if classes:
        return {"probs": model.predict_proba(test, max_iter=best)}
    normal = model.pred_dist(test, max_iter=best)
    return {"mean": normal.params["loc"], "std": normal.params["scale"]}


def catboost(given: Given) -> Found:
    """CatBoost: a mean and a variance for every row (RMSEWithUncertainty), or class probabilities."""
    import pandas
    from catboost import CatBoostClassifier, CatBoostRegressor

    def frame(numbers: Array, names: Rows) -> Any:
        columns = {f"n{place}": numbers[:, place] for place in range(numbers.shape[1])}
        return pandas.DataFrame(columns | {f"c{place}": names[:, place] for place in range(names.shape[1])})

    x, test = frame(given["numbers"], given["names"]), frame(given["test_numbers"], given["test_names"])
    y, classes, seed = given["y"], int(given["classes"]), int(given["seed"])
    fitted, held = _hold_out(y, classes, _STOP, seed)
    options: dict[str, Any] = {
        "random_seed": seed,
        "iterations": _MOST_TREES,
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
        "cat_features": [name for name in x.columns if name.startswith("c")],
    }
    if classes:
        loss = "MultiClass" if classes > 2 else "Logloss"
        model = CatBoostClassifier(loss_function=loss, **options)
    else:
        model = CatBoostRegressor(loss_function="RMSEWithUncertainty", **options)
    model.fit(x.iloc[fitted], y[fitted], eval_set=(x.iloc[held], y[held]), early_stopping_rounds=_PATIENCE)
    if classes:
        return {"probs": model.predict_proba(test)}
    # The second column is the variance.
    predicted = model.predict(test, prediction_type="RMSEWithUncertainty")
    return {"mean": predicted[:, 0], "std": np.sqrt(predicted[:, 1])}


def lightgbm(given: Given) -> Found:
    """LightGBM; numbers with split conformal intervals, and a Gaussian of the same residuals' scale."""
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping

    def columns(numbers: Array, names: Rows, sizes: Rows) -> Array:
        # A category that no training row has is taken for missing.
        known = np.where((names < 0) | (names >= sizes), np.nan, names)
        return np.concatenate([numbers, known], axis=1)

    sizes = given["sizes"]
    x = columns(given["numbers"], given["names"], sizes)
    test = columns(given["test_numbers"], given["test_names"], sizes)
    y, classes, seed = given["y"], int(given["classes"]), int(given["seed"])
    first = given["numbers"].shape[1]
    options: dict[str, Any] = {"random_state": seed, "n_jobs": 1, "verbose": -1, "n_estimators": _MOST_TREES}
    fits: dict[str, Any] = {
        "callbacks": [early_stopping(_PATIENCE, verbose=False)],
        "categorical_feature": list(range(first, first + len(sizes))),
    }
    rows, calibration = np.arange(len(y)), np.arange(0)
    if not classes:
        rows, calibration = _hold_out(y, 0, _CALIBRATE, seed + 1)
    fitted, held = (rows[part] for part in _hold_out(y[rows], classes, _STOP * len(y) / len(rows), seed))
    model = LGBMClassifier(**options) if classes else LGBMRegressor(**options)
    model.fit(x[fitted], y[fitted], eval_set=[(x[held], y[held])], **fits)
    if classes:
        return {"probs": _by_class(model.predict_proba(test), model.classes_, classes)}
    away = np.sort(np.abs(y[calibration] - model.predict(x[calibration])))
    mean, scale = model.predict(test), math.sqrt(float(np.mean(away**2)))
    found = {"mean": mean, "std": np.full(len(mean), scale)}
    place = math.ceil((len(away) + 1) * float(given["level"]))
    # With fewer rows than that nothing is guaranteed, and the Gaussian's own interval is taken.
    if place <= len(away):
        found |= {"lower": mean - away[place - 1], "upper": mean + away[place - 1]}
    return found


def process(given: Given) -> Found:
    """A Gaussian process of scikit-learn: a squared exponential kernel and noise, on 2,000 rows at most.

    The kernel is found by at most 1,000 rows, with a length scale for each input where there are up to 30.
    Classes have Laplace's approximation, one against the rest, on 1,000 rows and with one length scale.
    """
    from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    x, test = _standard(*_dense(given))
    y, classes, seed = given["y"], int(given["classes"]), int(given["seed"])
    inputs = x.shape[1]
    start = math.sqrt(inputs)
    rows = _some_rows(y, classes, _KERNEL_ROWS, seed)
    if classes:
        kernel = ConstantKernel() * RBF(start)
        model = GaussianProcessClassifier(kernel, random_state=seed).fit(x[rows], y[rows])
        return {"probs": _by_class(model.predict_proba(test), model.classes_, classes)}
    scales = np.full(inputs, start) if inputs <= _SCALED_INPUTS else start
    kernel = ConstantKernel() * RBF(scales, (1e-2, 1e4)) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed).fit(x[rows], y[rows])
    if len(y) > len(rows):
        rows = _some_rows(y, 0, _PROCESS_ROWS, seed)
        model = GaussianProcessRegressor(model.kernel_, normalize_y=True, optimizer=None)
        model.fit(x[rows], y[rows])
    mean, std = model.predict(test, return_std=True)
    return {"mean": mean, "std": std}


def linear(given: Given) -> Found:
    """Ridge regression, its penalty and its Gaussian noise by leave-one-out; or logistic regression."""
    from sklearn.linear_model import LogisticRegression, RidgeCV

    x, test = _standard(*_dense(given))
    y, classes = given["y"], int(given["classes"])
    if classes:
        model = LogisticRegression(max_iter=2000).fit(x, y)
        return {"probs": _by_class(model.predict_proba(test), model.classes_, classes)}
    alphas = np.logspace(-3, 4, 15)
    model = RidgeCV(alphas, store_cv_results=True).fit(x, y)
    # Squared leave-one-out errors of every row and penalty.
    errors = model.cv_results_[:, int(np.flatnonzero(alphas == model.alpha_)[0])]
    mean = model.predict(test)
    return {"mean": mean, "std": np.full(len(mean), math.sqrt(float(errors.mean())))}


PEERS: dict[str, Callable[[Given], Found]] = {
    "ngboost": ngboost,
    "catboost": catboost,
    "lightgbm": lightgbm,
    "process": process,
    "linear": linear,
}


def _dense(given: Given) -> tuple[Array, Array]:
    """Numbers alone: medians for missing cells and a column that marks them, a column a category."""
    numbers, tested = given["numbers"], given["test_numbers"]
    lacking = np.isnan(numbers)
    present = [column[~np.isnan(column)] for column in numbers.T]
    fill = np.array([np.median(column) if len(column) else 0.0 for column in present])
    marked = lacking.any(0)
    categories = [range(-1 if (column < 0).any() else 0, size) for column, size in _with_sizes(given)]

    def made(values: Array, names: Rows) -> Array:
        filled = np.where(np.isnan(values), fill, values)
        of_names = [names[:, [place]] == np.array(kinds) for place, kinds in enumerate(categories)]
        return np.concatenate([filled, np.isnan(values)[:, marked], *of_names], axis=1).astype(np.float64)

    return made(numbers, given["names"]), made(tested, given["test_names"])


def _with_sizes(given: Given) -> list[tuple[Rows, int]]:
    return [(column, int(size)) for column, size in zip(given["names"].T, given["sizes"], strict=True)]


def _standard(x: Array, test: Array) -> tuple[Array, Array]:
    centre, width = x.mean(0), x.std(0)
    width[width == 0] = 1.0
    return (x - centre) / width, (test - centre) / width


def _hold_out(y: NDArray[Any], classes: int, share: float, seed: int) -> tuple[Rows, Rows]:
    """Rows to fit and rows to hold out, at random; of each class the share is rounded down."""
    order = np.random.default_rng(seed).permutation(len(y))
    if not classes:
        count = max(1, round(share * len(y)))
        return np.sort(order[count:]), np.sort(order[:count])
    held = [own[: int(share * len(own))] for own in (order[y[order] == place] for place in range(classes))]
    kept = np.concatenate(held) if sum(map(len, held)) else order[:1]
    return np.setdiff1d(order, kept), np.sort(kept)


def _some_rows(y: NDArray[Any], classes: int, most: int, seed: int) -> Rows:
    """At most so many rows, at random; classes in proportion, two rows of each at least."""
    order = np.random.default_rng(seed).permutation(len(y))
    if len(y) <= most:
        return np.sort(order)
    if not classes:
        return np.sort(order[:most])
    parts = [order[y[order] == place] for place in range(classes)]
    return np.sort(np.concatenate([own[: max(2, int(most * len(own) / len(y)))] for own in parts]))


def _by_class(probs: Array, known: NDArray[Any], classes: int) -> Array:
    """Probabilities of all classes, 0 for those that a model has not met."""
    made = np.zeros((len(probs), classes))
    made[:, np.asarray(known, dtype=np.int64)] = probs
    return made


def main(arguments: list[str]) -> None:
    """Read what is given, write what is found."""
    name, source, target = arguments
    with np.load(source, allow_pickle=False) as stored:
        given = {part: stored[part] for part in stored.files}
    np.savez(target, **fit_and_predict(name, given))


if __name__ == "__main__":
    main(sys.argv[1:])
