"""What an exported file costs, against `predict`: time of onnxruntime, and bytes.

    PYTHONPATH=src python benchmarks/export.py [--rounds 9]

One thread, CPU time, the two in turn, best of nine; T = 50. The bars: onnxruntime takes at most 1.3 times as
long as `predict` for the perceptrons and LeNet of the speed page, and a file is at most 1.1 times as large as
the weights and the masks, packed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

import bayesdrop as bd
from networks import CASES, best_times

DRAWS, TIME_BAR, SIZE_BAR = 50, 1.3, 1.1
#: networks, and rows of the batches that are timed
RUNS = {"mlp-half": (256, 64, 1), "mlp-tenth": (256, 64, 1), "lenet": (64, 1), "residual-blocks": (16,)}


def session(path: Path) -> Any:
    """The file, ready to run on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def main() -> None:
    """Print the ratios of every network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    likelihood = bd.Categorical()
    for name, batches in RUNS.items():
        case = CASES[name]
        torch.manual_seed(0)
        net = case.build().eval()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.onnx"
            done = bd.export(
                net, torch.randn(3, *case.shape[1:]), path, num_draws=DRAWS, likelihood=likelihood
            )
            weights = sum(p.numel() * p.element_size() for p in (*net.parameters(), *net.buffers()))
            size = done.num_bytes / (weights + done.noise_bytes)
            verdict = "" if size <= SIZE_BAR else " (above its bar)"
            print(f"{case.title}: file / (weights + packed masks) {size:.3f}{verdict}")
            run = session(path)
            for rows in batches:
                x = torch.randn(rows, *case.shape[1:])
                given = {"x": x.numpy()}
                found = best_times(
                    {
                        "onnxruntime": lambda run=run, given=given: run.run(None, given),
                        "predict": lambda net=net, x=x: bd.predict(
                            net, x, num_draws=DRAWS, likelihood=likelihood
                        ),
                    },
                    rounds=rounds,
                )
                ratio = found["onnxruntime"] / found["predict"]
                verdict = "" if ratio <= TIME_BAR else " (above its bar)"
                print(f"  {rows} rows: onnxruntime / predict {ratio:.2f}{verdict}", flush=True)


if __name__ == "__main__":
    main()
