"""Choosing, by shapes and rates, how the draws of one batch are run; and running them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bayesdrop.execute.channels import keep_channels
from bayesdrop.execute.perceptron import MOSTLY_KEPT, Perceptron
from bayesdrop.execute.rewrite import (
    as_perceptron,
    channels_last,
    fast_products,
    fold,
    fold_norms,
    folded_convolution,
    in_place,
)
from bayesdrop.execute.sequential import Reading
from bayesdrop.execute.split import split_concatenations
from bayesdrop.functional.products import ONEDNN
from bayesdrop.noise import KeepNoise, NoiseSource
from bayesdrop.operations import TABLE, canonical
from bayesdrop.randomness import ProcessSwitch
from bayesdrop.threads import thread_pool
from bayesdrop.trace import Leaf, Op, Tape

__all__ = ["CACHE_BYTES", "WAYS", "DrawPlan", "Runner"]

#: the plans that a user may ask for
WAYS = ("stacked", "kept units", "loop", "whole model")
#: bytes that a chunk of draws may use and stay in the processor's cache
CACHE_BYTES = 2 * 2**20
#: draws whose noise is made together where units are kept, draw by draw
_KEPT_DRAWS = 64
# Costs in nanoseconds on one core: only their ratios matter, and only for the choice of a plan.
_CALL = 6_000.0  # one torch function from Python
_MAC = 1 / 30  # one multiply-add of a large product
_FAST_MAC = 1 / 70  # the same by oneDNN, where that is the faster
_ELEMENT = 0.35  # one element of an element-wise function
_GATHERED = 0.8  # one element of a gathered column
_THREADS = 10e6  # from here on, threads of our own are worth their start


@dataclass(frozen=True)
class DrawPlan:
    """How the draws of a batch are run.

    Attributes:
        way: "stacked", "kept units", "loop", or "whole model".
        chunk: draws run at a time.
        prefix: whether the part of the model that does not depend on noise runs only once.
        why: the reason for this way, in a few words.
    """

    way: str
    chunk: int
    prefix: bool
    why: str

    def __str__(self) -> str:
        once = (
            "the part before the first noise ran once" if self.prefix else "the whole model ran for each draw"
        )
        size = f", {self.chunk} draws at a time" if self.chunk > 1 else ""
        return f"{self.way}{size}: {self.why}; {once}"


class Runner:
    """Runs any draws of a batch, from its tape or reading.

    Args:
        work: the part of the pass that depends on noise.
        source: where noise comes from.
        suffix: added to every site's key, where each row has its own noise.
        num_draws: how many draws will be wanted in all.
        max_memory: bytes that a chunk may take; None for what stays in cache.
        way: the way to use, whatever it costs; None to choose the cheapest.
        most: the most draws to run at a time.
    """

    def __init__(
        self,
        work: Tape | Reading,
        source: NoiseSource,
        *,
        suffix: str = "",
        num_draws: int,
        max_memory: int | None = None,
        way: str | None = None,
        most: int | None = None,
    ) -> None:
        self.source = source
        self.suffix = suffix
        self.leaves = work.leaves
        self.net: Perceptron | None = None
        self._nanoseconds = 0.0  # of one draw, where it is known
        self._is_limited = max_memory is not None
        if way in (None, "stacked", "kept units"):
            self.net = work.perceptron() if isinstance(work, Reading) else as_perceptron(work)
        if self.net is not None:
            self.per_draw = self.net.bytes_per_draw()
        else:
            tape = work.tape() if isinstance(work, Reading) else work
            self.per_draw = _bytes(tape)
            tape = fold(fold_norms(tape))
            if any(op.func is torch.cat for op in tape.ops):
                tape = split_concatenations(tape)
            self.tape = tape
        self.plan = self._chosen(num_draws, max_memory, way)
        if self.net is None:
            if self.plan.way == "loop" and any(op.func is folded_convolution for op in self.tape.ops):
                self.tape = keep_channels(self.tape)
            self.tape = fast_products(in_place(channels_last(self.tape)))
        if most is not None and self.plan.chunk > most:
            self.plan = replace(self.plan, chunk=most)

    def outputs(self, first: int, count: int) -> Iterator[Tensor]:
        """Outputs of the draws first, ..., first + count - 1 in order, as stacks (C, N, ...)."""
        last = first + count
        with self._side_by_side(count) as side_by_side:
            while first < last:
                # Up to the next multiple, so that chunks agree with the blocks that noise is made in.
                size = min(self.plan.chunk - first % self.plan.chunk, last - first)
                try:
                    stacked = self._chunk(first, size, side_by_side)
                except (RuntimeError, MemoryError) as error:
                    self._step_back(error)
                    continue
                yield stacked
                first += size

    # choosing

    def _chosen(self, num_draws: int, max_memory: int | None, way: str | None) -> DrawPlan:
        chunk = self._chunk_size(num_draws, max_memory)
        if way is not None:
            sizes = {"loop": 1, "kept units": max(1, min(num_draws, _KEPT_DRAWS))}
            return DrawPlan(way, sizes.get(way, chunk), True, "as asked")
        if num_draws == 1:
            return DrawPlan("loop" if self.net is None else "stacked", 1, True, "there is one draw")
        if self.net is not None:
            return self._perceptron_plan(self.net, num_draws, chunk)
        work = _work(self.tape) / max(1, len(self.tape.ops))
        if work < 4 * _CALL and num_draws > 2 and not self.tape.mutates:
            return DrawPlan("stacked", chunk, True, "each draw is small")
        return DrawPlan("loop", 1, True, "each draw is large")

    def _chunk_size(self, num_draws: int, max_memory: int | None) -> int:
        limit = CACHE_BYTES if max_memory is None else min(CACHE_BYTES, max_memory)
        size = max(1, min(num_draws, 128, limit // max(1, self.per_draw)))
        return 64 if 32 <= size < num_draws else size

    def _perceptron_plan(self, net: Perceptron, num_draws: int, chunk: int) -> DrawPlan:
        rows = net.start.shape[0]
        mac = _FAST_MAC if ONEDNN else _MAC
        stacked = kept = 0.0
        # Sites of one rate share their sampler.
        shares = {id(leaf.sample): leaf for leaf in net.leaves}
        share = {key: _keep_share(leaf, self.source) for key, leaf in shares.items()}
        probable = [1.0 if m.leaf is None else share[id(m.leaf.sample)] for m in net.maps]
        for place, m in enumerate(net.maps):
            outputs, inputs = m.weight.shape
            o = outputs * (probable[place + 1] if place + 1 < len(probable) else 1.0)
            k = inputs * probable[place]
            stacked += rows * inputs * outputs * mac + min(rows, outputs) * inputs * _ELEMENT
            if place == 0 and MOSTLY_KEPT * inputs < k < inputs:
                # The input is the same for all draws: what they drop is taken off.
                k = inputs - k
                kept += k * outputs * 0.15 + rows * o * _ELEMENT
            else:
                kept += o * inputs * 0.15
            kept += rows * k * o * mac + o * k * _GATHERED + 5 * _CALL
        stacked += len(net.steps) * _CALL * 1.5 / max(1, chunk)
        self._nanoseconds = min(kept, stacked)
        if kept < stacked:
            size = max(1, min(num_draws, _KEPT_DRAWS))
            return DrawPlan("kept units", size, True, "a shared mask drops units for all rows")
        return DrawPlan("stacked", chunk, True, "draws in one batched product")

    # running

    def _chunk(self, first: int, size: int, side_by_side: _SideBySide | None) -> Tensor:
        noise = {leaf.index: self._noise(leaf, first, size) for leaf in self.leaves}
        if self.net is not None:
            if self.plan.way == "kept units" and not self.net.is_two_valued(noise):
                self.plan = DrawPlan("stacked", self._chunk_size(size, None), True, "its noise has no zeros")
            run = Perceptron.kept_draws if self.plan.way == "kept units" else Perceptron.stacked
            return run(self.net, noise) if side_by_side is None else side_by_side.run(run, noise, size)
        ordered = [noise[leaf.index] for leaf in self.tape.leaves]
        if self.plan.way == "stacked" and size > 1:
            return _vmapped(self.tape.run)(*ordered)
        if size == 1:
            return self.tape.run(*(z[0] for z in ordered)).unsqueeze(0)
        return torch.stack([self.tape.run(*(z[draw] for z in ordered)) for draw in range(size)])

    def _side_by_side(self, count: int) -> AbstractContextManager[_SideBySide | None]:
        """Threads of our own for a perceptron: torch's find little to share in products of single draws."""
        threads = min(torch.get_num_threads(), count)
        if (
            self.net is None
            or threads < 2
            or count * self._nanoseconds < _THREADS
            or self.net.start.device.type != "cpu"
            or self._is_limited
            or torch.is_grad_enabled()
            or torch.is_autocast_enabled("cpu")
        ):
            return nullcontext()
        return _SideBySide.over(self.net, threads)

    def _noise(self, leaf: Leaf, first: int, count: int) -> Tensor:
        made = self.source.rows(leaf.key + self.suffix, first, count, leaf.shape, leaf.sample)
        return made.to(device=leaf.device, dtype=leaf.dtype)

    def _step_back(self, error: Exception) -> None:
        """After a failure, choose a simpler plan: smaller chunks, then one draw at a time."""
        memory = isinstance(error, MemoryError) or "alloc" in str(error) or "out of memory" in str(error)
        if memory and self.plan.chunk > 1:
            self.plan = DrawPlan(self.plan.way, self.plan.chunk // 2, True, "less memory than hoped")
        elif self.plan.way == "stacked" and self.net is None:
            self.plan = DrawPlan(
                "loop", 1, True, f"draws cannot be stacked ({str(error).splitlines()[0][:80]})"
            )
        else:
            raise error


class _SideBySide:
    """Draws of a perceptron in several threads, each with memory of its own.

    Args:
        net: the perceptron.
        pool: the threads.
        threads: how many they are.
    """

    def __init__(self, net: Perceptron, pool: ThreadPoolExecutor, threads: int) -> None:
        self._nets = [Perceptron(net.start, net.steps) for _ in range(threads)]
        self._pool = pool

    @classmethod
    @contextmanager
    def over(cls, net: Perceptron, threads: int) -> Iterator[_SideBySide]:
        """As many threads as that, which end with the context."""
        with thread_pool(threads) as pool:
            yield cls(net, pool, threads)

    def run(
        self, run: Callable[[Perceptron, dict[int, Tensor]], Tensor], noise: dict[int, Tensor], size: int
    ) -> Tensor:
        """Outputs (C, N, D) of all draws, from (C, 1, K) noise of every leaf."""
        mode = torch.inference_mode if torch.is_inference_mode_enabled() else torch.no_grad

        def part(net: Perceptron, own: dict[int, Tensor]) -> Tensor:
            with mode():
                return run(net, own)

        count = min(size, len(self._nets))
        ends = [size * place // count for place in range(count + 1)]
        waiting = [
            self._pool.submit(part, net, {key: z[start:stop] for key, z in noise.items()})
            for net, start, stop in zip(self._nets, ends, ends[1:], strict=False)
        ]
        return torch.cat([future.result() for future in waiting])


def _without_fallback() -> Callable[[], Any]:
    """Make vmap fail, instead of running a slow loop, where torch has no batching rule."""
    functorch: Any = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    return partial(functorch._set_vmap_fallback_enabled, before)


_no_fallback = ProcessSwitch(_without_fallback)


def _vmapped(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def checked(*noise: Tensor) -> Tensor:
        with _no_fallback:
            stacked: Tensor = torch.vmap(run, randomness="error")(*noise)
        return stacked

    return checked


def _keep_share(leaf: Leaf, source: NoiseSource) -> float:
    """Share of units that are not dropped: 1 - p for a mask, else counted in the first draw."""
    if type(leaf.sample) is KeepNoise and leaf.sample.p.dim() == 0:
        return 1 - leaf.sample.p.item()
    noise = source.rows(leaf.key, 0, 1, leaf.shape, leaf.sample)
    return float((noise != 0).float().mean())


def _bytes(tape: Tape) -> int:
    sizes = [math.prod(shape) for op in tape.ops for shape in op.shapes]
    return 4 * (max(sizes) * 2 if sizes else 1)


def _work(tape: Tape) -> float:
    """Nanoseconds of arithmetic in one draw, roughly."""
    total = 0.0
    for op in tape.ops:
        out = sum(math.prod(shape) for shape in op.shapes)
        total += out * (_ELEMENT + _multiply_adds(op) * _MAC)
    return total


def _multiply_adds(op: Op) -> int:
    """Multiply-adds for one element of the result, roughly."""
    weights = [a for a in op.args if isinstance(a, Tensor) and a.dim() >= 2]
    if op.name == "_split_convolution":
        return math.prod(weights[0].shape[1:])
    if op.name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return 512
    product = TABLE[canonical(op.func)].product if canonical(op.func) in TABLE else None
    if weights and (product == "layer" or op.name in ("_folded_linear", "folded_convolution")):
        return math.prod(weights[-1].shape[1:])
    return 64 if product == "matrix" else 0
