"""What scoring a large table costs: rows a second, bytes a row, what dominates, engines side by side, kills.

    PYTHONPATH=src python benchmarks/scale.py stages --output results-scale.json
    PYTHONPATH=src python benchmarks/scale.py engines --rows 200000
    PYTHONPATH=src python benchmarks/scale.py memory
    PYTHONPATH=src python benchmarks/scale.py kills --kills 20

A table of 20 columns (16 numbers, 4 categories) is scored by a table model of the preset "quick" with T = 100
draws, fitted once and kept in --folder. All figures are CPU seconds of the processes that do the work, so
that they hold on a machine that is shared; start-up (imports, loading) is not counted. With W workers on W
free cores the throughput is rows / (CPU seconds / W).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from pyarrow import parquet

from bayesdrop.blocks import filled
from bayesdrop.engines import Engine, LocalEngine, RayEngine
from bayesdrop.predict import Prediction
from bayesdrop.scoring import score_tables
from bayesdrop.tables import FitOptions, fit_table, load_table_model, open_table, save_table_model
from bayesdrop.tables.score import predict_frame
from bayesdrop.tables.writing import table_writer

DRAWS, CHUNK = 100, 9_600
#: two workers against twice one, Ray against two processes, bytes of a worker
BARS = {"two workers": 0.85, "ray": 0.8, "memory": 2 * 2**30}


def table(rows: int, seed: int) -> Any:
    """20 columns: 16 numbers and 4 categories, and the target."""
    source = np.random.default_rng(seed)
    numbers = source.normal(size=(rows, 16))
    frame = pd.DataFrame({f"x{place:02d}": numbers[:, place] for place in range(16)})
    for place in range(4):
        frame[f"c{place}"] = source.choice(list("abcde"), rows)
    noise = 0.1 * source.normal(size=rows) * (1 + np.abs(numbers[:, 3]))
    frame["y"] = np.sin(numbers[:, 0]) + 0.3 * numbers[:, 1] * numbers[:, 2] + (frame["c0"] == "a") + noise
    return frame


def model_folder(folder: Path) -> Path:
    """The model, fitted if it is not there."""
    path = folder / "model"
    if not path.exists():
        options = {"preset": "quick", "num_draws": DRAWS}
        fitted = fit_table(table(3000, 0), FitOptions("y", estimator=options))
        save_table_model(fitted.model, path, report="")
    return path


def data_file(folder: Path, rows: int) -> Path:
    """A Parquet file of so many rows, written some at a time."""
    path = folder / f"data-{rows}.parquet"
    if not path.exists():
        writer = None
        for start in range(0, rows, 100_000):
            part = pa.Table.from_pandas(
                table(min(100_000, rows - start), start + 1).drop(columns="y"), preserve_index=False
            )
            writer = writer or parquet.ParquetWriter(path, part.schema)
            writer.write_table(part)
        assert writer is not None
        writer.close()
    return path


# one process: what dominates, and the cost model


def cpu(work: Callable[[], Any], rounds: int = 5) -> float:
    """The median CPU seconds of a piece of work."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def stages(folder: Path) -> dict[str, Any]:
    """Microseconds a row of every stage, and of the whole for several T."""
    torch.set_num_threads(1)
    model, path = load_table_model(model_folder(folder)), data_file(folder, 10 * CHUNK)
    file = open_table(path)
    frame = next(iter(file.chunks(CHUNK)))
    mixture = model.estimator.mixture_
    x = filled(model.prepare(frame).x)
    draws = mixture.draws(x, block=960)
    found = predict_frame(model, frame, blocks=True)
    output = folder / "stage.parquet"

    def read() -> None:
        for _ in open_table(path).chunks(CHUNK):
            pass

    def write() -> None:
        with table_writer(output, file, list(found)) as put:
            for _ in range(10):
                put(frame, list(found.values()))

    each = {
        "read": cpu(read) / 10,
        "prepare": cpu(lambda: model.prepare(frame)),
        "encode": cpu(lambda: [encoder(x) for encoder in mixture.encoders.values()]),
        "draws": 0.0,
        "statistics": cpu(lambda: Prediction.from_draws(draws, mixture.likelihood)),
        "write": cpu(write) / 10,
    }
    each["draws"] = cpu(lambda: mixture.draws(x, block=960)) - each["encode"]
    whole = {
        count: cpu(lambda count=count: predict_frame(model, frame, blocks=True, num_draws=count))
        for count in (20, 50, 100, 200)
    }
    output.unlink()
    per_row = 1e6 / CHUNK
    line = np.polyfit([20, 50, 200], [whole[count] for count in (20, 50, 200)], 1)
    predicted = float(np.polyval(line, DRAWS))
    return {
        "microseconds a row": {name: seconds * per_row for name, seconds in each.items()},
        "whole, by T": {str(count): seconds * per_row for count, seconds in whole.items()},
        "prefix": float(line[1]) * per_row,
        "a draw": float(line[0]) * per_row,
        "model at T = 100": predicted * per_row,
        "measured / model": whole[DRAWS] / predicted,
        "bytes a row read": path.stat().st_size / (10 * CHUNK),
    }


