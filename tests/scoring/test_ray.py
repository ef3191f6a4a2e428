"""Ray for real, one node with two workers: the same bits, pieces that are run again, and a search."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn

import bayesdrop as bd
from bayesdrop.engines import LocalEngine, RayEngine, running_on
from bayesdrop.scoring import score_tables

pytest.importorskip("ray", reason="ray is not installed (extra ray)")
# Ray leaves sockets and files to be closed by the collector, and warns of its own past.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray

        os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0")
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


def dies_once(folder: str, key: Any) -> dict[str, Any]:
    """A piece that kills the worker which computes it first."""
    mark = Path(folder) / f"mark-{key['seed']}"
    if key["seed"] == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": np.random.default_rng(key["seed"]).normal(size=3)}


def fails(key: Any) -> dict[str, Any]:
    raise FileNotFoundError(f"no file {key['seed']}")


def test_a_piece_whose_worker_is_lost_is_run_again_and_an_error_keeps_its_type(
    cluster: Any, tmp_path: Path
) -> None:
    from bayesdrop.experiments.pieces import PieceCache, run_pieces

    cloudpickle = pytest.importorskip("ray.cloudpickle")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cache = PieceCache("lost", folder=tmp_path, engine=RayEngine(workers=2))
    keys = [{"seed": seed} for seed in range(4)]
    pieces = run_pieces(keys, partial(dies_once, str(tmp_path)), cache=cache)
    assert (tmp_path / "mark-1").exists()
    for seed, piece in enumerate(pieces):
        assert np.array_equal(piece["value"], np.random.default_rng(seed).normal(size=3))
    with pytest.raises(FileNotFoundError, match="no file 7") as caught:
        run_pieces([{"seed": 7}], fails, cache=cache)
    assert "in the piece seed=7" in caught.value.__notes__


def test_an_experiment_on_ray_has_the_numbers_of_one_process(cluster: Any, tmp_path: Path) -> None:
    from bayesdrop.experiments import run_experiment

    records = [
        run_experiment(
            "herlau2022-simulation",
            preset="smoke",
            output=tmp_path / name,
            cache=tmp_path / f"cache-{name}",
            engine=engine,
        )
        for name, engine in (("local", None), ("ray", RayEngine(workers=2)))
    ]
    alone, shared = records
    assert alone.outcome.rows == shared.outcome.rows
    assert alone.outcome.rows


def test_searches_on_the_ray_backend_of_joblib_are_those_of_one_process(cluster: Any) -> None:
    import joblib
    from ray.util.joblib import register_ray
    from sklearn.model_selection import GridSearchCV

    from bayesdrop.estimators import DropoutRegressor

    register_ray()
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = x[:, 0] + 0.1 * x[:, 1]
    options: dict[str, Any] = {"preset": "quick", "hidden": (4,), "epochs": 2, "num_draws": 4}

    def searched() -> Any:
        model = DropoutRegressor(**options, random_state=0)
        return GridSearchCV(model, {"p": [0.05, 0.3]}, cv=2, n_jobs=2).fit(x, y)

    def gridded() -> Any:
        grid = {"length_scale": [0.01, 0.1]}
        return DropoutRegressor(**options, search="grid", grid=grid, processes=2, random_state=0).fit(x, y)

    with joblib.parallel_config("sequential"), running_on(LocalEngine(1)):
        alone, alone_gridded = searched(), gridded()
    with joblib.parallel_config("ray"):
        shared, shared_gridded = searched(), gridded()
    assert np.array_equal(alone.cv_results_["mean_test_score"], shared.cv_results_["mean_test_score"])
    assert np.array_equal(alone_gridded.predict(x), shared_gridded.predict(x))
