"""Dask: a Scorer maps the partitions of a frame as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn

import bayesdrop as bd

dask = pytest.importorskip("dask.dataframe", reason="dask is not installed (extra dask)")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("partitions", [1, 4])
def test_partitions_have_the_bits_of_the_whole_frame(partitions: int) -> None:
    names = ("a", "b", "c")
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))
    scorer = bd.Scorer(net, num_draws=5, likelihood=bd.Categorical(), inputs=names, keep=("id",))
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(500, 3)), columns=list(names))
    frame["id"] = np.arange(500)
    shared = dask.from_pandas(frame, npartitions=partitions)
    found = shared.map_partitions(scorer, meta=scorer(frame.iloc[:0])).compute(scheduler="sync")
    pd.testing.assert_frame_equal(found, scorer(frame), check_exact=True)


def test_partitions_of_a_table_have_the_bits_of_the_whole(
    models: Path, houses: Callable[[int, int], Any]
) -> None:
    frame = houses(400, 8)
    scorer = bd.Scorer(models / "labels", outputs=("label", "entropy", "defer"))
    shared = dask.from_pandas(frame, npartitions=3)
    found = shared.map_partitions(scorer, meta=scorer(frame.iloc[:0])).compute(scheduler="sync")
    expected = scorer(frame)
    assert np.array_equal(found["entropy"].to_numpy(), expected["entropy"].to_numpy())
    assert list(found["label"]) == list(expected["label"])