# engines


def engines(folder: Path, rows: int, with_ray: bool) -> dict[str, Any]:
    """CPU microseconds a row of one process, two, and Ray with two workers; the parts must be the same."""
    model, path = model_folder(folder), data_file(folder, rows)
    results: dict[str, Any] = {"rows": rows}
    ways: dict[str, Engine] = {"one process": LocalEngine(1), "two processes": LocalEngine(2)}
    if with_ray:
        ways["ray, two workers"] = RayEngine(workers=2)
    digests = {}
    for name, engine in ways.items():
        with tempfile.TemporaryDirectory(dir=folder) as place, engine:
            torch.set_num_threads(1)
            start = time.perf_counter()
            scored = score_tables(model, [path], Path(place) / "out", engine=engine, part_rows=4 * CHUNK)
            wall = time.perf_counter() - start
        seconds = [record.cpu_seconds for record in scored.records]
        # The first part of every worker loads the model; the median part does not.
        usual = statistics.median(record.cpu_seconds / record.rows for record in scored.records)
        results[name] = {
            "microseconds a row": 1e6 * usual,
            "cpu seconds": sum(seconds),
            "wall seconds": wall,
            "bytes a row written": sum(record.size for record in scored.records) / rows,
        }
        digests[name] = [record.sha256 for record in scored.records]
    assert len({tuple(found) for found in digests.values()}) == 1, "the parts differ"
    one = results["one process"]["microseconds a row"]
    results["two processes / one, of 2"] = 2 * one / results["two processes"]["microseconds a row"]
    if with_ray:
        both = results["two processes"]["microseconds a row"]
        results["ray / two processes"] = both / results["ray, two workers"]["microseconds a row"]
    return results


