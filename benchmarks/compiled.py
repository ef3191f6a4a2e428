"""What a compiled model costs, against `predict`, on a network of 13-50-50-1 with T = 100.

    PYTHONPATH=src python benchmarks/compiled.py

One thread, CPU time, the two in turn, best of nine. The bar: `predict` takes at least 1.5 times as long.
"""

from __future__ import annotations

import torch

import bayesdrop as bd
from networks import best_times, perceptron

DRAWS, BAR = 100, 1.5
ROWS = (1, 10, 100)


def main() -> None:
    """Print a ratio for every number of rows."""
    torch.set_num_threads(1)
    likelihood = bd.Gaussian(0.1)
    for title, net in (
        ("dropout everywhere", perceptron(13, 50, 50, 1, p=0.05)),
        ("dropout behind the first layer", torch.nn.Sequential(*list(perceptron(13, 50, 50, 1, p=0.05))[1:])),
    ):
        for rows in ROWS:
            x = torch.randn(rows, 13)
            ask = bd.compile(net, x, num_draws=DRAWS, likelihood=likelihood)
            whole = bd.predict(net, x, num_draws=DRAWS, likelihood=likelihood)
            torch.testing.assert_close(ask(x).draws, whole.draws, rtol=1e-4, atol=1e-5)
            found = best_times(
                {
                    "compiled": lambda ask=ask, x=x: ask(x),
                    "predict": lambda net=net, x=x: bd.predict(
                        net, x, num_draws=DRAWS, likelihood=likelihood
                    ),
                },
                rounds=9,
            )
            ratio = found["predict"] / found["compiled"]
            verdict = "" if ratio >= BAR else " (below its bar)"
            print(f"{title}, {rows} rows: predict / compiled {ratio:.2f}{verdict}")


if __name__ == "__main__":
    main()
