"""Boosted trees and linear maps: the same numbers as scikit-learn's, of rows that they have not seen."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from bayesdrop.estimators import DropoutClassifier, DropoutRegressor
from bayesdrop.stacked import Candidate, FitRecipe, Settings, TrainingTable, fit_tables
from bayesdrop.stacked import fit as fitting
from bayesdrop.stacked.encode import Encoder
from bayesdrop.stacked.start import Guess, guess_table
from bayesdrop.stacked.trees import Trees, read_trees

SMALL: dict[str, Any] = {"max_iter": 12, "max_leaf_nodes": 6, "min_samples_leaf": 5, "early_stopping": False}


def waves(rows: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The first two columns count, the others do not."""
    source = np.random.default_rng(seed)
    x = source.normal(size=(rows, columns))
    return x, 2 * x[:, 1] + np.sin(2 * x[:, 0]) + 0.2 * source.normal(size=rows)


def test_trees_predict_what_scikit_learn_predicts() -> None:
    x, y = waves(300, 4)
    new = 3 * waves(200, 4, seed=1)[0]
    model = HistGradientBoostingRegressor(**SMALL).fit(x, y)
    trees = read_trees(model)
    np.testing.assert_allclose(trees(new)[:, 0], model.predict(new), rtol=1e-12, atol=1e-12)
    for count, stage in enumerate(model.staged_predict(new), 1):
        short = trees.first(count)
        np.testing.assert_allclose(short(new)[:, 0], stage, rtol=1e-12, atol=1e-12)
    assert len(trees.first(3).feature) < len(trees.feature)


def test_small_trees_are_the_same_from_their_arrays_when_deeper_ones_are_left_out() -> None:
    x, y = waves(300, 4)
    model = HistGradientBoostingRegressor(**SMALL).fit(x, y)
    stump = HistGradientBoostingRegressor(**{**SMALL, "max_leaf_nodes": 2, "max_iter": 1}).fit(x, y)
    few = replace(read_trees(stump), depth=read_trees(model).depth)
    assert few.depth > len(few.feature)
    # 10^9 steps would not end.
    for depth in (few.depth, 10**9):
        again = Trees.from_dict(few.as_dict() | {"depth": np.array(depth)}, 4)
        np.testing.assert_array_equal(again(x), few(x))
        assert again.depth <= len(few.feature)
    assert few.first(1).depth <= len(few.feature)


