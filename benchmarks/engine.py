"""What all T draws of `bayesdrop.predict` cost, in `eval()` passes of the same batch, beside other ways.

    python benchmarks/engine.py [--quick] [--cases ...] [--no-peers] [--output results/engine.json]

One thread, CPU time, best of seven rounds in which all contenders and the `eval()` pass take turns. The
peers run in an environment of their own (.venv-peers) and are compared by ratios. Writes JSON and, from
it, the tables of docs/speed.md. Cases that are not asked for keep what an earlier run found.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayesdrop as bd
from networks import CASES, best_times, made, perceptron, segmentation, with_dropout_on

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = ROOT / "results" / "engine.json"
PAGE = ROOT / "docs" / "speed.md"
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
BEGIN, END = "<!-- engine: begin -->", "<!-- engine: end -->"

ROUNDS = 7
QUICK_DRAWS = 5
OWN = {
    "bayesdrop": "bayesdrop",
    "whole model": 'the same, `plan="whole model"`',
    "hand-written loop": "hand-written loop",
    "repeated batch": "hand-written, batch repeated",
}
PEER_NAMES = (
    "torch-uncertainty, batch",
    "torch-uncertainty, loop",
    "baal, batch",
    "baal, loop",
    "lightning-uq-box",
)


# the ways that run in this environment


def hand_written_loop(net: nn.Module, x: Tensor, num_draws: int) -> tuple[Tensor, Tensor]:
    """What one would write: T passes with dropout on, stacked; mean and variance."""
    with torch.no_grad():
        draws = torch.stack([net(x) for _ in range(num_draws)])
        return draws.mean(0), draws.var(0)


def repeated_batch(net: nn.Module, x: Tensor, num_draws: int) -> tuple[Tensor, Tensor]:
    """The batch T times over in one pass."""
    with torch.no_grad():
        repeated = x.repeat(num_draws, *[1] * (x.dim() - 1))
        draws = net(repeated).unflatten(0, (num_draws, x.shape[0]))
        return draws.mean(0), draws.var(0)


def measure(name: str, *, rounds: int, num_draws: int) -> dict[str, Any]:
    """One case in this environment: a row for each way, and the plan that `predict` chose."""
    net, x = made(CASES[name])
    noisy = with_dropout_on(copy.deepcopy(net))

    def unit() -> Tensor:
        with torch.no_grad():
            output: Tensor = net(x)
        return output

    calls: dict[str, Callable[[], object]] = {
        "eval": unit,
        "bayesdrop": lambda: bd.predict(net, x, num_draws=num_draws),
        "whole model": lambda: bd.predict(net, x, num_draws=num_draws, plan="whole model"),
        "hand-written loop": lambda: hand_written_loop(noisy, x, num_draws),
        "repeated batch": lambda: repeated_batch(noisy, x, num_draws),
    }
    times = best_times(calls, rounds=rounds)
    prediction = bd.predict(net, x, num_draws=num_draws)
    return {
        "case": name,
        "title": CASES[name].title,
        "num_draws": num_draws,
        "bar": CASES[name].bar,
        "plan": str(getattr(prediction, "plan", None)).splitlines()[0],
        "check": float(unit().double().sum()),
        "contenders": {way: _row(times[way] / times["eval"], rounds) for way in OWN},
    }


def _row(ratio: float, rounds: int) -> dict[str, Any]:
    return {"ratio": float(f"{ratio:.4g}"), "rounds": rounds}


# the peers


def add_peers(cases: dict[str, dict[str, Any]], *, rounds: int, quick: bool, reason: str | None) -> Any:
    """Put the peers' rows into the cases, or the `reason` why there are none; returns the peers' versions."""
    if reason is None and not PEERS_PYTHON.exists():
        reason = "there is no environment for peers; `make bench` makes one"
    if reason is not None:
        for case in cases.values():
            case["contenders"] |= {peer: {"not_run": reason} for peer in PEER_NAMES}
        return {}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "peers.json"
        command = [str(PEERS_PYTHON), str(HERE / "peers.py"), *cases, "--output", str(output)]
        command += ["--rounds", str(rounds), *(["--most-draws", str(QUICK_DRAWS)] if quick else [])]
        subprocess.run(command, check=True, stdout=sys.stderr)
        found = json.loads(output.read_text(encoding="utf-8"))
    if found["torch"] != torch.__version__:
        raise SystemExit(f"the peers' torch is {found['torch']}, ours is {torch.__version__}")
    for name, case in cases.items():
        peers = found["cases"][name]
        if abs(peers["check"] - case["check"]) > 1e-4 * (1 + abs(case["check"])):
            raise SystemExit(f"{name}: the peers' network is not ours")
        for peer, row in peers["rows"].items():
            case["contenders"][peer] = _row(row["ratio"], row["rounds"]) if "ratio" in row else row
    return found["versions"]


# what a call costs beyond the passes


def overhead(*, rounds: int) -> dict[str, Any]:
    """Milliseconds that `predict` with one draw takes more than an `eval()` pass of a tiny network."""
    torch.manual_seed(0)
    net, x = perceptron(4, 8, 1, p=0.1).eval(), torch.randn(1, 4)

    def unit() -> Tensor:
        with torch.no_grad():
            output: Tensor = net(x)
        return output

    times = best_times({"eval": unit, "predict": lambda: bd.predict(net, x, num_draws=1)}, rounds=rounds)
    return {"milliseconds": float(f"{1e3 * (times['predict'] - times['eval']):.3g}"), "bar": 1.0}


def memory(*, quick: bool) -> dict[str, Any]:
    """Peak memory of a process that makes many draws of a large output, over that of one that makes few."""
    few, many = (2, 4) if quick else (10, 100)
    found: dict[str, Any] = {"few": few, "many": many, "bar": 1.10, "mebibytes": {}, "ratio": {}}
    for way in ("bayesdrop", "kept draws"):
        peaks = [_peak_of_processes(way, num_draws, 1 if quick else 3) for num_draws in (few, many)]
        found["mebibytes"][way] = [round(peak) for peak in peaks]
        found["ratio"][way] = float(f"{peaks[1] / peaks[0]:.3g}")
    return found


def _peak_of_processes(way: str, num_draws: int, processes: int) -> float:
    """The median of a few: how an allocator lays out its memory is a matter of chance. In MiB."""
    command = [sys.executable, str(HERE / "engine.py"), "--peak", way, "--draws", str(num_draws)]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(processes)]
    return statistics.median(int(run.stdout) / 2**20 for run in runs)


def print_peak(way: str, num_draws: int) -> None:
    """Run one way in this process, which was started for it, and print its peak memory in bytes."""
    torch.manual_seed(0)
    net, x = segmentation().eval(), torch.randn(2, 3, 256, 256)
    if way == "bayesdrop":
        bd.predict(net, x, num_draws=num_draws)
    else:
        hand_written_loop(with_dropout_on(net), x, num_draws)
    print(_peak_bytes())


def _peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage: on Linux its peak starts at that of the process that started this one.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# tables


def report(found: dict[str, Any]) -> str:
    """The tables of a run, in Markdown."""
    return "\n".join(_report(found))


def _report(found: dict[str, Any]) -> Iterator[str]:
    names = [*OWN, *PEER_NAMES]
    cases = [found["cases"][name] for name in CASES if name in found["cases"]]
    yield "| network | T | bar | " + " | ".join(OWN.get(name, name) for name in names) + " |"
    yield "|---|---|---|" + "---|" * len(names)
    notes: list[str] = []
    for case in cases:
        cells = []
        for name in names:
            row = case["contenders"][name]
            if "ratio" in row:
                cells.append(_number(row["ratio"]))
                continue
            if row["not_run"] not in notes:
                notes.append(row["not_run"])
            cells.append(f"not run ({notes.index(row['not_run']) + 1})")
        ours = case["contenders"]["bayesdrop"]["ratio"]
        cells[0] = f"**{cells[0]}**" if ours <= case["bar"] else f"{cells[0]} (above its bar)"
        yield f"| {case['title']} | {case['num_draws']} | {case['bar']:g} | " + " | ".join(cells) + " |"
    yield ""
    for number, note in enumerate(notes, 1):
        yield f"({number}) {note}"
        yield ""
    yield "What `predict` chose (`prediction.plan`):"
    yield ""
    for case in cases:
        yield f"- {case['title']}: {case['plan']}"
    yield ""
    extra, peak = found["overhead"], found["memory"]
    yield "| beyond speed | bar | bayesdrop | kept draws |"
    yield "|---|---|---|---|"
    yield (
        f"| milliseconds of `predict` with T = 1 beyond an `eval()` pass, 4-8-1, B 1 | {extra['bar']:g} "
        f"| {extra['milliseconds']:g} | |"
    )
    ours, kept = peak["ratio"]["bayesdrop"], peak["ratio"]["kept draws"]
    yield (
        f"| peak memory at T = {peak['many']} over T = {peak['few']}, output 2 x 19 x 256 x 256 "
        f"| {peak['bar']:.2f} | {ours:.2f} | {kept:.2f} |"
    )
    a, b = peak["mebibytes"]["bayesdrop"], peak["mebibytes"]["kept draws"]
    yield f"| the same in MiB, of the whole process | | {a[0]} and {a[1]} | {b[0]} and {b[1]} |"
    yield ""
    peers = ", ".join(f"{package} {number}" for package, number in found["peers"].items()) or "no peers"
    yield f"torch {found['torch']}, one thread; {peers}."


def _number(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"


def rewritten(page: str, table: str) -> str:
    """A page with the text between its two markers replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page must hold {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"


# the command


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of few draws: does it run at all")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument("--no-peers", action="store_true", help="leave other libraries out")
    parser.add_argument(
        "--output", type=Path, help=f"default: {RESULTS.relative_to(ROOT)}; with --quick: none"
    )
    parser.add_argument("--peak", choices=("bayesdrop", "kept draws"), help=argparse.SUPPRESS)
    parser.add_argument("--draws", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.peak is not None:
        print_peak(options.peak, options.draws)
        return
    rounds = 1 if options.quick else ROUNDS
    cases = {}
    for name in options.cases:
        print(f"{name} ...", file=sys.stderr, flush=True)
        most = QUICK_DRAWS if options.quick else CASES[name].num_draws
        cases[name] = measure(name, rounds=rounds, num_draws=min(most, CASES[name].num_draws))
    reason = "left out by --no-peers" if options.no_peers else None
    peers = add_peers(cases, rounds=rounds, quick=options.quick, reason=reason)
    for case in cases.values():
        del case["check"]
    output = options.output or (None if options.quick else RESULTS)
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "quick": options.quick,
        "peers": peers,
        "cases": _earlier_cases(output) | cases,
        "overhead": overhead(rounds=rounds),
        "memory": memory(quick=options.quick),
    }
    table = report(found)
    print(table)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if output == RESULTS:
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")


def _earlier_cases(output: Path | None) -> dict[str, Any]:
    if output is None or not output.exists():
        return {}
    cases: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))["cases"]
    return cases


if __name__ == "__main__":
    main()
