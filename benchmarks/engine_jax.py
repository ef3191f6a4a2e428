"""`bayesdrop.predict` beside the same networks written by hand in JAX and compiled.

    python benchmarks/engine_jax.py [--quick] [--cases ...] [--python .venv-jax/bin/python] [--output ...]

One thread, CPU time. JAX lives in an environment of its own and answers from a process of its own; the two
take turns, and each number is the best of five. The networks are those of `engine.py`, with the same weights.
Before anything is timed, JAX's output without noise must be torch's, and its mean and variance over draws
ours. Writes JSON and, from it, a table of docs/speed.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import bayesdrop as bd
from networks import CASES, Block, best_times, made

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = ROOT / "results" / "engine-jax.json"
PAGE = ROOT / "docs" / "speed.md"
PYTHON = ROOT / ".venv-jax" / "bin" / "python"
BEGIN, END = "<!-- jax: begin -->", "<!-- jax: end -->"
WAYS = ("lax.map", "lax.map of vmap", "vmap")

ROUNDS = 5
QUICK_DRAWS = 5
CHECKED_DRAWS = 100
# A way that takes so many times the best one's time is timed once.
HOPELESS = 1.5


# from torch to JAX


def numbers(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The array of a parameter or a buffer."""
    return tensor.detach().numpy()


def perceptron_weights(net: nn.Sequential) -> dict[str, Any]:
    """Of every linear map, in order."""
    found = {}
    for place, layer in enumerate(m for m in net if isinstance(m, nn.Linear)):
        found |= {f"w{place}": numbers(layer.weight), f"b{place}": numbers(layer.bias)}
    return found


def lenet_weights(net: nn.Sequential) -> dict[str, Any]:
    """Of its two convolutions and two linear maps."""
    found = perceptron_weights(net)
    for place, layer in enumerate(m for m in net if isinstance(m, nn.Conv2d)):
        found |= {f"c{place}": numbers(layer.weight), f"cb{place}": numbers(layer.bias)}
    return found


def residual_weights(net: nn.Sequential) -> dict[str, Any]:
    """Normalisation is folded into the convolutions: a kernel and a shift each."""
    found = {"stem": numbers(net[0].weight), "stem_bias": numbers(net[0].bias)}
    found |= {"w": numbers(net[-1].weight), "b": numbers(net[-1].bias)}
    for i, block in enumerate(m for m in net if isinstance(m, Block)):
        for j, (conv, norm) in enumerate(((block.conv1, block.norm1), (block.conv2, block.norm2))):
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            found[f"k{i}{j}"] = numbers(conv.weight * scale.reshape(-1, 1, 1, 1))
            found[f"s{i}{j}"] = numbers(norm.bias - norm.running_mean * scale)
    return found


def exported(name: str) -> tuple[str, float, dict[str, Any]]:
    """A case's kind, its rate, its weights and its input."""
    net, x = made(CASES[name])
    rates = {m.p for m in net.modules() if isinstance(m, nn.modules.dropout._DropoutNd)}
    (p,) = rates
    assert isinstance(net, nn.Sequential)
    kind, weights = "perceptron", perceptron_weights
    if name == "lenet":
        kind, weights = "lenet", lenet_weights
    elif name.startswith("residual"):
        kind, weights = name, residual_weights
    return kind, p, {**weights(net), "x": numbers(x)}


