"""The Scorer: the same numbers, to the last bit, however rows are cut, and small enough to be sent."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.blocks import BLOCK_ROWS, with_aligned_rows
from bayesdrop.scoring import stored

ROWS = 2 * BLOCK_ROWS + 80


def mlp(activation: Callable[[], nn.Module], outputs: int) -> nn.Sequential:
    first = [nn.Linear(13, 37), activation(), nn.Dropout(0.3)]
    return nn.Sequential(*first, nn.Linear(37, 20), activation(), nn.Dropout(0.2), nn.Linear(20, outputs))


class Attention(nn.Module):
    """A model of a class of its own, which has no description in its file."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.TransformerEncoderLayer(12, 3, 16, dropout=0.2, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.body(x.reshape(x.shape[0], 3, 12)).mean(1)
        found: Tensor = self.head(hidden)
        return found


def convolutions() -> nn.Module:
    before = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout2d(0.3), nn.Conv2d(4, 5, 3), nn.ReLU()]
    return nn.Sequential(*before, nn.Flatten(), nn.Dropout(0.5), nn.Linear(5 * 16, 3))


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bd.Likelihood | None]] = {
    "relu": (lambda: mlp(nn.ReLU, 1), (13,), bd.Gaussian(0.1)),
    "tanh, raw": (lambda: mlp(nn.Tanh, 3), (13,), None),
    "gelu, noise": (lambda: mlp(nn.GELU, 2), (13,), bd.HeteroscedasticGaussian()),
    "concrete": (lambda: bd.convert(mlp(nn.ReLU, 5), "concrete"), (13,), bd.Categorical()),
    "dropconnect": (lambda: bd.convert(mlp(nn.SiLU, 5), "dropconnect"), (13,), bd.Categorical()),
    "convolutions": (convolutions, (1, 8, 8), bd.Categorical()),
}


def rows_of(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).normal(size=(ROWS, *shape)).astype(np.float32)


def assert_any_cut(scorer: bd.Scorer, batch: dict[str, np.ndarray[Any, Any]]) -> None:
    """Rows in any order, in batches of any size, come out with the same bits."""
    whole = scorer(batch)
    source = np.random.default_rng(2)
    for size in (1, 7, 333, BLOCK_ROWS - 1, BLOCK_ROWS + 1, ROWS):
        chosen = source.permutation(ROWS)[: max(size, 20)]
        for start in range(0, len(chosen), size):
            rows = chosen[start : start + size]
            part = scorer({name: values[rows] for name, values in batch.items()})
            for name, values in part.items():
                assert np.array_equal(values, whole[name][rows]), (name, size)


@pytest.mark.parametrize("name", CASES)
def test_rows_have_the_same_bits_in_any_partition(name: str) -> None:
    make, shape, likelihood = CASES[name]
    scorer = bd.Scorer(make(), num_draws=5, seed=3, likelihood=likelihood)
    assert_any_cut(scorer, {"x": rows_of(shape)})


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_those_of_predict(name: str) -> None:
    make, shape, likelihood = CASES[name]
    model, x = make(), rows_of(shape)
    found = bd.Scorer(model, num_draws=5, seed=3, likelihood=likelihood)({"x": x})
    by = bd.predict(model, x, num_draws=5, seed=3, likelihood=likelihood, batch_size=BLOCK_ROWS)
    for output, values in found.items():
        expected = getattr(by, output).numpy()
        assert np.array_equal(values[: 2 * BLOCK_ROWS], expected[: 2 * BLOCK_ROWS]), output
        np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("task", ["numbers", "labels"])
def test_rows_of_a_table_have_the_same_bits_in_any_partition(
    task: str, models: Path, houses: Callable[[int, int], Any]
) -> None:
    frame = houses(ROWS, 5)
    scorer = bd.Scorer(models / task, num_draws=9, keep=("id",))
    assert_any_cut(scorer, {name: frame[name].to_numpy() for name in frame})
    assert np.array_equal(scorer(frame)["id"], frame["id"])


def test_a_table_is_scored_as_by_the_command(models: Path, houses: Callable[[int, int], Any]) -> None:
    from bayesdrop.tables import load_table_model, predict_frame

    frame = houses(200, 6)
    found = bd.Scorer(models / "numbers")(frame)
    expected = predict_frame(load_table_model(models / "numbers"), frame, blocks=True)
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert np.array_equal(found[name].to_numpy(), values), name


def test_a_pickled_scorer_loads_its_model_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = bd.Scorer(mlp(nn.ReLU, 1), num_draws=5)
    sent = pickle.dumps(scorer)
    loads: list[int] = []
    original = stored.load

    def counted(*args: Any, **options: Any) -> nn.Module:
        loads.append(1)
        return original(*args, **options)

    monkeypatch.setattr(stored, "load", counted)
    x = rows_of((13,))[:5]
    first = scorer({"x": x})
    for _ in range(3):
        again = pickle.loads(sent)({"x": x})
        assert np.array_equal(again["mean"], first["mean"])
    assert len(loads) == 1


def test_a_path_is_sent_as_a_path_and_another_model_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    bd.save(mlp(nn.ReLU, 1), path)
    scorer = bd.Scorer(path, num_draws=5)
    assert len(pickle.dumps(scorer)) < 1000
    expected = bd.Scorer(bd.load(path), num_draws=5)({"x": rows_of((13,))})["mean"]
    assert np.array_equal(scorer({"x": rows_of((13,))})["mean"], expected)
    sent = pickle.dumps(bd.Scorer(path, num_draws=5))
    stored._LOADED.clear()
    torch.manual_seed(1)
    bd.save(mlp(nn.ReLU, 1), path)
    with pytest.raises(ValueError, match="is another model than when the scorer was made"):
        pickle.loads(sent)({"x": rows_of((13,))})


