"""How much faster many networks are together: 20 splits x 8 settings of the boston network, one thread.

The stacked trainer against a plain loop over networks in PyTorch, both with dropout before every layer,
batches of 128 and Adam; CPU time of a step of one network, taken in turns. Writes results/stacked.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.stacked import Job, Settings, train

RESULTS = Path(__file__).parents[1] / "results" / "stacked.json"
PAGE = Path(__file__).parents[1] / "docs" / "stacked.md"
START, END = "<!-- stacked:start -->", "<!-- stacked:end -->"
SPLITS, SETTINGS, ROWS, INPUTS, BATCH = 20, 8, 455, 13, 128
NETWORKS = {"13-50-1": (50,), "13-50-50-1": (50, 50)}
BAR = 10.0


def tables(splits: int) -> list[tuple[Tensor, Tensor]]:
    """Tables of boston's shape: speed does not depend on what is in them."""
    source = torch.Generator().manual_seed(0)
    x = torch.randn(splits, ROWS, INPUTS, generator=source)
    y = x[:, :, :1].sin() + 0.1 * torch.randn(splits, ROWS, 1, generator=source)
    return list(zip(x, y, strict=True))


def rates(count: int) -> list[float]:
    """One rate for every setting."""
    return [0.005 + 0.02 * place for place in range(count)]


def one_by_one(hidden: tuple[int, ...], steps: int, *, fused: bool = False) -> Callable[[], int]:
    """A plain loop: module, loss, backward, Adam. Returns how many steps of a network it makes."""

    def run() -> int:
        x, y = tables(1)[0]
        widths = [INPUTS, *hidden]
        parts: list[nn.Module] = []
        for wide, narrow in itertools.pairwise(widths):
            parts += [nn.Dropout(0.05), nn.Linear(wide, narrow), nn.ReLU()]
        net = nn.Sequential(*parts, nn.Dropout(0.05), nn.Linear(hidden[-1], 1))
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=fused or None)
        done = 0
        while done < steps:
            for rows in torch.randperm(ROWS).split(BATCH):
                loss = (net(x[rows]) - y[rows]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                done += 1
        return done

    return run


def together(hidden: tuple[int, ...], epochs: int) -> Callable[[], int]:
    """All networks in the stacked trainer."""

    def run() -> int:
        jobs = [
            Job(
                x,
                y,
                Settings(
                    hidden=hidden,
                    noise="fixed",
                    p=p,
                    input_p=p,
                    epochs=epochs,
                    batch_size=BATCH,
                    lr=1e-3,
                    schedule="constant",
                    check_every=epochs,
                ),
                seed=seed,
            )
            for seed, (x, y) in enumerate(tables(SPLITS))
            for p in rates(SETTINGS)
        ]
        train(jobs)
        return len(jobs) * epochs * -(-ROWS // BATCH)

    return run


def seconds_a_step(run: Callable[[], int]) -> float:
    """CPU seconds of a step of one network."""
    start = time.process_time()
    steps = run()
    return (time.process_time() - start) / steps


def measure(*, quick: bool) -> dict[str, Any]:
    """Every way of every network, in turns."""
    torch.set_num_threads(1)
    repeats, steps, epochs = (2, 40, 2) if quick else (7, 400, 25)
    found: dict[str, Any] = {}
    for name, hidden in NETWORKS.items():
        ways = {
            "one by one": one_by_one(hidden, steps),
            "one by one, fused Adam": one_by_one(hidden, steps, fused=True),
            "stacked": together(hidden, epochs),
        }
        for way in ways.values():
            way()
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(repeats):
            for way, run in ways.items():
                times[way].append(seconds_a_step(run))
        middle = {way: statistics.median(values) for way, values in times.items()}
        found[name] = {
            "microseconds": {way: round(1e6 * value, 1) for way, value in middle.items()},
            "ratio": round(middle["one by one"] / middle["stacked"], 1),
            "ratio_fused": round(middle["one by one, fused Adam"] / middle["stacked"], 1),
        }
    return found


def report(found: dict[str, Any]) -> str:
    """A table in Markdown."""
    lines = [
        "| network | one by one | one by one, fused Adam | stacked | ratio | ratio to fused |",
        "|---|---|---|---|---|---|",
    ]
    for name, case in found["networks"].items():
        times = case["microseconds"]
        cells = [f"{times[way]:.0f} µs" for way in ("one by one", "one by one, fused Adam", "stacked")]
        lines.append(
            f"| {name} | {' | '.join(cells)} | **{case['ratio']:.0f}x** | {case['ratio_fused']:.0f}x |"
        )
    return "\n".join(lines)


def rewritten(page: str, table: str) -> str:
    """The page with the table between its markers."""
    if START not in page or END not in page:
        raise ValueError(f"the page must hold {START} and {END}")
    before, rest = page.split(START)
    return f"{before}{START}\n{table}\n{END}{rest.split(END)[1]}"


def write(path: Path, text: str) -> None:
    """All of the text, or the old file."""
    draft = path.with_suffix(".tmp")
    draft.write_text(text)
    draft.replace(path)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose table is written anew")
    options = parser.parse_args(arguments)
    found = {
        "quick": options.quick,
        "splits": SPLITS,
        "settings": SETTINGS,
        "threads": 1,
        "bar": BAR,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "networks": measure(quick=options.quick),
    }
    print(report(found))
    write(options.output, json.dumps(found, indent=2) + "\n")
    write(options.page, rewritten(options.page.read_text(), report(found)))


if __name__ == "__main__":
    main()
