"""Checks of the arguments of `fit`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from bayesdrop.errors import is_one_of, must, must_be_finite, must_be_flag, whole_number
from bayesdrop.fit.data import Batches
from bayesdrop.likelihoods import Likelihood
from bayesdrop.storage import check_writable

__all__ = [
    "Objective",
    "check_choosing",
    "check_judging",
    "check_modules",
    "check_num_data",
    "check_numbers",
    "check_schedule",
    "check_sharing",
    "check_watching",
    "checked_path",
]

Objective = Callable[[nn.Module, Any, Tensor], Any]


def check_modules(model: nn.Module, objective: Objective) -> None:
    """Raise unless `model` is a module with finite parameters and `objective` an objective."""
    if not isinstance(model, nn.Module):
        raise TypeError(must("fit", "model", "an nn.Module", model))
    if not callable(objective):
        raise TypeError(must("fit", "objective", "callable, as NegativeELBO(...)", objective))
    if isinstance(objective, Likelihood):
        hint = f"As NegativeELBO({type(objective).__name__}(), num_data=N)."
        raise TypeError(must("fit", "objective", "an objective, which has a likelihood", objective, hint))
    if isinstance(objective, nn.modules.loss._Loss):
        hint = (
            "A loss of outputs and targets becomes one so: lambda model, x, y: loss(model(x), y). Its "
            "counterpart with a divergence is NegativeELBO(Categorical(), num_data=N), or another likelihood."
        )
        raise TypeError(must("fit", "objective", "a function of (model, x, y)", objective, hint))
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ValueError(
                must("fit", "model", "a model with weights", f"a lazy {name}", "Run the model once first.")
            )
        must_be_finite("fit", f"{name} of model", parameter.detach())


def check_numbers(arguments: dict[str, tuple[Any, type, int | None]]) -> None:
    """Raise unless numbers have the right type and size.

    Args:
        arguments: from names to (value, int or float, the smallest value allowed; None for above 0).
    """
    for name, (value, kind, least) in arguments.items():
        if value is None and name in ("rate_lr", "patience", "clip_norm", "max_seconds", "ema"):
            continue
        if kind is int:
            whole_number("fit", name, value, at_least=least)
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and math.isfinite(value) and (value > 0 if least is None else value >= least):
            continue
        size = "above 0" if least is None else f"of at least {least}"
        raise ValueError(must("fit", name, f"a number {size}", value))


def check_judging(*, patience: int | None, validation: Any, score: Any, ema: float | None) -> None:
    """Raise if `patience` has nothing to judge by, or `ema` is not below 1."""
    if patience is not None and validation is None and score is None:
        raise ValueError(must("fit", "patience", "None without validation data or a score", patience))
    if ema is not None and ema >= 1:
        raise ValueError(must("fit", "ema", "in (0, 1), or None", ema))


def check_watching(callback: Any, score: Any, progress: Any) -> None:
    """Raise unless `callback` and `score` can be called, and `progress` is a flag or None."""
    if score is not None and not callable(score):
        want = "a function from the model to a number, higher for better, or None"
        raise TypeError(must("fit", "score", want, score))
    if callback is not None and not callable(callback):
        raise TypeError(must("fit", "callback", "callable with an epoch and a History, or None", callback))
    if progress is not None:
        must_be_flag("fit", progress=progress)


def check_schedule(p_schedule: Any) -> None:
    """Raise unless `p_schedule`, of drop rates, can be called or is None."""
    if p_schedule is not None and not callable(p_schedule):
        want = "a function of the share of the steps that is done, as RateSchedule(0.5, 0.05)"
        raise TypeError(must("fit", "p_schedule", want, p_schedule))


def check_sharing(share: Any, train: Any, generator: Any) -> None:
    """Raise unless processes can share the rows of `train`."""
    if not is_one_of(share, (None, "rows")):
        raise ValueError(must("fit", "share", "'rows' or None", share))
    if share is not None and isinstance(train, DataLoader):
        want = "tensors or a Dataset, whose rows can be split, with share='rows'"
        raise TypeError(must("fit", "train", want, type(train)))
    if share is not None and generator is not None:
        raise ValueError(must("fit", "generator", "None with share='rows'", generator))


def check_choosing(generator: Any, batches: Any) -> None:
    """Raise unless `generator` is a generator on the CPU or None, and `batches` can be called or is None."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(must("fit", "generator", "a torch.Generator, or None", generator))
    if generator is not None and generator.device.type != "cpu":
        raise ValueError(must("fit", "generator", "on the CPU", str(generator.device)))
    if batches is not None and not callable(batches):
        want = "a function from the epoch to lists of rows, or None"
        raise TypeError(must("fit", "batches", want, batches))


def checked_path(checkpoint: str | os.PathLike[str] | None, model: nn.Module) -> Path | None:
    """The checkpoint's path; raise now, and not after long training, if it cannot be written.

    Args:
        checkpoint: the argument of `fit`.
        model: the model that will be written there.
    """
    if checkpoint is None:
        return None
    if not isinstance(checkpoint, str | os.PathLike):
        raise TypeError(must("fit", "checkpoint", "the path of a file, or None", checkpoint))
    path = Path(checkpoint)
    if path.is_dir():
        raise ValueError(must("fit", "checkpoint", "a file", f"the folder {path}"))
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"fit: there is no folder {path.parent} for the checkpoint {path.name}.")
    check_writable(path, owner="fit", size=sum(tensor.nbytes for tensor in model.parameters()))
    return path


def check_num_data(objective: Objective, data: Batches) -> None:
    """Raise unless the objective's N is the number of rows: a wrong N would scale the divergence silently."""
    num_data = getattr(objective, "num_data", None)
    if isinstance(num_data, int) and data.num_rows is not None and num_data != data.num_rows:
        hint = f"Pass num_data={data.num_rows} to the objective: the divergence is divided by it."
        raise ValueError(
            must("fit", "objective.num_data", f"the {data.num_rows} rows of `train`", num_data, hint)
        )