class JAX:
    """The process of the peer, which answers one request at a time.

    Args:
        python: of its environment.
    """

    def __init__(self, python: Path) -> None:
        command = [str(python), str(HERE / "peers_jax.py")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self._answer()["jax"]

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """What the worker's method of that name returns."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the process of JAX has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> JAX:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


# one case


def measure(jax: JAX, name: str, *, rounds: int, num_draws: int, folder: Path) -> dict[str, Any]:
    """Check that both compute the same, then time them in turns."""
    kind, p, arrays = exported(name)
    np.savez(folder / "case.npz", **arrays)
    loaded = jax.ask("load", kind=kind, path=str(folder / "case.npz"), p=p, num_draws=num_draws)
    net, x = made(CASES[name])
    difference = check(jax, name, net, x, num_draws, folder)

    def unit() -> Tensor:
        with torch.no_grad():
            output: Tensor = net(x)
        return output

    ours = {"eval": unit, "bayesdrop": lambda: bd.predict(net, x, num_draws=num_draws)}
    best = dict.fromkeys([*ours, *WAYS], math.inf)
    ways = list(WAYS)
    for _ in range(rounds):
        times = best_times(ours, rounds=1) | jax.ask("time", ways=ways, least=0.03)
        best |= {way: min(seconds, best[way]) for way, seconds in times.items()}
        ways = [way for way in ways if best[way] <= HOPELESS * min(best[other] for other in WAYS)]
    return {
        "case": name,
        "title": CASES[name].title,
        "num_draws": num_draws,
        "rounds": rounds,
        "milliseconds": {way: float(f"{1e3 * seconds:.4g}") for way, seconds in best.items()},
        "compile_seconds": {way: round(s, 2) for way, s in loaded["compile_seconds"].items()},
        "standard_errors": difference,
    }


def check(jax: JAX, name: str, net: nn.Module, x: Tensor, num_draws: int, folder: Path) -> float:
    """How many standard errors JAX's moments over draws are from ours; more than five are refused."""
    repeats = max(2, math.ceil(CHECKED_DRAWS / num_draws))
    jax.ask("moments", way="lax.map", repeats=repeats, path=str(folder / "moments.npz"))
    with np.load(folder / "moments.npz") as stored:
        theirs = {key: torch.from_numpy(stored[key]).double() for key in stored.files}
    with torch.no_grad():
        plain = net(x).double()
    if not torch.allclose(theirs["plain"], plain, rtol=1e-4, atol=1e-4 * float(plain.abs().max())):
        raise SystemExit(f"{name}: the network in JAX is not ours")
    total = repeats * num_draws
    draws = bd.predict(net, x, num_draws=total, seed=1).draws.double()
    mean, variance = draws.mean(0), draws.var(0)
    # Outputs vary together: the variance is compared as one number, a mean over them and over draws.
    square = (draws - mean).square().flatten(1).mean(1)
    of_mean = (theirs["mean"] - mean).abs() / (2 * variance / total).sqrt()
    of_variance = (theirs["variance"].mean() - square.mean()).abs() / (square.std() * (2 / total) ** 0.5)
    most = max(float(of_mean.max()), float(of_variance))
    if not most <= 5:
        raise SystemExit(f"{name}: the moments of JAX's draws are {most:.1f} standard errors from ours")
    return float(f"{most:.2g}")


# the table


def advantage(case: dict[str, Any]) -> float:
    """Time of the best way in JAX over ours."""
    spent = case["milliseconds"]
    return float(min(spent[way] for way in WAYS) / spent["bayesdrop"])


def report(found: dict[str, Any]) -> str:
    """The table of a run, in Markdown."""
    return "\n".join(_report(found))


def _report(found: dict[str, Any]) -> Iterator[str]:
    cases = [found["cases"][name] for name in CASES if name in found["cases"]]
    yield (
        "| network | T | `eval()` | bayesdrop | "
        + " | ".join(f"JAX, {way}" for way in WAYS)
        + " | best JAX / ours |"
    )
    yield "|---|---|---|---|" + "---|" * (len(WAYS) + 1)
    for case in cases:
        spent = case["milliseconds"]
        cells = [_number(spent[way]) for way in ("eval", "bayesdrop", *WAYS)]
        yield f"| {case['title']} | {case['num_draws']} | {' | '.join(cells)} | **{advantage(case):.2f}** |"
    middle = math.exp(sum(math.log(advantage(case)) for case in cases) / len(cases))
    yield f"| geometric mean | | | | {'| ' * len(WAYS)}| **{middle:.2f}** |"
    yield ""
    compiling = [min(case["compile_seconds"].values()) for case in cases]
    yield (
        f"Milliseconds of CPU for all T draws, their mean and their variance; torch {found['torch']}, "
        f"JAX {found['jax']}, one thread. JAX's functions were compiled before: compiling "
        f"one took {min(compiling):.1f} to {max(compiling):.1f} seconds, anew for each input shape and T."
    )


def _number(milliseconds: float) -> str:
    return f"{milliseconds:.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def rewritten(page: str, table: str) -> str:
    """A page with the text between its two markers replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page must hold {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}"


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of few draws: does it run at all")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument("--python", type=Path, default=PYTHON, help="of the environment that has JAX")
    parser.add_argument(
        "--output", type=Path, help=f"default: {RESULTS.relative_to(ROOT)}; with --quick: none"
    )
    options = parser.parse_args(arguments)
    if not options.python.exists():
        raise SystemExit(f"there is no {options.python}; `make bench` makes an environment for JAX")
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the core that JAX's process takes, too
    rounds = 1 if options.quick else ROUNDS
    cases = {}
    with JAX(options.python) as jax, tempfile.TemporaryDirectory() as folder:
        for name in options.cases:
            print(f"{name} ...", file=sys.stderr, flush=True)
            num_draws = min(QUICK_DRAWS, CASES[name].num_draws) if options.quick else CASES[name].num_draws
            cases[name] = measure(jax, name, rounds=rounds, num_draws=num_draws, folder=Path(folder))
        version = jax.version
    output = options.output or (None if options.quick else RESULTS)
    earlier = json.loads(output.read_text(encoding="utf-8"))["cases"] if output and output.exists() else {}
    found = {"torch": torch.__version__, "jax": version, "quick": options.quick, "cases": earlier | cases}
    table = report(found)
    print(table)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if output == RESULTS:
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
