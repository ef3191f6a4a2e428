"""Ray for real, one node with two workers: the same bits, pieces that are run again, and a search."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn

import bayesdrop as bd
from bayesdrop.engines import LocalEngine, RayEngine
from bayesdrop.scoring import score_tables

pytest.importorskip("ray", reason="ray is not installed (extra ray)")
# Ray leaves sockets and files to be closed by the collector, and warns of its own past.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=200 * 2**20,
            _node_ip_address="127.0.0.1",
        )
        yield ray
        ray.shutdown()


def test_map_batches_has_the_bits_of_a_loop(cluster: Any) -> None:
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))
    x = np.random.default_rng(0).normal(size=(2000, 3))
    options: dict[str, Any] = {"num_draws": 5, "likelihood": bd.Categorical(), "inputs": "x", "keep": ("id",)}
    expected = bd.Scorer(net, **options)({"id": np.arange(2000), "x": x})
    frame = pd.DataFrame({"id": np.arange(2000), "x": list(x)})
    dataset = ray.data.from_pandas([frame.iloc[:1300], frame.iloc[1300:]])
    actors = dataset.map_batches(
        bd.Scorer,
        fn_constructor_args=(net,),
        fn_constructor_kwargs=options,
        compute=ray.data.ActorPoolStrategy(size=2),
        batch_size=700,
        batch_format="numpy",
    )
    tasks = dataset.map_batches(bd.Scorer(net, **options), batch_size=450, batch_format="numpy")
    for found in (actors, tasks):
        batches = list(found.iter_batches(batch_size=None, batch_format="numpy"))
        order = np.argsort(np.concatenate([batch["id"] for batch in batches]))
        for name, values in expected.items():
            assert np.array_equal(np.concatenate([batch[name] for batch in batches])[order], values), name


def test_parts_on_ray_are_those_of_one_process(
    cluster: Any, models: Path, tmp_path: Path, houses: Callable[[int, int], Any]
) -> None:
    houses(1500, 3).to_parquet(tmp_path / "t.parquet", index=False)
    for name, engine in (("local", LocalEngine(1)), ("ray", RayEngine(workers=2))):
        data = [tmp_path / "t.parquet"]
        score_tables(models / "numbers", data, tmp_path / name, engine=engine, part_rows=400)
    local, ray = (
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("part-*")}
        for name in ("local", "ray")
    )
    assert len(local) == 4
    assert local == ray
