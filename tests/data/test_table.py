"""Tables and splits: every row once, scales of the training rows alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bayesdrop.data import from_table

X = np.random.default_rng(0).normal(3.0, 5.0, size=(50, 3))
Y = X.sum(1)


def test_every_split_is_a_partition_of_the_rows() -> None:
    table = from_table(X, Y, splits=7)
    assert (len(table), table.num_splits, table.x.shape, table.y.shape) == (50, 7, (50, 3), (50, 1))
    for train, test in zip(table.train, table.test, strict=True):
        assert len(test) == 5
        assert sorted([*train.tolist(), *test.tolist()]) == list(range(50))
    assert len({tuple(test.tolist()) for test in table.test}) == 7


def test_a_seed_gives_its_splits_again() -> None:
    first, second, other = (from_table(X, Y, seed=seed).test[0].tolist() for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_a_split_is_standardised_with_its_training_rows() -> None:
    from sklearn.preprocessing import StandardScaler

    table = from_table(X, Y)
    split, train, test = table.split(3, dtype=torch.float64), table.train[3], table.test[3]
    scaler = StandardScaler().fit(X[train])
    np.testing.assert_allclose(split.x_train, scaler.transform(X[train]), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(split.x_test, scaler.transform(X[test]), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(split.y_train[:, 0] * split.y_std + split.y_mean, Y[train], rtol=1e-12)
    np.testing.assert_allclose(split.y_test[:, 0], Y[test], rtol=1e-12)
    assert split.y_train.std(correction=0).item() == pytest.approx(1.0)


def test_a_constant_column_becomes_zero() -> None:
    table = from_table(np.column_stack([X, np.full(50, 0.1)]), Y)
    assert table.split(0).x_train[:, 3].abs().max() < 1e-6


def test_tensors_of_a_split_have_the_asked_type() -> None:
    table = from_table(torch.tensor(X), torch.tensor(Y))
    assert table.split(0).x_train.dtype == torch.get_default_dtype()
    assert table.split(0, dtype=torch.float64).y_test.dtype == torch.float64


def test_a_frame_and_a_single_column_are_tables_too() -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    assert torch.equal(from_table(frame, pd.Series(Y)).x, torch.tensor(X[:, :2]))
    assert from_table(X[:, 0], Y[:, None]).x.shape == (50, 1)


def test_the_table_does_not_share_memory_with_what_it_was_made_of() -> None:
    x = X.copy()
    table = from_table(x, Y)
    x[0, 0] = 1e9
    assert table.x[0, 0] == X[0, 0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"x": X[:49]}, "one number for each row"),
        ({"y": np.stack([Y, Y], 1)}, "one number for each row"),
        ({"x": np.where(X > 9, np.nan, X)}, "`x` must be finite"),
        ({"splits": 0}, "`splits` must be a positive int"),
        ({"test_fraction": 0.0}, "leaves rows to train and to test"),
        ({"test_fraction": 0.001}, "leaves rows to train and to test"),
        ({"test_fraction": 1.5}, "leaves rows to train and to test"),
    ],
)
def test_what_is_no_table_is_refused(options: dict[str, object], sentence: str) -> None:
    arguments = {"x": X, "y": Y} | options
    with pytest.raises(ValueError, match=sentence):
        from_table(arguments.pop("x"), arguments.pop("y"), **arguments)


def test_a_split_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="an int from 0 to 19; got 20"):
        from_table(X, Y).split(20)
