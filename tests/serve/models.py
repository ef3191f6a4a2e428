"""Small models to serve, and clients of applications that serve them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from bayesdrop.serve.app import create_app
from bayesdrop.serve.settings import ServeSettings
from bayesdrop.tables import FitOptions, fit_table, open_table, save_table_model


def table_rows(count: int = 160, seed: int = 0) -> list[dict[str, object]]:
    """Rows of a table: numbers, a category, something that is sometimes missing."""
    random = np.random.default_rng(seed)
    made: list[dict[str, object]] = []
    for number in range(count):
        x, z = random.normal(), random.normal()
        made.append(
            {
                "x": float(x),
                "z": None if number % 7 == 0 else float(z),
                "colour": ["red", "green", "blue"][number % 3],
                "price": float(2 * x + random.normal() * 0.2),
                "kind": "high" if x > 0 else "low",
            }
        )
    return made


@dataclass(frozen=True)
class Fitted:
    """A model folder, its table, and rows to ask about."""

    folder: Path
    data: Path
    rows: list[dict[str, object]]
    target: str


def fit_folder(home: Path, target: str) -> Fitted:
    rows = table_rows()
    data = home / f"{target}.csv"
    other = "kind" if target == "price" else "price"
    lines = [{name: cell for name, cell in row.items() if name != other} for row in rows]
    names = list(lines[0])
    cells = [",".join("" if line[name] is None else str(line[name]) for name in names) for line in lines]
    data.write_text("\n".join([",".join(names), *cells]) + "\n")
    quick = {"preset": "quick", "hidden": (8,), "epochs": 8, "num_draws": 20}
    fitted = fit_table(open_table(data).read(), FitOptions(target, estimator=quick, held_out=0.15))
    save_table_model(fitted.model, home / f"{target}-model", report="<p>report</p>")
    asked = [{name: row[name] for name in ("x", "z", "colour")} for row in table_rows(40, seed=1)]
    return Fitted(home / f"{target}-model", data, asked, target)


@contextmanager
def serving(fitted: Fitted | Path | str, home: Path, **options: object) -> Iterator[TestClient]:
    """A client of a running application."""
    model = str(fitted.folder if isinstance(fitted, Fitted) else fitted)
    settings = ServeSettings(model, home=home, refit_apart=False, **options)  # type: ignore[arg-type]
    with TestClient(create_app(settings)) as client:
        yield client
