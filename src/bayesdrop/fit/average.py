"""An exponential moving average of the weights, which often predicts better than the last weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from bayesdrop.fit.checkpoint import Run

__all__ = ["averaged", "update_average"]


@torch.no_grad()
def update_average(run: Run, decay: float) -> None:
    """Update the averages of all parameters and floating-point buffers after a step.

        average <- d average + (1 - d) weights,    d = min(decay, (1 + t) / (10 + t)) after t steps

    In the beginning d is small, so that the initial weights are soon forgotten. Other buffers, as counts, are
    copied.
    """
    tensors = run.tensors()
    if run.average is None:
        run.average = run.copy_state()
        return
    rate = 1 - min(decay, (1 + run.step) / (10 + run.step))
    old: list[Tensor] = []
    new: list[Tensor] = []
    for name, tensor in tensors.items():
        known = run.average.get(name)
        if known is None or known.shape != tensor.shape or not tensor.is_floating_point():
            run.average[name] = tensor.detach().clone()
        else:
            old.append(known)
            new.append(tensor.detach())
    torch._foreach_lerp_(old, new, rate)


@contextmanager
def averaged(run: Run) -> Iterator[None]:
    """A context: the model and the objective have their averages inside, and their own tensors afterwards."""
    if run.average is None:
        yield
        return
    own = run.copy_state()
    run.put_back(run.average)
    try:
        yield
    finally:
        run.put_back(own)
