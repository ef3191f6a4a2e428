"""Intervals of a table model as nodes of an ONNX graph: quantiles of a mixture of Gaussians, by bisection."""

from __future__ import annotations

import math

import torch

from bayesdrop.export.nodes import Handle, Writer
from bayesdrop.likelihoods import Gaussian
from bayesdrop.likelihoods.warped import Warp, WarpedGaussian
from bayesdrop.stacked.mixture import Mixture
from bayesdrop.tables.deferral import conformal_threshold
from bayesdrop.tables.judge import Intervals
from bayesdrop.tables.model import TableModel

__all__ = ["check_target_kind", "write_interval"]

#: times that the range of a quantile is halved: to a billionth of it
_HALVINGS = 32


def check_target_kind(model: TableModel) -> None:
    """Raise if an ONNX file cannot make the model's predictions: those of whole numbers."""
    likelihood = model.estimator.mixture_.likelihood
    if isinstance(likelihood, WarpedGaussian) and likelihood.warp.whole:
        raise ValueError(
            f"export: the target {model.schema.target!r} was fitted as whole numbers, whose probabilities "
            "cannot be written to an ONNX file."
        )


def write_interval(
    w: Writer, model: TableModel, intervals: Intervals, draws: Handle, moments: dict[str, Handle]
) -> tuple[str, str]:
    """Names of the lower and the upper end, (N,) each.

    Args:
        w: the graph.
        model: of numbers.
        intervals: how its intervals are made.
        draws: (T, N, outputs) in the target's units.
        moments: "mean" and "std" of the prediction, (N,).
    """
    if intervals.scaled is not None:
        threshold = conformal_threshold(intervals.scaled, intervals.level)
        if math.isfinite(threshold):
            away = w.node("Mul", moments["std"].name, _double(w, threshold))
            mean = moments["mean"].name
            return w.node("Sub", mean, away), w.node("Add", mean, away)
    probability = intervals.probability(model.estimator) if intervals.scaled is None else intervals.level
    mixture: Mixture = model.estimator.mixture_
    mean, std = _components(w, mixture, draws.name)
    warp = mixture.likelihood.warp if isinstance(mixture.likelihood, WarpedGaussian) else None
    lower, upper = (
        _unwarped(w, _quantile(w, mean, std, q), warp) for q in ((1 - probability) / 2, (1 + probability) / 2)
    )
    return lower, upper


def _double(w: Writer, value: float) -> str:
    return w.constant(value, torch.float64)


def _components(w: Writer, mixture: Mixture, draws: str) -> tuple[str, str]:
    """Names of mean and standard deviation of every draw, (T, N); of g(y) where the target has a map g."""

    def part(place: int) -> str:
        return w.node("Gather", draws, w.constant(place, torch.int64), axis=2)

    if isinstance(mixture.likelihood, Gaussian):
        return part(0), _double(w, float(mixture.likelihood.noise_std))
    return part(0), w.node("Exp", w.node("Mul", part(1), _double(w, 0.5)))


def _quantile(w: Writer, mean: str, std: str, q: float) -> str:
    """The name of v, (N,), with (1/T) sum_t P(N(mean_t, std_t) <= v) = q; draws' own quantiles bound it."""
    score = float(torch.special.ndtri(torch.tensor(q, dtype=torch.float64)))
    ends = w.node("Add", mean, w.node("Mul", std, _double(w, score)))
    low = w.node("ReduceMin", ends, w.whole(0), keepdims=0)
    high = w.node("ReduceMax", ends, w.whole(0), keepdims=0)
    unit = w.node("Mul", std, _double(w, math.sqrt(2)))
    half, wanted = _double(w, 0.5), _double(w, 2 * q - 1)
    for _ in range(_HALVINGS):
        middle = w.node("Mul", w.node("Add", low, high), half)
        away = w.node("Div", w.node("Sub", middle, mean), unit)
        # onnxruntime has the error function in single precision only.
        share = w.node("Cast", w.node("Erf", w.node("Cast", away, to=1)), to=11)
        below = w.node("Less", w.node("ReduceMean", share, w.whole(0), keepdims=0), wanted)
        low, high = w.node("Where", below, middle, low), w.node("Where", below, high, middle)
    return w.node("Mul", w.node("Add", low, high), half)


def _unwarped(w: Writer, value: str, warp: Warp | None) -> str:
    """A quantile in the target's units, within the map's bounds: the inverse of the map."""
    if warp is None:
        return value
    if warp.kind == "asinh":
        grown = w.node("Exp", value)
        difference = w.node("Sub", grown, w.node("Reciprocal", grown))
        value = w.node("Add", w.node("Mul", difference, _double(w, warp.scale / 2)), _double(w, warp.centre))
    elif warp.kind == "logit":
        low, high = (float(warp.inverse(torch.tensor(end, dtype=torch.float64))) for end in (-800.0, 800.0))
        share = w.node("Sigmoid", value)
        value = w.node("Add", w.node("Mul", share, _double(w, high - low)), _double(w, low))
    if math.isfinite(warp.low):
        value = w.node("Max", value, _double(w, warp.low))
    if math.isfinite(warp.high):
        value = w.node("Min", value, _double(w, warp.high))
    return value
