"""What a training step costs, in steps of the same network with `nn.Dropout`.

    PYTHONPATH=src .venv-peers/bin/python benchmarks/training.py [--quick] [--output results/training.json]

784-512-512-512-10, 128 rows, cross-entropy, Adam as it comes; one thread, CPU time, best of many rounds in
which all contenders take turns, in the peers' environment where the package `concretedropout` is. Writes
JSON and, from it, the table of docs/learned-rates.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayesdrop as bd
from networks import best_times

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "training.json"
PAGE = ROOT / "docs" / "learned-rates.md"
BEGIN, END = "<!-- training: begin -->", "<!-- training: end -->"

SIZES = (784, 512, 512, 512, 10)
ROWS = 128
ROUNDS = 40
BASELINE = "nn.Dropout, p 0.5"
BARS = {
    "ConcreteDropout": 1.2,
    "LearnableDropout, DisARM": 1.45,
    "LearnableDropout, ARM": 1.45,
    "GaussianDropout": 1.1,
}

Step = Callable[[], object]


def perceptron(wrap: Callable[[int, int], list[nn.Module]]) -> nn.Sequential:
    """The network, its weight layers made by `wrap`."""
    modules: list[nn.Module] = []
    for position, (inputs, outputs) in enumerate(itertools.pairwise(SIZES)):
        modules += wrap(inputs, outputs)
        if position < len(SIZES) - 2:
            modules.append(nn.ReLU())
    return nn.Sequential(*modules)


def plain_step(p: float, x: Tensor, y: Tensor) -> Step:
    """`nn.Dropout` before every layer, and nothing else."""
    net = perceptron(lambda i, o: [nn.Dropout(p), nn.Linear(i, o)])
    return _step(net, lambda: nn.functional.cross_entropy(net(x), y))


def own_step(kind: type[nn.Module], x: Tensor, y: Tensor, options: dict[str, Any], **objective: Any) -> Step:
    """One of our layers, by `NegativeELBO`, its divergence included."""
    net = perceptron(lambda i, o: [kind(nn.Linear(i, o), **options)])
    elbo = bd.NegativeELBO(bd.Categorical(), num_data=60_000, **objective)
    return _step(net, lambda: elbo(net, x, y).loss)


def published_step(x: Tensor, y: Tensor) -> Step | None:
    """The package `concretedropout` from the Python package index, where it is installed."""
    if importlib.util.find_spec("concretedropout") is None:
        return None
    from concretedropout.pytorch import ConcreteLinearDropout

    pairs = list(itertools.pairwise(SIZES))
    linears = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in pairs)
    dropouts = nn.ModuleList(ConcreteLinearDropout(weight_regularizer=1e-9) for _ in pairs)

    def loss() -> Tensor:
        hidden = x
        for position, (linear, dropout) in enumerate(zip(linears, dropouts, strict=True)):
            # It changes its input in place, the caller's batch too: give it a copy.
            hidden = dropout(hidden.clone(), linear)
            if position < len(pairs) - 1:
                hidden = hidden.relu()
        return nn.functional.cross_entropy(hidden, y) + sum(one.regularization for one in dropouts)

    return _step(nn.ModuleList([linears, dropouts]), loss)


def _step(net: nn.Module, loss: Callable[[], Tensor]) -> Step:
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def contenders(x: Tensor, y: Tensor) -> dict[str, Step]:
    """Name -> one training step."""
    steps: dict[str, Step | None] = {
        BASELINE: plain_step(0.5, x, y),
        "nn.Dropout, p 0.1": plain_step(0.1, x, y),
        "BernoulliDropout": own_step(bd.BernoulliDropout, x, y, {"p": 0.5}),
        "GaussianDropout": own_step(bd.GaussianDropout, x, y, {"p": 0.5}),
        "ConcreteDropout": own_step(bd.ConcreteDropout, x, y, {}),
        "ConcreteDropout, straight-through": own_step(
            bd.ConcreteDropout, x, y, {"masks": "straight-through"}
        ),
        "LearnableDropout, DisARM": own_step(bd.LearnableDropout, x, y, {}),
        "LearnableDropout, ARM": own_step(bd.LearnableDropout, x, y, {}, estimator="arm"),
        "LearnableDropout, one rate a layer": own_step(bd.LearnableDropout, x, y, {"per": "layer"}),
        "VariationalGaussianDropout, inputs": own_step(
            bd.VariationalGaussianDropout, x, y, {"noise": "inputs"}
        ),
        "VariationalGaussianDropout, weights": own_step(bd.VariationalGaussianDropout, x, y, {}),
        "concretedropout (package)": published_step(x, y),
    }
    return {name: step for name, step in steps.items() if step is not None}


def table(found: dict[str, Any]) -> str:
    """The Markdown table."""
    against = found["seconds"]["nn.Dropout, p 0.1"] / found["seconds"][BASELINE]
    lines = ["| training step | bar | `nn.Dropout(0.5)` = 1 | `nn.Dropout(0.1)` = 1 |", "|---|---|---|---|"]
    for name, ratio in found["ratios"].items():
        if name == BASELINE:
            continue
        bar = BARS.get(name)
        shown = f"**{ratio:.2f}**" if bar is not None and ratio <= bar else f"{ratio:.2f}"
        lines.append(f"| {name} | {'' if bar is None else bar} | {shown} | {ratio / against:.2f} |")
    lines += ["", f"torch {found['torch']}, one thread, CPU time, best of {found['rounds']}."]
    return "\n".join(lines)


def main() -> None:
    """Measure, write the JSON and the page's table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few rounds; the page is left alone")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(ROWS, SIZES[0]), torch.randint(SIZES[-1], (ROWS,))
    rounds = 2 if options.quick else ROUNDS
    seconds = best_times(contenders(x, y), rounds=rounds)
    found = {
        "torch": version("torch"),
        "rounds": rounds,
        "seconds": seconds,
        "ratios": {name: value / seconds[BASELINE] for name, value in seconds.items()},
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found), file=sys.stdout)
    if not options.quick and options.output == RESULTS and PAGE.exists():
        text = PAGE.read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{after}")


if __name__ == "__main__":
    main()
