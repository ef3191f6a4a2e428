"""`bayesdrop fit` and `predict` on a wide table and on a long one: CPU seconds, and memory at the peak.

Every command runs in a process of its own, so that the memory is its own too. "reading" only reads the table,
the least that a fit of it can do.

    python benchmarks/tables.py            # both, with the preset "quick"
    python benchmarks/tables.py --rows 50000 --columns 300 --preset default
    python benchmarks/tables.py --fits     # seconds by the clock of a fit, beside HistGradientBoosting

`--fits` takes the estimators as they are, with the threads that torch and scikit-learn take by themselves.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

#: runs the command line and says what it took
PROGRAM = """
import json, resource, sys, time
if sys.argv[1] == "read":
    from bayesdrop.tables import open_table
    open_table(sys.argv[2]).read()
else:
    from bayesdrop.cli import build_app
    build_app()(sys.argv[1:], standalone_mode=False)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": time.process_time(), "megabytes": peak}))
"""


def write_table(path: Path, rows: int, columns: int) -> None:
    """A table of normal numbers, some of which the target follows."""
    source = np.random.default_rng(0)
    x = source.normal(size=(rows, columns))
    y = x[:, 0] + np.sin(x[:, 1 % columns]) + 0.3 * source.normal(size=rows)
    header = ",".join([*(f"c{place}" for place in range(columns)), "y"])
    np.savetxt(path, np.column_stack([x, y]), delimiter=",", header=header, comments="", fmt="%.6g")


def measured(*arguments: str | Path) -> dict[str, float]:
    """Seconds and megabytes of a command."""
    return _measured(PROGRAM, *arguments)


def _measured(program: str, *arguments: str | Path | int) -> dict[str, float]:
    """What a program says of itself, run in a process of its own."""
    words = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


#: rows and columns whose fits are timed
SHAPES = ((300, 8), (1000, 8), (10_000, 20), (50_000, 20), (500_000, 20))
#: fits one estimator and says how long it took by the clock, and how well it predicts new rows
FIT = """
import json, sys, time
import numpy as np
name, rows, columns, preset = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
source = np.random.default_rng(0)
x = source.normal(size=(rows + 10_000, columns))
y = x[:, 0] + np.sin(2 * x[:, 1]) * x[:, 2] + 0.3 * source.normal(size=len(x))
if name == "boosting":
    from sklearn.ensemble import HistGradientBoostingRegressor
    model = HistGradientBoostingRegressor(random_state=0)
else:
    from bayesdrop.estimators import DropoutRegressor
    model = DropoutRegressor(preset=preset, random_state=0)
start = time.perf_counter()
model.fit(x[:rows], y[:rows])
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "r2": model.score(x[rows:], y[rows:])}))
"""


def time_fits(preset: str, repeats: int) -> None:
    """Seconds by the clock to fit tables of several sizes, the least of some runs; and R2 of new rows."""
    print(f"{'table':>16}  {'bayesdrop s':>11}  {'boosting s':>10}  {'R2':>6}  {'boosting R2':>11}")
    for rows, columns in SHAPES:
        runs = [
            {name: _measured(FIT, name, rows, columns, preset) for name in ("bayesdrop", "boosting")}
            for _ in range(repeats)
        ]
        least = {name: min(run[name]["seconds"] for run in runs) for name in runs[0]}
        ours, theirs = runs[0]["bayesdrop"]["r2"], runs[0]["boosting"]["r2"]
        shape = f"{rows:,} x {columns:,}"
        print(
            f"{shape:>16}  {least['bayesdrop']:11.1f}  {least['boosting']:10.2f}  {ours:6.3f}  {theirs:11.3f}"
        )


def main() -> None:
    """Measure both tables and print a line for each command; or the fits."""
    parser = argparse.ArgumentParser(description="A wide table and a long one: CPU seconds and memory.")
    parser.add_argument("--rows", type=int, default=500_000, help="of the long table, which has 20 columns")
    parser.add_argument("--columns", type=int, default=1500, help="of the wide table, which has 20 rows")
    parser.add_argument("--preset", help='"quick", or "default" with --fits, if not given')
    parser.add_argument("--fits", action="store_true", help="time fits of five sizes instead")
    parser.add_argument("--repeats", type=int, default=2, help="of every fit that is timed")
    options = parser.parse_args()
    if options.fits:
        time_fits(options.preset or "default", options.repeats)
        return
    preset = options.preset or "quick"
    print(f"{'table':>16}  {'command':>8}  {'CPU s':>8}  {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows, columns in ((20, options.columns), (options.rows, 20)):
            table, model = folder / f"{rows}x{columns}.csv", folder / f"model-{rows}x{columns}"
            write_table(table, rows, columns)
            commands: dict[str, tuple[str | Path, ...]] = {
                "reading": ("read", table),
                "fit": ("fit", table, "--target", "y", "-o", model, "--preset", preset, "-q"),
                "predict": ("predict", model, table, "-o", folder / f"scored-{rows}x{columns}.csv", "-q"),
            }
            for command, arguments in commands.items():
                found = measured(*arguments)
                shape = f"{rows:,} x {columns:,}"
                print(f"{shape:>16}  {command:>8}  {found['seconds']:8.1f}  {found['megabytes']:8.0f}")


if __name__ == "__main__":
    main()