PEAK = """
import resource, sys
from pathlib import Path
import torch
from bayesdrop.engines import LocalEngine
from bayesdrop.scoring import score_tables
torch.set_num_threads(1)
score_tables(sys.argv[1], [sys.argv[2]], sys.argv[3], engine=LocalEngine(1), part_rows=int(sys.argv[4]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def memory(folder: Path, rows: int) -> dict[str, Any]:
    """Peak bytes of a process that scores a table as one part, and one of four times as many rows."""
    peaks = {}
    for count in (rows, 4 * rows):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            words = [str(model_folder(folder)), str(data_file(folder, count)), f"{place}/out", str(count)]
            said = subprocess.run(
                [sys.executable, "-c", PEAK, *words], check=True, capture_output=True, text=True
            ).stdout
        peaks[str(count)] = int(said) * 1024
    few, many = peaks.values()
    return {"peak bytes by rows": peaks, "ratio": many / few}


# kills


def _workers_of(process: int) -> list[int]:
    """Processes that a driver has started to work, by what the system says."""
    children = Path(f"/proc/{process}/task/{process}/children")
    try:
        found = [int(word) for word in children.read_text().split()]
    except OSError:
        return []
    return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def kills(folder: Path, rows: int, count: int) -> dict[str, Any]:
    """Kill drivers and workers at random, then compare with a run that nobody disturbed."""
    model, path = model_folder(folder), data_file(folder, rows)
    chance = random.Random(0)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        output, calm = Path(place) / "out", Path(place) / "calm"
        words = [str(model), str(path), "-o", str(output), "--part-rows", "4800", "--workers", "2", "-q"]
        command = [sys.executable, "-m", "bayesdrop", "predict", *words]
        done = {"driver": 0, "worker": 0}
        stamps: dict[str, int] = {}
        twice: list[str] = []
        driver = None
        while sum(done.values()) < count:
            if driver is None or driver.poll() is not None:
                if (output / "_manifest.json").exists():
                    break
                driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            before = len(list(output.glob("_parts/0*.json")))
            # Once a further part is there, or at any moment, a driver or a worker dies.
            at_once = chance.random() < 0.25
            patience = time.monotonic() + (chance.uniform(1, 20) if at_once else 300)
            while driver.poll() is None and time.monotonic() < patience:
                if len(list(output.glob("_parts/0*.json"))) > before + chance.randint(0, 1):
                    break
                time.sleep(0.02)
            twice += _rewritten(output, stamps)
            workers = _workers_of(driver.pid)
            if workers and chance.random() < 0.5:
                _kill(chance.choice(workers))
                done["worker"] += 1
            elif driver.poll() is None:
                _kill(driver.pid)
                driver.wait()
                done["driver"] += 1
        if driver is not None and driver.poll() is None:
            driver.wait()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        twice += _rewritten(output, stamps)
        score_tables(model, [path], calm, engine=LocalEngine(1), part_rows=4800)
        same = [
            (output / part.name).read_bytes() == part.read_bytes() for part in sorted(calm.glob("part-*"))
        ]
        extra = {one.name for one in output.glob("part-*")} - {one.name for one in calm.glob("part-*")}
    return {"kills": done, "parts": len(same), "equal": all(same) and not extra, "written twice": twice}


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def _rewritten(output: Path, stamps: dict[str, int]) -> list[str]:
    """Finished parts whose file is another than when they were first seen."""
    changed = []
    for record in output.glob("_parts/0*.json"):
        try:
            stamp = (output / f"part-{record.stem}.parquet").stat().st_mtime_ns
        except FileNotFoundError:
            continue
        if stamps.setdefault(record.stem, stamp) != stamp:
            changed.append(record.stem)
            stamps[record.stem] = stamp
    return changed


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Run one of the measurements; print it, and add it to a file."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    asked.add_argument("what", choices=["stages", "engines", "memory", "kills"])
    asked.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "bayesdrop-scale")
    asked.add_argument("--rows", type=int, default=200_000)
    asked.add_argument("--kills", type=int, default=20)
    asked.add_argument("--no-ray", action="store_true")
    asked.add_argument("--output", type=Path)
    given = asked.parse_args(words)
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.what == "stages":
        found = stages(given.folder)
    elif given.what == "engines":
        found = engines(given.folder, given.rows, with_ray=not given.no_ray)
    elif given.what == "memory":
        found = memory(given.folder, given.rows)
    else:
        found = kills(given.folder, given.rows, given.kills)
    print(json.dumps(found, indent=1))
    if given.output is not None:
        known = json.loads(given.output.read_text()) if given.output.exists() else {}
        about = {"torch": torch.__version__, "machine": platform.processor() or platform.machine()}
        about["peak mebibytes here"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        given.output.write_text(json.dumps({**known, "about": about, given.what: found}, indent=1) + "\n")
    return found


if __name__ == "__main__":
    main()
