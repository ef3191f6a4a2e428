"""Draws of dropout networks written by hand in JAX and compiled: the other side of `engine_jax.py`.

It reads lines of JSON and answers each with one. A case comes as a file of a network's weights and its input.
Masks belong to a draw, all rows share them, and what lies before the first mask runs once. Three ways:
`lax.map` over draws, `vmap` over all of them, and `lax.map` over batches of eight that are each a `vmap`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

# Before JAX is imported: one thread, on one core.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Weights = dict[str, Any]
#: how many draws are one `vmap`; 0 for all
WAYS = {"lax.map": 1, "lax.map of vmap": 8, "vmap": 0}


def convolved(x: Any, kernel: Any, *, padding: str) -> Any:
    """Rows, height, width, channels; kernels as HWIO."""
    return lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pooled(x: Any) -> Any:
    """The largest of every 2 x 2."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


class Perceptron:
    """Dropout before every layer."""

    def __init__(self, weights: Weights, p: float) -> None:
        self.layers = [(weights[f"w{i}"].T, weights[f"b{i}"]) for i in range(len(weights) // 2)]
        self.sizes = [w.shape[0] for w, _ in self.layers]
        self.p = p

    def before(self, x: Any) -> Any:
        return x

    def draw(self, h: Any, masks: list[Any]) -> Any:
        for place, ((w, b), z) in enumerate(zip(self.layers, masks, strict=True)):
            h = (h if place == 0 else jax.nn.relu(h)) * z
            h = h @ w + b
        return h


class LeNet:
    """Dropout before the last layer."""

    def __init__(self, weights: Weights, p: float) -> None:
        self.kernels = [(weights[f"c{i}"].transpose(2, 3, 1, 0), weights[f"cb{i}"]) for i in range(2)]
        # torch flattens channels first: the first linear map's columns in the order of NHWC.
        first = weights["w0"].reshape(-1, 50, 4, 4).transpose(2, 3, 1, 0).reshape(800, -1)
        self.layers = [(first, weights["b0"]), (weights["w1"].T, weights["b1"])]
        self.sizes = [500]
        self.p = p

    def before(self, x: Any) -> Any:
        h = x.transpose(0, 2, 3, 1)
        for kernel, bias in self.kernels:
            h = pooled(convolved(h, kernel, padding="VALID") + bias)
        (w, b), _ = self.layers
        return jax.nn.relu(h.reshape(len(h), -1) @ w + b)

    def draw(self, h: Any, masks: list[Any]) -> Any:
        w, b = self.layers[1]
        return (h * masks[0]) @ w + b


class Residual:
    """Four blocks, normalisation folded into the convolutions; dropout before the head or in the blocks."""

    def __init__(self, weights: Weights, p: float, *, blocks: bool) -> None:
        self.stem = weights["stem"].transpose(2, 3, 1, 0), weights["stem_bias"]
        self.blocks = [
            [(weights[f"k{i}{j}"].transpose(2, 3, 1, 0), weights[f"s{i}{j}"]) for j in range(2)]
            for i in range(4)
        ]
        self.head = weights["w"].T, weights["b"]
        self.in_blocks = blocks
        self.sizes = [32] * 4 if blocks else [32]
        self.p = p

    def first_half(self, h: Any, block: int) -> Any:
        kernel, shift = self.blocks[block][0]
        return jax.nn.relu(convolved(h, kernel, padding="SAME") + shift)

    def second_half(self, skip: Any, h: Any, block: int) -> Any:
        kernel, shift = self.blocks[block][1]
        return jax.nn.relu(skip + convolved(h, kernel, padding="SAME") + shift)

    def before(self, x: Any) -> Any:
        kernel, bias = self.stem
        h = convolved(x.transpose(0, 2, 3, 1), kernel, padding="SAME") + bias
        if self.in_blocks:
            return h, self.first_half(h, 0)
        for block in range(4):
            h = self.second_half(h, self.first_half(h, block), block)
        return h.mean((1, 2))

    def draw(self, before: Any, masks: list[Any]) -> Any:
        w, b = self.head
        if not self.in_blocks:
            return (before * masks[0]) @ w + b
        skip, h = before
        for block in range(4):
            if block > 0:
                h = self.first_half(skip, block)
            skip = self.second_half(skip, h * masks[block], block)
        return skip.mean((1, 2)) @ w + b


KINDS: dict[str, Callable[..., Any]] = {
    "perceptron": Perceptron,
    "lenet": LeNet,
    "residual-head": partial(Residual, blocks=False),
    "residual-blocks": partial(Residual, blocks=True),
}


def sampled(net: Any, key: Any, num_draws: int) -> list[Any]:
    """Masks (T, units) of every place, divided by the chance of keeping."""
    keys = jax.random.split(key, len(net.sizes))
    return [
        jax.random.bernoulli(k, 1 - net.p, (num_draws, size)).astype(jnp.float32) / (1 - net.p)
        for k, size in zip(keys, net.sizes, strict=True)
    ]


def compiled(net: Any, way: str, num_draws: int) -> Callable[..., Any]:
    """(key, x) -> mean and variance over draws, as one compiled function."""

    def run(key: Any, x: Any) -> Any:
        before = net.before(x)
        masks = sampled(net, key, num_draws)

        def one(z: list[Any]) -> Any:
            return net.draw(before, z)

        if way == "vmap":
            draws = jax.vmap(one)(masks)
        else:
            batch = None if WAYS[way] == 1 else min(WAYS[way], num_draws)
            draws = lax.map(one, masks, batch_size=batch)
        return draws.mean(0), draws.var(0, ddof=1)

    return jax.jit(run)


class Worker:
    """Holds one case and answers requests about it."""

    def load(self, *, kind: str, path: str, p: float, num_draws: int) -> dict[str, Any]:
        """Take a case; compile all ways of it, which must agree where they have the same masks."""
        with np.load(path) as stored:
            weights = {name: jnp.asarray(stored[name]) for name in stored.files}
        self.x = weights.pop("x")
        self.net = KINDS[kind](weights, p)
        self.key = jax.random.key(0)
        self.num_draws = num_draws
        self.calls, seconds, found = {}, {}, []
        for way in WAYS:
            self.calls[way] = compiled(self.net, way, num_draws)
            start = time.process_time()
            found.append(jax.block_until_ready(self.calls[way](self.key, self.x)))
            seconds[way] = time.process_time() - start
        for mean, variance in found[1:]:
            np.testing.assert_allclose(mean, found[0][0], rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(variance, found[0][1], rtol=1e-3, atol=1e-4)
        return {"compile_seconds": seconds}

    def time(self, *, ways: list[str], least: float) -> dict[str, float]:
        """CPU seconds of each way, one turn."""
        found = {}
        jax.block_until_ready(jax.random.split(self.key))  # compiled, so that no way pays for it
        for way in ways:
            start, spent, repeats = time.process_time(), 0.0, 0
            while spent < least:
                self.key, key = jax.random.split(self.key)
                jax.block_until_ready(self.calls[way](key, self.x))
                repeats += 1
                spent = time.process_time() - start
            found[way] = spent / repeats
        return found

    def moments(self, *, way: str, repeats: int, path: str) -> dict[str, Any]:
        """Mean and variance of so many times the draws, and the output without noise, into an npz file."""
        keys = jax.random.split(jax.random.key(1), repeats)
        parts = [self.calls[way](key, self.x) for key in keys]
        means, variances = (np.stack(part).astype(np.float64) for part in zip(*parts, strict=True))
        total = repeats * self.num_draws
        between = self.num_draws * (means - means.mean(0)) ** 2
        variance = ((self.num_draws - 1) * variances + between).sum(0) / (total - 1)
        ones = [jnp.ones(size) for size in self.net.sizes]
        plain = self.net.draw(self.net.before(self.x), ones)
        np.savez(path, mean=means.mean(0), variance=variance, plain=plain)
        return {}


def main() -> None:
    """Answer until the input ends."""
    print(json.dumps({"jax": jax.__version__}), flush=True)
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(worker, request.pop("do"))(**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
