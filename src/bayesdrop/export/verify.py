"""Running a file that was just written, twice, and comparing it with `predict`."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import require
from bayesdrop.export.onnx_file import GraphPlan
from bayesdrop.export.packing import noise_of
from bayesdrop.inputs import Inputs, arguments, each_part, num_rows, take_rows, tensors_in
from bayesdrop.predict import predict

__all__ = ["check_file", "onnx_runner", "relative_error"]

#: the largest error of an output, relative to the largest number of that output
TOLERANCE = 1e-5
#: rounding of single precision in a draw, relative to the largest number of the draws
_ROUNDING = 2e-6

_HINT = (
    " If what `model` says of a row depends on the number of rows, write it for one number of them, with "
    "dynamic_batch=False."
)

_Run = Callable[[Mapping[str, np.ndarray[Any, Any]]], list[np.ndarray[Any, Any]]]


def onnx_runner(content: bytes | str, outputs: list[str]) -> _Run:
    """A function that runs an ONNX file, on one thread."""
    runtime = require("onnxruntime", extra="onnx", owner="export")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    wanted = {one.name for one in session.get_inputs()}

    def run(inputs: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        made: list[np.ndarray[Any, Any]] = session.run(
            outputs, {name: array for name, array in inputs.items() if name in wanted}
        )
        return made

    return run


def _torch_runner(path: Path) -> _Run:
    module = torch.export.load(io.BytesIO(path.read_bytes())).module()

    def run(inputs: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        with torch.no_grad():
            made = module(*(torch.from_numpy(array) for array in inputs.values()))
        return [part.numpy() for part in made]

    return run


def check_file(
    path: Path,
    format: str,
    plan: GraphPlan,
    model: nn.Module,
    given: Inputs,
    *,
    sizes: tuple[int, ...],
    options: Mapping[str, Any],
) -> float:
    """Raise unless a file answers what `predict` answers; returns its largest relative error.

    Args:
        path: the file.
        format: "onnx" or "torch".
        plan: what it holds.
        model: whose draws it holds.
        given: the example.
        sizes: other numbers of rows to run it with; none if it takes those of the example alone.
        options: of `predict`.
    """
    try:
        run = _torch_runner(path) if format == "torch" else onnx_runner(str(path), plan.outputs)
    except Exception as error:
        raise RuntimeError(f"export: the file that was written cannot be loaded ({error}).") from error
    masks: dict[str, np.ndarray[Any, Any]] = {}
    if plan.noise is None:
        for name, leaf in zip(plan.noise_names, plan.program.leaves, strict=True):
            masks[name] = noise_of(leaf, options["num_draws"], options["seed"]).numpy()
    rows = num_rows(given, "export")
    largest = 0.0
    for size in (rows, *sizes):
        batch = _other_rows(given, size)
        arrays = [tensor.numpy() for tensor in tensors_in(arguments(batch))]
        inputs = dict(zip(plan.inputs, arrays, strict=True)) | masks
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            truth = predict(model, batch, keep_draws=True, **options)
        try:
            found, again = run(inputs), run(inputs)
        except Exception as error:
            what = str(error).splitlines()[0][:300]
            raise RuntimeError(f"export: the file that was written fails for {size} rows: {what}") from error
        scale = float(truth.draws.abs().max())
        for name, one, two in zip(plan.outputs, found, again, strict=True):
            if not np.array_equal(one, two, equal_nan=True):
                raise RuntimeError(f"export: the file's {name!r} differs between two runs.")
            wanted = getattr(truth, name).numpy()
            # A difference of two entropies is rounded as these are.
            of = truth.entropy.numpy() if name == "mutual_information" else None
            gap = relative_error(one, wanted, of)
            if not gap <= _allowed(wanted, name, scale):
                raise RuntimeError(
                    f"export: the file's {name!r} of {size} rows differs from predict by {gap:.1e}, "
                    "relative to its largest number; it is not left behind." + (_HINT if sizes else "")
                )
            largest = max(largest, gap)
    return largest


def relative_error(
    found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], of: np.ndarray[Any, Any] | None = None
) -> float:
    """The largest difference over the largest number of `wanted`, or of something else."""
    if found.shape != wanted.shape:
        return float("inf")
    if wanted.dtype.kind in "iub":
        # A class may change where two are equally probable, to rounding; no other number is whole.
        return 0.0 if np.mean(found != wanted) <= 0.01 else float("inf")
    if not np.array_equal(np.isfinite(found), np.isfinite(wanted)):
        return float("inf")
    kept = np.isfinite(wanted)
    if not kept.any():
        return 0.0
    one, two = found[kept].astype(np.float64), wanted[kept].astype(np.float64)
    largest = float(np.abs(two if of is None else of[np.isfinite(of)]).max(initial=0.0))
    gap = float(np.abs(one - two).max())
    return 0.0 if gap == 0 else gap / largest if largest > 0 else float("inf")


def _allowed(wanted: np.ndarray[Any, Any], name: str, scale: float) -> float:
    """The relative error that an output may have.

    Draws that are rounded otherwise have another spread, however small that is: to a spread far below the
    numbers themselves, rounding of these may be large.
    """
    kept = np.abs(wanted[np.isfinite(wanted)])
    largest = float(kept.max()) if kept.size else 0.0
    if wanted.dtype.kind in "iub" or largest == 0:
        return TOLERANCE
    rounding = _ROUNDING * scale * (np.sqrt(largest) if name in ("variance", "epistemic") else 1.0)
    return TOLERANCE + rounding / largest


def _other_rows(given: Inputs, rows: int) -> Inputs:
    """So many rows that are not those of the example, where these are numbers; tokens in another order."""
    places = torch.arange(rows).flip(0) % num_rows(given, "export")

    def changed(part: Any) -> Any:
        if isinstance(part, Tensor) and part.is_floating_point():
            return part * 0.9 + 0.05 * torch.linspace(-1, 1, part.numel()).reshape(part.shape).to(part.dtype)
        return part

    return each_part(changed, take_rows(given, places))
