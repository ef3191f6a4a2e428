"""What ten draws of a segmentation network cost, in `eval()` passes, and what memory fifty take over five.

    python benchmarks/images.py [--quick] [--output results/images.json]

FC-DenseNet with blocks of 2-3-4-5 layers, 6 in the middle, growth 12, one image of 90 x 120. One thread, CPU
time, best of seven rounds in which all contenders and the `eval()` pass take turns. Writes JSON and, from it,
the table of docs/images.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayesdrop as bd
from networks import best_times, with_dropout_on

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = ROOT / "results" / "images.json"
PAGE = ROOT / "docs" / "images.md"
BEGIN, END = "<!-- images: begin -->", "<!-- images: end -->"

NUM_DRAWS, FEW, MANY = 10, 5, 50
MEMORY_BAR = 1.05
WAYS = {
    "bayesdrop": "bayesdrop",
    "whole model": 'the same, `plan="whole model"`',
    "hand-written loop": "hand-written loop",
}


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        title: what a reader sees.
        where: noise in "all" layers or in the "middle".
        noise: what makes it; None for `nn.Dropout2d`.
        bar: what ten draws may cost, in `eval()` passes.
    """

    title: str
    where: str
    noise: Callable[..., nn.Module] | None
    bar: float


CASES = {
    "middle": Case("`nn.Dropout2d` in the middle", "middle", None, 6.5),
    "all": Case("`nn.Dropout2d` in all layers", "all", None, 10),
    "concrete-middle": Case("`ConcreteNoise` in the middle", "middle", bd.layers.ConcreteNoise, 6.5),
    "concrete-all": Case("`ConcreteNoise` in all layers", "all", bd.layers.ConcreteNoise, 10),
}


def made(case: Case, *, quick: bool) -> tuple[nn.Module, Tensor]:
    """The network, in eval mode, and an image."""
    torch.manual_seed(0)
    options: Any = {"where": case.where, "noise": case.noise}
    if quick:
        net = bd.models.fc_densenet(blocks=(1, 1), middle=1, growth=4, first=8, **options)
        return net.eval(), torch.randn(1, 3, 20, 24)
    net = bd.models.fc_densenet(blocks=(2, 3, 4, 5), middle=6, growth=12, **options)
    return net.eval(), torch.randn(1, 3, 90, 120)


def predicted(net: nn.Module, x: Tensor, num_draws: int, plan: Any = None) -> bd.Prediction:
    """Class probabilities and their entropies for every pixel; draws are let go."""
    return bd.predict(net, x, num_draws=num_draws, likelihood=bd.Categorical(), keep_draws=False, plan=plan)


def hand_written_loop(net: nn.Module, x: Tensor, num_draws: int) -> tuple[Tensor, Tensor]:
    """What one would write: T passes with dropout on, stacked; mean probabilities and their variance."""
    with torch.no_grad():
        draws = torch.stack([net(x).softmax(1) for _ in range(num_draws)])
        return draws.mean(0), draws.var(0)


def with_noise_on(net: nn.Module) -> nn.Module:
    """A copy with its noise, and nothing else, in training mode."""
    noisy = with_dropout_on(copy.deepcopy(net))
    for module in noisy.modules():
        if isinstance(module, bd.StochasticLayer):
            module.train()
    return noisy


def measure(name: str, *, rounds: int, quick: bool) -> dict[str, Any]:
    """One case: a ratio for each way, and the plan that `predict` chose."""
    case = CASES[name]
    net, x = made(case, quick=quick)
    noisy = with_noise_on(net)

    def unit() -> Tensor:
        with torch.no_grad():
            output: Tensor = net(x)
        return output

    calls: dict[str, Callable[[], object]] = {
        "eval": unit,
        "bayesdrop": lambda: predicted(net, x, NUM_DRAWS),
        "whole model": lambda: predicted(net, x, NUM_DRAWS, "whole model"),
        "hand-written loop": lambda: hand_written_loop(noisy, x, NUM_DRAWS),
    }
    times = best_times(calls, rounds=rounds)
    return {
        "title": case.title,
        "bar": case.bar,
        "rounds": rounds,
        "plan": str(predicted(net, x, NUM_DRAWS).plan).splitlines()[0],
        "ratio": {way: float(f"{times[way] / times['eval']:.3g}") for way in WAYS},
    }


def memory(name: str, *, quick: bool) -> dict[str, Any]:
    """Peak memory of a process that makes many draws over that of one that makes few."""
    peaks = []
    for num_draws in (FEW, MANY):
        command = [sys.executable, __file__, "--peak", name, "--draws", str(num_draws)]
        command += ["--quick"] if quick else []
        runs = [
            int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(1 if quick else 3)
        ]
        peaks.append(statistics.median(runs) / 2**20)
    return {"mebibytes": [round(peak) for peak in peaks], "ratio": float(f"{peaks[1] / peaks[0]:.3g}")}


def print_peak(name: str, num_draws: int, *, quick: bool) -> None:
    """Predict in this process, which was started for it, and print its peak memory in bytes."""
    net, x = made(CASES[name], quick=quick)
    predicted(net, x, num_draws)
    # Not getrusage: on Linux its peak starts at that of the process that started this one.
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    print(int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024)


def report(found: dict[str, Any]) -> str:
    """The table of a run, in Markdown."""
    return "\n".join(_report(found))


def _report(found: dict[str, Any]) -> Iterator[str]:
    peak = f"peak memory, T = {MANY} over T = {FEW} (bar {MEMORY_BAR:g})"
    yield f"| noise | bar | {' | '.join(WAYS.values())} | {peak} |"
    yield "|---|---|" + "---|" * (len(WAYS) + 1)
    for name in CASES:
        case, kept = found["cases"][name], found["memory"].get(name)
        cells = [f"{case['ratio'][way]:.1f}" for way in WAYS]
        cells[0] = f"**{cells[0]}**" if case["ratio"]["bayesdrop"] <= case["bar"] else f"{cells[0]} (above)"
        yield f"| {case['title']} | {case['bar']:g} | {' | '.join(cells)} | {_peak(kept)} |"
    yield ""
    yield f"torch {found['torch']}, one thread."


def _peak(kept: dict[str, Any] | None) -> str:
    return "" if kept is None else f"{kept['ratio']:.2f}"


def rewritten(page: str, table: str) -> str:
    """A page with the text between its two markers replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page must hold {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"


def main(arguments: list[str] | None = None) -> None:
    """Measure, write, and show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--peak", choices=CASES)
    parser.add_argument("--draws", type=int, default=FEW)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if given.peak is not None:
        print_peak(given.peak, given.draws, quick=given.quick)
        return
    rounds = 1 if given.quick else 7
    found: dict[str, Any] = {"quick": given.quick, "torch": torch.__version__}
    found["cases"] = {name: measure(name, rounds=rounds, quick=given.quick) for name in CASES}
    found["memory"] = {name: memory(name, quick=given.quick) for name in ("middle", "all")}
    given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    table = report(found)
    if given.output == RESULTS and not given.quick:
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
