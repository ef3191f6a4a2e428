"""A table, and a small model folder for each task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from bayesdrop.tables import FitOptions, fit_table, save_table_model

TINY: dict[str, Any] = {"preset": "quick", "hidden": (8,), "epochs": 2, "num_draws": 12}


def make_houses(rows: int, seed: int) -> Any:
    source = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": source.uniform(30, 200, rows).round(1),
            "town": source.choice(["Ahome", "Bford", "Cton"], rows),
            "rooms": source.integers(1, 9, rows),
            "id": np.arange(rows) + 1_000_000 * seed,
        }
    )
    frame["price"] = 2 * frame["size"] + 40 * (frame["town"] == "Ahome") + source.normal(size=rows)
    return frame


@pytest.fixture(scope="session")
def houses() -> Callable[[int, int], Any]:
    """From a number of rows and a seed to a table."""
    return make_houses


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model folders "numbers" and "labels"."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    frame = make_houses(160, 0).drop(columns="id")
    for name, table in (
        ("numbers", frame),
        ("labels", frame.assign(price=np.where(frame["price"] > 240, "dear", "cheap"))),
    ):
        fitted = fit_table(table, FitOptions("price", estimator=TINY, held_out=0.4))
        save_table_model(fitted.model, folder / name, report="")
    return folder
