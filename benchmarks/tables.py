"""`bayesdrop fit` and `predict` on a wide table and on a long one: CPU seconds, and memory at the peak.

Every command runs in a process of its own, so that the memory is its own too. "reading" only reads the table,
the least that a fit of it can do.

    python benchmarks/tables.py            # both, with the preset "quick"
    python benchmarks/tables.py --rows 50000 --columns 300 --preset default
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
    words = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure both tables and print a line for each command."""
    parser = argparse.ArgumentParser(description="A wide table and a long one: CPU seconds and memory.")
    parser.add_argument("--rows", type=int, default=500_000, help="of the long table, which has 20 columns")
    parser.add_argument("--columns", type=int, default=1500, help="of the wide table, which has 20 rows")
    parser.add_argument("--preset", default="quick")
    options = parser.parse_args()
    print(f"{'table':>16}  {'command':>8}  {'CPU s':>8}  {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows, columns in ((20, options.columns), (options.rows, 20)):
            table, model = folder / f"{rows}x{columns}.csv", folder / f"model-{rows}x{columns}"
            write_table(table, rows, columns)
            commands: dict[str, tuple[str | Path, ...]] = {
                "reading": ("read", table),
                "fit": ("fit", table, "--target", "y", "-o", model, "--preset", options.preset, "-q"),
                "predict": ("predict", model, table, "-o", folder / f"scored-{rows}x{columns}.csv", "-q"),
            }
            for command, arguments in commands.items():
                found = measured(*arguments)
                shape = f"{rows:,} x {columns:,}"
                print(f"{shape:>16}  {command:>8}  {found['seconds']:8.1f}  {found['megabytes']:8.0f}")


if __name__ == "__main__":
    main()
