"""predict(): T function draws of a model, gathered batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bayesdrop.draws import Where
from bayesdrop.errors import must
from bayesdrop.inputs import Inputs, is_batch, iterate_rows, num_rows, to_device
from bayesdrop.likelihoods import Likelihood
from bayesdrop.predict.accumulate import DrawStatistics, Statistics
from bayesdrop.predict.prediction import Prediction, frozen_copy
from bayesdrop.predict.sampler import DrawSampler, unwrapped
from bayesdrop.progress import progress_bar

__all__ = ["KEPT_BYTES", "predict"]

#: draws are kept without being asked for up to this size
KEPT_BYTES = 64 * 2**20


def predict(
    model: nn.Module,
    x: Inputs | Iterable[Inputs],
    *,
    num_draws: int = 100,
    seed: int = 0,
    likelihood: Likelihood | None = None,
    draws: Literal["shared", "independent"] = "shared",
    batch_size: int | None = None,
    include: Where | Iterable[Where] | None = None,
    exclude: Where | Iterable[Where] | None = None,
    recurrent: Literal["module", "variational"] = "module",
    max_memory: int | None = None,
    plan: Literal["stacked", "kept units", "loop", "whole model"] | None = None,
    keep_draws: bool | None = None,
    targets: Tensor | None = None,
    progress: bool = False,
) -> Prediction:
    """Predictive distribution of a model whose weights are random.

        mean = (1/T) sum_t E[y | f_t(x)],    variance = Var_t E[y | f_t(x)] + (1/T) sum_t Var[y | f_t(x)]

    Every stochastic layer and every `nn.Dropout*` module is random; everything else, BatchNorm too, is
    in eval mode. Training flags, buffers and the global random state are afterwards as they were before.

    Args:
        model: any `nn.Module` with something random in it.
        x: a tensor, a tuple (positional) or mapping (keywords) of tensors with N rows, or an iterable of
            such batches, as a `DataLoader`.
        num_draws: T.
        seed: draw t of a seed is the same function in every call, batch size and order.
        likelihood: what the outputs mean; None gives moments of the raw outputs.
        draws: "shared": a draw is one function for all rows. "independent": noise for every row of its
            own, seeded by the first row of its batch; per-point moments are the same.
        batch_size: rows that pass through the model at a time.
        keep_draws: whether `prediction.draws` is kept; None keeps up to 64 MiB.
        targets: y, to score while the draws go by, so that `log_prob(y)` needs no kept draws.
        progress: show a bar (needs the extra "cli").

    Reference: Gal & Ghahramani (2016), Eqs 6 to 8.

    >>> import bayesdrop as bd
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    >>> bd.predict(net, torch.zeros(5, 3), num_draws=20, likelihood=bd.Gaussian(0.1))
    Prediction((5, 1), Gaussian, 20 draws, kept)
    """
    _check_arguments(model, num_draws, likelihood, draws, batch_size, targets)
    model = unwrapped(model)
    batches, num_batches = _batches(x, batch_size)
    frozen = frozen_copy(likelihood)
    device = next((p.device for p in [*model.parameters(), *model.buffers()]), torch.device("cpu"))
    placed = None if likelihood is None else frozen_copy(likelihood)
    if placed is not None:
        placed.to(device)
    keeper = _Keeper(keep_draws)
    parts: list[Statistics] = []
    joint = torch.zeros(num_draws, dtype=torch.float64)
    seen = 0
    total = None if num_batches is None else num_batches * num_draws
    shared = draws == "shared"
    sampler = DrawSampler(
        model,
        seed=seed,
        num_draws=num_draws,
        per_row=not shared,
        include=include,
        exclude=exclude,
        recurrent=recurrent,
        max_memory=max_memory,
        way=plan,
    )
    with (
        torch.no_grad(),
        _global_random_state_kept(),
        progress_bar("predict", total, show=progress) as advance,
    ):
        for raw in batches:
            batch = to_device(raw, device)
            rows = num_rows(batch)
            y = _batch_targets(targets, seen, rows, device)
            running = DrawStatistics(placed, y)
            keeper.start(num_draws)
            for outputs in sampler.batch(batch, rows, seen):
                running.update_many(outputs)
                keeper.add(outputs)
                advance(outputs.shape[0], "")
            parts.append(running.result())
            if y is not None:
                joint += torch.tensor(running.joint, dtype=torch.float64)
            seen += rows
    if not parts:
        raise ValueError(must("predict", "x", "at least one batch", "none"))
    if targets is not None and targets.shape[0] != seen:
        raise ValueError(must("predict", "targets", f"{seen} rows, as `x`", tuple(targets.shape)))
    return Prediction.from_statistics(
        Statistics.concatenate(parts), num_draws, frozen, shared, keeper.result(), targets, joint
    )


class _Keeper:
    """Keeps the outputs of all draws, or stops once they are no longer small."""

    def __init__(self, keep: bool | None) -> None:
        self._keep = keep
        self._blocks: list[Tensor] | None = None if keep is False else []
        self._bytes = 0

    def start(self, num_draws: int) -> None:
        """A batch begins."""
        self._num_draws = num_draws
        self._filled = 0

    def add(self, outputs: Tensor) -> None:
        """Some draws of the batch, (C, N, ...)."""
        if self._blocks is None:
            return
        if self._filled == 0:
            size = outputs[0].numel() * outputs.element_size() * self._num_draws
            if self._keep is None and self._bytes + size > KEPT_BYTES:
                self._blocks = None
                return
            self._bytes += size
            self._blocks.append(torch.empty((self._num_draws, *outputs.shape[1:]), dtype=outputs.dtype))
        self._blocks[-1][self._filled : self._filled + outputs.shape[0]] = outputs
        self._filled += outputs.shape[0]

    def result(self) -> Tensor | None:
        if self._blocks is None:
            return None
        return self._blocks[0] if len(self._blocks) == 1 else torch.cat(self._blocks, dim=1)


@contextmanager
def _global_random_state_kept() -> Iterator[None]:
    """A model may use the global generator in its forward; give its state back afterwards."""
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=cuda):
        yield


def _batches(x: Any, batch_size: int | None) -> tuple[Iterator[Inputs], int | None]:
    if is_batch(x):
        rows = num_rows(x)
        if rows < 1:
            raise ValueError(must("predict", "x", "at least one row", 0))
        count = 1 if batch_size is None else -(-rows // batch_size)
        return iterate_rows(x, batch_size), count
    if not isinstance(x, Iterable):
        raise TypeError(
            must("predict", "x", "a tensor, a tuple or mapping of tensors, or batches of such", x)
        )
    if batch_size is not None:
        hint = "Set the batch size of the loader instead."
        raise ValueError(must("predict", "batch_size", "None for an iterable of batches", batch_size, hint))
    return iter(x), len(x) if isinstance(x, Sized) else None


def _batch_targets(targets: Tensor | None, start: int, rows: int, device: torch.device) -> Tensor | None:
    if targets is None:
        return None
    part = targets[start : start + rows]
    if part.shape[0] != rows:
        raise ValueError(must("predict", "targets", "as many rows as `x`", tuple(targets.shape)))
    return part.to(device)


def _check_arguments(
    model: nn.Module,
    num_draws: int,
    likelihood: Likelihood | None,
    draws: str,
    batch_size: int | None,
    targets: Tensor | None,
) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(must("predict", "model", "an nn.Module", model))
    for name, value in (("num_draws", num_draws), ("batch_size", 1 if batch_size is None else batch_size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(must("predict", name, "an int of at least 1", value))
    if draws not in ("shared", "independent"):
        raise ValueError(must("predict", "draws", "'shared' or 'independent'", draws))
    if likelihood is not None and not isinstance(likelihood, Likelihood):
        raise TypeError(must("predict", "likelihood", "a Likelihood, as Categorical(), or None", likelihood))
    if targets is not None and likelihood is None:
        raise ValueError(must("predict", "targets", "None without a likelihood", targets))
