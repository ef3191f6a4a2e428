"""How fast a server answers single rows, beside `predict` itself.

    python benchmarks/serve.py [--model FOLDER] [--clients 32] [--requests 2000]

A table of 20 columns, T = 100. Clients keep their connections and send one row at a time to 127.0.0.1; the
server stores every answer before it gives it. Beside it, in one process: `predict_frame` of batches, and of
one row at a time, as a server without batches would call it. Wall time depends on what else runs, processor
time hardly does: both are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch

from bayesdrop.tables import (
    FitOptions,
    TableModel,
    fit_table,
    load_table_model,
    predict_frame,
    save_table_model,
)

COLUMNS, DRAWS = 20, 100


def table(rows: int = 2000) -> pandas.DataFrame:
    """Twenty columns, of which two matter."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, COLUMNS))
    frame = pandas.DataFrame(x, columns=[f"c{place}" for place in range(COLUMNS)])
    frame["y"] = 2 * x[:, 0] + np.sin(2 * x[:, 1]) + 0.3 * random.normal(size=rows)
    return frame


def fitted(folder: Path) -> Path:
    """A default model of that table."""
    made = fit_table(table(), FitOptions("y", estimator={"num_draws": DRAWS}))
    save_table_model(made.model, folder, report="")
    return folder


def cpu_of(process: int) -> float:
    """Processor seconds of a process so far."""
    parts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


async def one_client(port: int, bodies: list[bytes], took: list[float], statuses: list[int]) -> None:
    """Requests one after another on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for body in bodies:
        head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        started = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in answer.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        took.append(time.perf_counter() - started)
        statuses.append(int(answer.split(b" ", 2)[1]))
    writer.close()


async def clients(
    port: int, count: int, requests: int, rows: list[dict[str, float]]
) -> tuple[list[float], list[int]]:
    """All clients at once; seconds of every request, and statuses."""
    bodies = [json.dumps({"rows": [row]}).encode() for row in rows]
    took: list[float] = []
    statuses: list[int] = []
    each = requests // count
    work = [
        [bodies[(client * each + number) % len(bodies)] for number in range(each)] for client in range(count)
    ]
    await asyncio.gather(*(one_client(port, part, took, statuses) for part in work))
    return took, statuses


def serve(model: Path, home: Path) -> tuple[subprocess.Popen[str], int, float, float]:
    """A server, its port, and wall and processor seconds from start to ready."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "bayesdrop", "serve", str(model), "--home", str(home), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, int(line.rsplit(":", 1)[1]), time.perf_counter() - started, cpu_of(process.pid)


def bare(model: TableModel, frame: pandas.DataFrame, rows: int, repeats: int) -> float:
    """Processor seconds of a row, by `predict_frame` of so many rows at a time."""
    predict_frame(model, frame.iloc[:rows])
    started = time.process_time()
    for _ in range(repeats):
        predict_frame(model, frame.iloc[:rows])
    return (time.process_time() - started) / (repeats * rows)


def measured(model_folder: Path, count: int, requests: int) -> dict[str, Any]:
    """All figures."""
    torch.set_num_threads(1)
    frame = table().drop(columns="y")
    rows = frame.iloc[:256].to_dict("records")
    found: dict[str, Any] = {"clients": count, "requests": requests}
    with tempfile.TemporaryDirectory() as folder:
        process, port, ready, ready_cpu = serve(model_folder, Path(folder))
        try:
            asyncio.run(clients(port, count, 5 * count, rows))
            before, started = cpu_of(process.pid), time.perf_counter()
            took, statuses = asyncio.run(clients(port, count, requests, rows))
            seconds, cpu = time.perf_counter() - started, cpu_of(process.pid) - before
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    done = len(took)
    found |= {
        "start to ready, s": ready,
        "start to ready, processor s": ready_cpu,
        "requests a second": done / seconds,
        "p50, ms": 1e3 * float(np.quantile(took, 0.5)),
        "p99, ms": 1e3 * float(np.quantile(took, 0.99)),
        "requests a processor second": done / cpu,
        "failed": sum(status != 200 for status in statuses),
    }
    model = load_table_model(model_folder)
    found["bare predict in batches of 32, rows a processor second"] = 1 / bare(model, frame, 32, 5)
    found["one bare predict a request, rows a processor second"] = 1 / bare(model, frame, 1, 10)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder of a table with columns c0 to c19")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=2000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = asked.model or fitted(Path(folder) / "model")
        for name, value in measured(model, asked.clients, asked.requests).items():
            print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}", flush=True)


if __name__ == "__main__":
    main()