def test_a_model_of_own_classes_needs_a_function_that_builds_it() -> None:
    model = Attention()
    with pytest.raises(ValueError, match="Pass `build`, an importable function"):
        bd.Scorer(model)
    scorer = bd.Scorer(model, build=Attention, num_draws=4, likelihood=bd.Categorical())
    assert_any_cut(scorer, {"x": rows_of((36,))})


PROGRAM = """
import pickle, sys
import numpy as np
import torch
torch.set_num_threads(1)
with open(sys.argv[1], "rb") as file:
    scorer, x = pickle.load(file)
np.save(sys.argv[2], scorer({"x": x})["mean"])
"""


def test_another_process_has_the_same_bits(tmp_path: Path) -> None:
    scorer, x = bd.Scorer(mlp(nn.Tanh, 2), num_draws=5), rows_of((13,))
    (tmp_path / "sent").write_bytes(pickle.dumps((scorer, x[100:400])))
    words = [str(tmp_path / "sent"), str(tmp_path / "mean.npy")]
    subprocess.run([sys.executable, "-c", PROGRAM, *words], check=True)
    assert np.array_equal(np.load(tmp_path / "mean.npy"), scorer({"x": x})["mean"][100:400])


def test_a_frame_gives_a_frame_with_its_index() -> None:
    frame = pd.DataFrame(rows_of((13,))[:50], columns=[f"c{i}" for i in range(13)], index=range(7, 57))
    scorer = bd.Scorer(mlp(nn.ReLU, 2), num_draws=5, inputs=tuple(frame.columns), outputs=("mean", "std"))
    found = scorer(frame)
    assert list(found.columns) == ["mean_0", "mean_1", "std_0", "std_1"]
    assert list(found.index) == list(frame.index)
    empty = scorer(frame.iloc[:0])
    assert list(empty.columns) == list(found.columns)
    assert (empty.dtypes == found.dtypes).all()
    assert len(empty) == 0


def test_arrays_without_names_come_as_spark_sends_them() -> None:
    """`predict_batch_udf(make, ...)` calls `make()` once, then its result with one array a column."""
    x = rows_of((13,))[:50]
    names = tuple(f"c{i}" for i in range(13))
    model = mlp(nn.ReLU, 1)
    scorer = bd.Scorer(model, num_draws=5, inputs=names)
    expected = bd.Scorer(model, num_draws=5)({"x": x.astype(np.float64)})["mean"]
    by_columns: Any = scorer(*x.T)
    by_array: Any = scorer(x)
    assert np.array_equal(by_columns["mean"], expected)
    assert np.array_equal(by_array["mean"], expected)


def test_keywords_of_a_model_come_from_columns() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(3, 2), nn.Linear(4, 2)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return torch.nn.functional.dropout(self.one(a) + self.other(b), 0.4, True)

    model, source = Two(), np.random.default_rng(0)
    batch = {"left": source.normal(size=(9, 3)), "right": source.normal(size=(9, 4))}
    scorer = bd.Scorer(model, build=Two, num_draws=5, inputs={"a": "left", "b": "right"})
    expected = bd.predict(model, {"a": batch["left"], "b": batch["right"]}, num_draws=5)
    np.testing.assert_allclose(scorer(batch)["mean"], expected.mean.numpy(), rtol=1e-5, atol=1e-6)


def test_what_cannot_be_scored_is_refused() -> None:
    model = mlp(nn.ReLU, 1)
    x = rows_of((13,))[:3]
    with pytest.raises(ValueError, match=r"`outputs` must be some of mean, std, .*; got \['probs'\]"):
        bd.Scorer(model, outputs=("probs",))
    with pytest.raises(ValueError, match="Say which are the model's"):
        bd.Scorer(model)({"x": x, "id": np.arange(3)})
    with pytest.raises(ValueError, match=r"`keep` must be among the columns \['x'\]"):
        bd.Scorer(model, keep=("id",))({"x": x})
    with pytest.raises(ValueError, match="one common number of rows"):
        bd.Scorer(model, inputs="x")({"x": x, "id": np.arange(4)})
    with pytest.raises(TypeError, match="numbers in 'x'"):
        bd.Scorer(model)({"x": np.array(["a", "b"])})
    with pytest.raises(FileNotFoundError, match="there is no file"):
        bd.Scorer("nowhere.safetensors")
    with pytest.raises(TypeError, match=r"an nn\.Module, or the path"):
        bd.Scorer(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("inputs", [1, 5, 6, 7, 9, 127])
@pytest.mark.parametrize("outputs", [1, 2, 4, 8])
def test_a_row_has_the_same_bits_wherever_it_stands_in_a_block(inputs: int, outputs: int) -> None:
    source = torch.Generator().manual_seed(inputs)
    row, weight = (torch.randn(size, inputs, generator=source) for size in (1, outputs))
    x, wide = with_aligned_rows(row.expand(BLOCK_ROWS, inputs), weight)
    assert x.shape[1] % 4 == 0
    found = torch.nn.functional.linear(x, wide)
    assert torch.equal(found, found[:1].expand_as(found))
    torch.testing.assert_close(found[:1], row @ weight.T)
