"""The networks of a table model, with the encoding of their inputs, as nodes of an ONNX graph."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesdrop.export.call import recorded_program
from bayesdrop.export.nodes import Handle, Writer
from bayesdrop.export.onnx_file import write_draws
from bayesdrop.export.packing import noise_of, packed
from bayesdrop.export.program import Dims, Size
from bayesdrop.likelihoods import Gaussian
from bayesdrop.predict import PartlyRandom
from bayesdrop.stacked.encode import Encoder
from bayesdrop.stacked.job import export as as_module
from bayesdrop.stacked.mixture import Mixture
from bayesdrop.stacked.start import Guess

__all__ = ["write_encoder", "write_mixture"]


def write_mixture(w: Writer, mixture: Mixture, x: str) -> Handle:
    """Write all draws of a mixture of networks; returns (T, N, outputs) in the target's units.

    Args:
        w: the graph.
        mixture: the networks.
        x: name of the columns (N, K), in double precision.
    """
    inputs = {name: write_encoder(w, encoder, x) for name, encoder in mixture.encoders.items()}
    one_noise = isinstance(mixture.likelihood, Gaussian)
    parts = []
    for place, (component, count) in enumerate(
        zip(mixture.components, mixture.counts(mixture.num_draws), strict=True)
    ):
        if count == 0:
            continue
        network, width = component.network, mixture.encoders[component.encoder].width
        given = Handle((Size(1), width), torch.float32, inputs[component.encoder])
        seed = mixture.seed_of(place)
        with warnings.catch_warnings():
            # Layers whose rate is 0 were asked for.
            warnings.simplefilter("ignore", PartlyRandom)
            program = recorded_program(as_module(network), torch.zeros(1, width), num_draws=count, seed=seed)
        noise = [packed(noise_of(leaf, count, seed)) for leaf in program.leaves]
        output = write_draws(w, program, [given], noise, (), count)
        name = w.node("Cast", output.name, to=11)
        level = network.log_noise_std
        if mixture.target is not None and not one_noise and level is not None:
            twice = (2 * level).double().reshape(1, 1, -1)
            rest = w.node("Mul", name, _double(w, np.zeros(1)))
            name = w.node("Concat", name, w.node("Add", rest, w.constant(twice)), axis=2)
        parts.append(name)
    draws = parts[0] if len(parts) == 1 else w.node("Concat", *parts, axis=0)
    outputs = mixture.components[0].network.widths[-1]
    if mixture.target is not None:
        draws, outputs = _in_units(w, mixture, draws, one_noise)
    shape: Dims = (mixture.num_draws, Size(1), outputs)
    return Handle(shape, torch.float64, draws)


def _double(w: Writer, values: Any) -> str:
    return w.constant(torch.as_tensor(np.asarray(values, dtype=np.float64)))


def _in_units(w: Writer, mixture: Mixture, draws: str, one_noise: bool) -> tuple[str, int]:
    """Name and number of the outputs in the target's units: means, and unless `one_noise`, log-variances."""
    assert mixture.target is not None
    mean, scale = mixture.target.mean, mixture.target.scale
    count = len(mean)
    least, most = mixture.target.bounds(heteroscedastic=not one_noise)
    draws = w.node("Min", w.node("Max", draws, _double(w, least)), _double(w, most))
    if one_noise:
        return w.node("Add", w.node("Mul", draws, _double(w, scale)), _double(w, mean)), count
    times = np.concatenate([scale, np.ones(count)])
    plus = np.concatenate([mean, 2 * np.log(scale)])
    made = w.node("Add", w.node("Mul", draws, _double(w, times)), _double(w, plus))
    scales: Tensor | None = mixture.log_scales(mixture.num_draws, mixture.seed_of(0))
    if scales is not None:
        both = torch.cat([torch.zeros_like(scales), scales], 1).unsqueeze(1)
        made = w.node("Add", made, w.constant(both))
    return made, 2 * count


# the encoding


def write_encoder(w: Writer, encoder: Encoder, x: str) -> str:
    """`Encoder.__call__`: the inputs (N, width) of networks, in single precision."""
    seen = encoder.seen
    bounded = w.node("Min", w.node("Max", x, _double(w, seen.least)), _double(w, seen.most))
    parts = [bounded]
    if encoder.chosen is not None:
        parts = [w.node("Gather", bounded, w.constant(torch.from_numpy(encoder.chosen)), axis=1)]
    if encoder.guess is not None:
        parts += _guessed(w, encoder.guess, bounded)
    columns = parts[0] if len(parts) == 1 else w.node("Concat", *parts, axis=1)
    unit = encoder.unit
    scaled = w.node("Mul", columns, _double(w, unit))
    plain = w.node("Sub", scaled, _double(w, encoder.mean * unit))
    made = w.node("Cast", w.node("Div", plain, _double(w, encoder.scale * unit)), to=1)
    if encoder.offset is None:
        return made
    low, width = encoder.intervals
    away = w.node("Sub", w.node("Unsqueeze", scaled, w.whole(2)), _double(w, low))
    share = w.node("Div", away, _double(w, width))
    pieces = w.node("Min", w.node("Max", share, _double(w, 0.0)), _double(w, 1.0))
    flat = w.node("Reshape", pieces, w.whole(-1, low.size))
    centred = w.node("Cast", w.node("Sub", flat, _double(w, encoder.offset)), to=1)
    return w.node("Concat", made, centred, axis=1)


def _guessed(w: Writer, guess: Guess, x: str) -> list[str]:
    """Names of what boosted trees and a linear map predict, (N, C) each.

    A row walks down all trees at once, from one level to the next: it is at one node of each tree.
    """
    trees = guess.trees
    size, outputs = trees.roots.shape

    def table(values: Any) -> str:
        return w.constant(torch.from_numpy(np.ascontiguousarray(values)))

    feature, threshold = table(trees.feature), table(trees.threshold)
    left, right = table(trees.left), table(trees.right)
    assert w.rows is not None
    start = w.node("Concat", w.rows, w.whole(1), axis=0)
    at = w.node("Expand", table(trees.roots.reshape(1, -1)), start)
    for _ in range(trees.depth):
        values = w.node("GatherElements", x, w.node("Gather", feature, at, axis=0), axis=1)
        above = w.node("Greater", values, w.node("Gather", threshold, at, axis=0))
        at = w.node("Where", above, w.node("Gather", right, at, axis=0), w.node("Gather", left, at, axis=0))
    leaves = w.node("Reshape", w.node("Gather", table(trees.value), at, axis=0), w.whole(-1, size, outputs))
    total = w.node("Add", w.node("ReduceSum", leaves, w.whole(1), keepdims=0), table(trees.base))
    linear = w.node("Add", w.node("MatMul", x, table(guess.slopes)), table(guess.levels))
    return [total, linear]