@pytest.mark.parametrize("leaves", [2, 31, 32, 33])
def test_many_rows_fall_into_the_leaves_that_few_do(leaves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = waves(900, 5)
    label = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    options = {**SMALL, "max_leaf_nodes": leaves, "min_samples_leaf": 2}
    trees = read_trees(HistGradientBoostingClassifier(**options).fit(x, label))
    new = 2 * waves(300, 5, seed=1)[0]
    # On a threshold, beyond all of them, and no number at all.
    thresholds = trees.threshold[trees.left != np.arange(len(trees.left))]
    new[:50, 1] = np.resize(thresholds, 50)
    new[50], new[51], new[52] = 1e300, -1e300, np.nan
    few = trees(new)
    monkeypatch.setattr("bayesdrop.stacked.trees._MANY", 1)
    assert np.array_equal(trees(new), few)
    if leaves <= 32:
        monkeypatch.setattr(Trees, "leaves", None)  # nobody walks
        assert np.array_equal(trees(new), few)


@pytest.mark.parametrize("classes", [2, 4])
def test_trees_of_classes_give_their_probabilities(classes: int) -> None:
    x, y = waves(400, 3)
    label = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    model = HistGradientBoostingClassifier(**SMALL).fit(x, label)
    scores = read_trees(model)(x)
    if classes == 2:
        scores = np.concatenate([np.zeros_like(scores), scores], 1)
    probs = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(probs / probs.sum(1, keepdims=True), model.predict_proba(x), atol=1e-12)


def test_a_guess_has_not_seen_the_rows_of_its_part() -> None:
    x, y = waves(240, 5)
    parts = np.arange(240) % 4
    before = guess_table(x, y[:, None], parts)
    changed = y.copy()
    changed[parts == 2] = np.random.default_rng(1).permutation(changed[parts == 2])
    after = guess_table(x, changed[:, None], parts)
    assert before is not None
    assert after is not None
    same = [
        np.array_equal(a.trees.first(1).value, b.trees.first(1).value)
        for a, b in zip(before.guesses, after.guesses, strict=True)
    ]
    assert same == [False, False, True, False]
    for part, guess in enumerate(before.guesses):
        own = parts == part
        np.testing.assert_array_equal(before.predicted[own], guess(x[own]))
    # Both have found something, and neither knows the noise.
    errors = np.square(before.predicted - y[:, None]).mean(0)
    assert (errors < 0.5 * y.var()).all()
    assert (errors > 0.2**2).all()


def test_columns_that_count_are_found_among_many_that_do_not() -> None:
    x, y = waves(300, 60)
    start = guess_table(x, y[:, None], np.arange(300) % 4)
    assert start is not None
    assert start.columns <= 5
    for part in range(4):
        assert set(start.telling(part, start.columns)) >= {0, 1}


def test_the_linear_map_is_that_of_the_columns_own_units() -> None:
    source = np.random.default_rng(0)
    x = source.normal(size=(200, 3)) * [1e-3, 1.0, 1e6] + [5.0, 0.0, -1e7]
    y = 1e3 * x[:, 0] + 2 * x[:, 1] - 1e-6 * x[:, 2]
    start = guess_table(x, y[:, None], np.arange(200) % 4)
    assert start is not None
    for guess in start.guesses:
        np.testing.assert_allclose(guess.slopes[:, 0], [1e3, 2, -1e-6], rtol=0.01)
        np.testing.assert_allclose(x @ guess.slopes[:, 0] + guess.levels[0], y, atol=0.05)


def test_constant_columns_do_no_harm() -> None:
    x, y = waves(100, 3)
    x[:, 2] = 7.0
    start = guess_table(x, y[:, None], np.arange(100) % 4)
    assert start is not None
    assert np.isfinite(start.predicted).all()
    assert (start.harm[:, 2] == 0).all()


@pytest.mark.parametrize("size", [1e-130, 1e-30, 1e30, 1e130])
def test_columns_of_any_size_can_be_fitted(size: float, tmp_path: Any) -> None:
    x, y = waves(80, 3)
    x[:, 2] *= size
    model = DropoutRegressor(random_state=0, epochs=5, hidden=8).fit(x, y)
    assert np.isfinite(model.predict(x)).all()
    model.save(tmp_path / "model.safetensors")
    again = DropoutRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_there_is_no_start_where_a_class_is_in_one_part_alone() -> None:
    x, _ = waves(40, 2)
    label = np.zeros(40, dtype=np.int64)
    label[:10] = 1
    label[12] = 2
    assert guess_table(x, label, np.arange(40) % 4, classes=3) is None
    label[[12, 13, 14, 15]] = 2
    assert guess_table(x, label, np.arange(40) % 4, classes=3) is not None


def test_arrays_that_are_no_trees_are_refused() -> None:
    x, y = waves(80, 3)
    start = guess_table(x, y[:, None], np.arange(80) % 4)
    assert start is not None
    whole = start.guesses[0].as_dict()
    again = Guess.from_dict(whole, 3)
    np.testing.assert_array_equal(again(x), start.guesses[0](x))
    nodes = len(whole["feature"])
    bad: dict[str, Any] = {
        "feature": whole["feature"] + 3, "left": whole["left"] - nodes, "right": whole["right"] + nodes,
        "roots": whole["roots"] + nodes, "value": whole["value"] * np.nan,
        "threshold": whole["threshold"][1:], "base": whole["base"][:0],
        "depth": np.array(-1), "slopes": whole["slopes"][1:],
        "levels": whole["levels"] * np.inf,
    }  # fmt: skip
    for name, array in bad.items():
        with pytest.raises(ValueError, match="must be"):
            Guess.from_dict(whole | {name: array}, 3)
    with pytest.raises(ValueError, match="must be"):
        Trees.from_dict({}, 3)


def test_an_encoder_adds_the_guess_and_leaves_columns_out() -> None:
    x, y = waves(120, 6)
    start = guess_table(x, y[:, None], np.arange(120) % 4)
    assert start is not None
    chosen, guess = np.array([0, 1]), start.guesses[1]
    encoder = Encoder.of(x, chosen=chosen, guess=guess, predicted=start.predicted)
    new = waves(30, 6, seed=2)[0]
    columns = np.concatenate([new[:, chosen], guess(encoder.seen.bounded(new))], 1)
    expected = (columns - encoder.mean) / encoder.scale
    np.testing.assert_allclose(encoder(new).numpy(), expected, rtol=1e-5, atol=1e-5)
    # Rows of the table are told what guesses said that had not seen them.
    train = np.concatenate([x[:, chosen], start.predicted], 1)
    expected = (train - encoder.mean) / encoder.scale
    np.testing.assert_allclose(
        np.asarray(encoder.table_inputs(x, start.predicted)), expected, rtol=1e-5, atol=1e-5
    )
    again = Encoder.from_dict(encoder.as_dict())
    np.testing.assert_array_equal(again(new).numpy(), encoder(new).numpy())
    with pytest.raises(ValueError, match="given with `guess`"):
        Encoder.of(x, guess=guess)


def with_start(**options: Any) -> FitRecipe:
    settings = Settings(hidden=(16,), epochs=20, batch_size=32, lr=1e-2)
    candidates = [Candidate(settings, start=True), Candidate(settings, 4, start=True, few=True)]
    return FitRecipe(tuple(candidates), folds=4, parts=4, **options)


def test_a_start_makes_wide_tables_easy() -> None:
    x, y = waves(260, 80)
    plain = FitRecipe(
        (Candidate(Settings(hidden=(16,), epochs=20, batch_size=32, lr=1e-2)),), folds=4, parts=4
    )
    table = TrainingTable(x[:200], y[:200, None])
    errors = []
    for recipe in (plain, with_start()):
        mean = fit_tables([table], recipe)[0].predict(x[200:]).mean[:, 0].numpy()
        errors.append(float(np.square(mean - y[200:]).mean() / y[200:].var()))
    assert errors[1] < 0.2
    assert errors[1] < 0.5 * errors[0]


def test_only_survivors_of_the_first_look_are_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    train = fitting.train

    def counted(jobs: Any, **options: Any) -> Any:
        trained.append(len(list(jobs)))
        return train(jobs, **options)

    monkeypatch.setattr(fitting, "train", counted)
    x, y = waves(80, 2)
    settings = [Settings(hidden=(8,), epochs=5, p=p) for p in (0.01, 0.05, 0.1, 0.2)]
    recipe = FitRecipe(tuple(map(Candidate, settings)), folds=5, parts=5, scouts=2, survivors=2)
    found = fit_tables([TrainingTable(x, y[:, None])], recipe)[0]
    assert trained[:2] == [4 * 2, 2 * 3]
    assert len(found.components) == 5
    assert sum(row["picked"] for row in found.search) == 1


def test_an_estimator_with_a_start_is_the_same_from_its_file(tmp_path: Any) -> None:
    x, y = waves(150, 14)
    model = DropoutRegressor(random_state=0, epochs=10, hidden=16).fit(x[:100], y[:100])
    assert any("start" in one.encoder for one in model.mixture_.components)
    model.save(tmp_path / "model.safetensors")
    again = DropoutRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(x[100:]), model.predict(x[100:]))
    np.testing.assert_array_equal(again.outside(1e3 * x), model.outside(1e3 * x))
    model.partial_fit(x[100:], y[100:])
    assert np.isfinite(model.predict(x)).all()


@pytest.mark.parametrize("labels", [False, True])
def test_classes_and_labels_have_a_start_too(labels: bool) -> None:
    x, y = waves(160, 3)
    target = np.stack([y > 0, x[:, 0] > 1], 1) if labels else np.digitize(y, [-1.0, 1.0])
    model = DropoutClassifier(random_state=0, epochs=10, hidden=16).fit(x[:120], target[:120])
    assert any(row["start"] for row in model.search_results_)
    right = model.predict(x[120:]) == target[120:]
    assert right.mean() > 0.8


def test_a_start_needs_rows_that_are_held_out() -> None:
    settings = Settings(hidden=(8,))
    with pytest.raises(ValueError, match="without `start` and `few`"):
        FitRecipe((Candidate(settings, start=True),), parts=0)
