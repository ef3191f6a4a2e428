"""What closed-form Bayesian dropout costs beside scikit-learn's ridge regressions, as ratios.

    python benchmarks/linear.py [--quick] [--cases ...] [--output results/linear.json]

One thread, CPU time, best of five rounds in which both contenders take turns. Writes JSON and, from it, the
table of docs/linear.md. Cases that are not asked for keep what an earlier run found.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.linear_model import BayesianRidge, Ridge
from threadpoolctl import threadpool_limits

from bayesdrop.data import DataNotFound, load_amazon
from bayesdrop.experiments import herlau2022_simulation as simulation
from bayesdrop.linear import BayesianDropoutRegression, dropout_path
from networks import best_times

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = ROOT / "results" / "linear.json"
PAGE = ROOT / "docs" / "linear.md"
BEGIN, END = "<!-- linear: begin -->", "<!-- linear: end -->"
ROUNDS = 5


def books(tol: float, *, quick: bool) -> dict[str, Any]:
    """The mean of a fit to 1,500 reviews with all words and pairs, against sparse conjugate gradients."""
    reviews = load_amazon("books", "full")
    rows = np.random.default_rng(0).permutation(len(reviews.y))[: 200 if quick else 1500]
    X, y = reviews.x[rows], reviews.y[rows].astype(float)
    ours = BayesianDropoutRegression(f=0.5, lambda0=1.0, solver="cg", tol=tol)
    theirs = Ridge(alpha=1.0, solver="sparse_cg", tol=tol)
    times = best_times(
        {"ours": lambda: ours.fit(X, y), "theirs": lambda: theirs.fit(X, y)}, rounds=_rounds(quick)
    )
    return {
        "title": f"mean of books reviews, {X.shape[0]:,} x {X.shape[1]:,} sparse, relative residual {tol:g}",
        "peer": 'Ridge(solver="sparse_cg")',
        "ratio": times["ours"] / times["theirs"],
        "bar": 1.5,
        "unit": "of its time, at most",
    }


def dense(kind: str, *, quick: bool) -> dict[str, Any]:
    """A dense fit with uncertainties, 2,000 rows and features, against BayesianRidge."""
    size, new = (100, 20) if quick else (2000, 500)
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(size, size)), rng.normal(size=(new, size))
    y = X @ rng.normal(size=size) / np.sqrt(size) + rng.normal(size=size)

    def ours() -> object:
        if kind == "chosen":
            return BayesianDropoutRegression(f=0.1, lambda0="marginal").fit(X, y).predict(Z, return_std=True)
        model = BayesianDropoutRegression(f=0.1, lambda0=1.0).fit(X, y)
        return model.covariance() if kind == "covariance" else model.predict(Z, return_std=True)

    def theirs() -> object:
        model = BayesianRidge().fit(X, y)
        return model.sigma_ if kind == "covariance" else model.predict(Z, return_std=True)

    times = best_times({"ours": ours, "theirs": theirs}, rounds=1 if quick else 3)
    predictions = f"{new} predictions with standard deviations"
    what = {
        "std": f"fit and {predictions}",
        "covariance": "fit and full posterior covariance",
        "chosen": f"fit with lambda0 chosen by marginal likelihood, {predictions}",
    }[kind]
    return {
        "title": f"dense {size:,} x {size:,}: {what}",
        "peer": "BayesianRidge",
        "ratio": times["theirs"] / times["ours"],
        "bar": 10.0 if kind == "std" else None,
        "unit": "times as fast, at least",
    }


def path(*, quick: bool) -> dict[str, Any]:
    """A path of 100 pairs on one design, against as many fits."""
    rows, features, points = (50, 10, 3) if quick else (2000, 200, 10)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    y = X @ rng.normal(size=features) + rng.normal(size=rows)
    rates, priors = np.linspace(0.0, 0.9, points), np.geomspace(1e-3, 1e3, points)

    def fits() -> None:
        for f in rates:
            for lambda0 in priors:
                BayesianDropoutRegression(f=f, lambda0=lambda0).fit(X, y)

    calls = {"ours": lambda: dropout_path(X, y, f=rates, lambda0=priors, scores=False), "theirs": fits}
    times = best_times(calls, rounds=_rounds(quick))
    return {
        "title": f"path of {points**2} pairs (f, lambda0), dense {rows:,} x {features}",
        "peer": "as many single fits",
        "ratio": times["theirs"] / times["ours"],
        "bar": None,
        "unit": "times as fast",
    }


def data_sets(*, quick: bool) -> dict[str, Any]:
    """Minutes that the nine settings of the simulation take on two cores, from some of the data sets."""
    count = 20 if quick else 1000
    config = simulation.Config(num_data_sets=count, piece_size=count)
    keys = [{"config": config, "features": features, "piece": 0} for features in config.features]
    times = best_times({"ours": lambda: [simulation.piece(key) for key in keys]}, rounds=1)
    fits = len(simulation.CONDITIONS) * (2 * len(config.ridge) + len(config.f)) * len(keys)
    return {
        "title": f"simulation, 9 settings, {fits:,} fits for each of 100,000 data sets ({count:,} timed)",
        "peer": "",
        "ratio": times["ours"] * 100_000 / count / 60 / 2,
        "bar": 15.0,
        "unit": "minutes on two cores, at most",
    }


def _rounds(quick: bool) -> int:
    return 1 if quick else ROUNDS


CASES: dict[str, Callable[..., dict[str, Any]]] = {
    "books-1e-4": lambda quick: books(1e-4, quick=quick),
    "books-1e-6": lambda quick: books(1e-6, quick=quick),
    "dense-std": lambda quick: dense("std", quick=quick),
    "dense-covariance": lambda quick: dense("covariance", quick=quick),
    "dense-chosen": lambda quick: dense("chosen", quick=quick),
    "path": lambda quick: path(quick=quick),
    "simulation": lambda quick: data_sets(quick=quick),
}


def report(found: dict[str, Any]) -> str:
    """The table of a run, in Markdown."""
    lines = ["| what | against | measured | bar |", "|---|---|---|---|"]
    for name in CASES:
        if name not in found["cases"]:
            continue
        case = found["cases"][name]
        if "not_run" in case:
            lines.append(f"| {name} | | not run: {case['not_run']} | |")
            continue
        at_most = "most" in case["unit"]
        met = case["bar"] is None or (
            case["ratio"] <= case["bar"] if at_most else case["ratio"] >= case["bar"]
        )
        value = f"**{case['ratio']:.3g}**" if met else f"{case['ratio']:.3g} (misses its bar)"
        unit = case["unit"].partition(",")[0]
        bar = "" if case["bar"] is None else f"at {'most' if at_most else 'least'} {case['bar']:g}"
        lines.append(f"| {case['title']} | {case['peer']} | {value} {unit} | {bar} |")
    lines += ["", f"scikit-learn {found['sklearn']}, numpy {found['numpy']}, one thread, CPU time."]
    return "\n".join(lines)


def rewritten(page: str, table: str) -> str:
    """A page with the text between its two markers replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page must hold {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: does it run at all")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument(
        "--output", type=Path, help=f"default: {RESULTS.relative_to(ROOT)}; with --quick: none"
    )
    options = parser.parse_args(arguments)
    cases = {}
    with threadpool_limits(1):
        for name in options.cases:
            print(f"{name} ...", file=sys.stderr, flush=True)
            try:
                case = CASES[name](quick=options.quick)
            except DataNotFound as error:
                cases[name] = {"not_run": str(error).partition(". ")[0]}
                continue
            cases[name] = case | {"ratio": float(f"{case['ratio']:.4g}")}
    output = options.output or (None if options.quick else RESULTS)
    earlier: dict[str, Any] = {}
    if output is not None and output.exists():
        earlier = json.loads(output.read_text(encoding="utf-8"))["cases"]
    found: dict[str, Any] = {
        "sklearn": sklearn.__version__,
        "numpy": np.__version__,
        "quick": options.quick,
        "cases": earlier | cases,
    }
    table = report(found)
    print(table)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        _write(output, json.dumps(found, indent=2) + "\n")
    if output == RESULTS:
        _write(PAGE, rewritten(PAGE.read_text(encoding="utf-8"), table))


if __name__ == "__main__":
    main()
