"""Training flags that are afterwards what they were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["evaluating", "flags_kept"]


@contextmanager
def flags_kept(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Afterwards every `training` flag is what it was. Scripts, which take no other, are in eval mode."""
    flags = {module: module.training for module in modules}
    try:
        for module in flags:
            if isinstance(module, torch.jit.ScriptModule):
                module.training = False
        yield
    finally:
        for module, flag in flags.items():
            if isinstance(module, torch.jit.ScriptModule):
                module.training = flag
            else:
                module.__dict__["training"] = flag


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """The given modules and all below them in eval mode; every training flag is restored on leaving."""
    flags = {child: child.training for module in modules for child in module.modules()}
    try:
        for child in flags:
            child.training = False
        yield
    finally:
        for child, flag in flags.items():
            child.training = flag
