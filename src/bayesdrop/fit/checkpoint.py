"""The state of a training run, written to a file and read back without pickle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.fit.history import History
from bayesdrop.fit.ranks import Alone
from bayesdrop.fit.settings import differences
from bayesdrop.storage import is_count, open_tensors, write_tensors

__all__ = ["Run", "read_checkpoint", "write_checkpoint"]

_KIND = "bayesdrop-checkpoint"


@dataclass
class Run:
    """Everything that a step or an epoch changes.

    Attributes:
        modules: "model", and "objective" where that is a module.
        generators: random generators of the data, as of a `DataLoader`.
        best: the tensors of the best epoch by validation or score; None if they are not kept.
        best_loss: the validation loss of the best epoch, or minus its score.
        average: the moving average of all tensors; None if there is none.
        stopped: whether patience ran out.
        ranks: the processes that train together.
    """

    modules: dict[str, nn.Module]
    optimizer: torch.optim.Optimizer
    scheduler: Any
    generators: dict[str, torch.Generator]
    history: History = field(default_factory=History)
    epoch: int = 0
    step: int = 0
    best: dict[str, Tensor] | None = None
    best_loss: float = float("inf")
    best_epoch: int | None = None
    stopped: bool = False
    average: dict[str, Tensor] | None = None
    ranks: Alone = field(default_factory=Alone)

    def tensors(self) -> dict[str, Tensor]:
        """The parameters and buffers themselves (not copies), each once, with their names."""
        return {
            f"{part}.{name}": tensor
            for part, module in self.modules.items()
            for name, tensor in chain(module.named_parameters(), module.named_buffers())
        }

    def copy_state(self, into: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """A copy of the model's and the objective's tensors, in the memory of the copy `into` if given."""
        state: dict[str, Tensor] = {}
        for name, tensor in self.tensors().items():
            old = None if into is None else into.get(name)
            if old is None or old.shape != tensor.shape:
                state[name] = tensor.detach().clone()
            else:
                state[name] = old.copy_(tensor.detach())
        return state

    @torch.no_grad()
    def put_back(self, state: dict[str, Tensor]) -> None:
        """Set the tensors of the model and the objective to a copy."""
        for name, tensor in self.tensors().items():
            if name in state:  # a buffer may be younger than the copy
                tensor.copy_(state[name])


def write_checkpoint(path: Path, run: Run, settings: dict[str, Any]) -> None:
    """Write a run at the end of an epoch; of processes that train together the first one writes.

    Args:
        path: the file, replaced as a whole.
        run: the run.
        settings: a run that resumes must have the same.
    """
    tensors = dict(run.tensors())
    header = {
        "settings": settings,
        "epoch": run.epoch,
        "step": run.step,
        "history": run.history.to_dict(),
        "best_loss": run.best_loss,
        "best_epoch": run.best_epoch,
        "stopped": run.stopped,
        "optimizer": _encoded(run.optimizer.state_dict(), "optimizer", tensors),
        "scheduler": None
        if run.scheduler is None
        else _encoded(run.scheduler.state_dict(), "scheduler", tensors),
        "has_best": run.best is not None,
        "has_average": run.average is not None,
    }
    for name, tensor in (run.best or {}).items():
        tensors[f"best.{name}"] = tensor
    for name, tensor in (run.average or {}).items():
        tensors[f"average.{name}"] = tensor
    for name, state in _random_states(run.generators).items():
        for rank, own in enumerate(run.ranks.gathered(state)):
            tensors[_random_name(name, rank)] = own
    if run.ranks.rank == 0:
        write_tensors(path, tensors, kind=_KIND, header=header, owner="fit")
    run.ranks.wait()


def _random_name(name: str, rank: int) -> str:
    return f"random.{name}" if rank == 0 else f"random.{name} of rank {rank}"


def read_checkpoint(path: Path, run: Run, settings: dict[str, Any]) -> None:
    """Set a run to the state that `write_checkpoint` has written, random states included.

    Args:
        path: the file.
        run: a new run; model, objective, optimiser and scheduler are changed in place.
        settings: must be those of the checkpoint, else a ValueError names what differs.
    """
    with open_tensors(path, kind=_KIND, owner="fit") as file:
        header = file.header
        different = differences(header.get("settings"), json.loads(json.dumps(settings)))
        if different:
            shown = "; ".join(different[:5])
            more = f"; and {len(different) - 5} more" if len(different) > 5 else ""
            raise ValueError(
                f"fit: the checkpoint {path} is from a run with other settings: {shown}{more}. "
                "Pass resume=False to start again and replace it, or another `checkpoint`."
            )
        before = run.copy_state()
        try:
            copies = [copy for copy in ("best", "average") if header.get(f"has_{copy}") is True]
            _check_tensors(run, file.outline, copies)
            _put_back(run, file.read(), header)
        except Exception as error:
            run.put_back(before)
            raise ValueError(f"fit: the checkpoint {path} is damaged ({error!r}).") from error


def _check_tensors(run: Run, stored: Mapping[str, Tensor], copies: list[str]) -> None:
    """Raise unless the file has every tensor of the run and of its copies, with the same shape and dtype."""
    for name, tensor in run.tensors().items():
        for place in (name, *(f"{copy}.{name}" for copy in copies)):
            found = stored[place]
            if found.shape != tensor.shape or found.dtype != tensor.dtype:
                raise ValueError(f"{place} is {found.dtype} of shape {tuple(found.shape)}")


def _put_back(run: Run, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Set a run to the contents of its checkpoint; raise if these are not valid."""
    epoch, step, stopped, best_epoch = (header[name] for name in ("epoch", "step", "stopped", "best_epoch"))
    best_loss = header["best_loss"]
    history = History.from_dict(header["history"])
    _must_be("epoch and step", is_count(epoch) and is_count(step) and len(history) == epoch)
    _must_be("stopped", isinstance(stopped, bool) and isinstance(header["has_best"], bool))
    _must_be("best_epoch", best_epoch is None or is_count(best_epoch))
    _must_be("best_loss", isinstance(best_loss, int | float))
    optimizer = _decoded(header["optimizer"], tensors)
    _check_like(optimizer["param_groups"], run.optimizer.state_dict()["param_groups"], "optimizer")
    state = [part for parts in optimizer["state"].values() for part in parts.values()]
    if not any(tensor.is_complex() for tensor in run.tensors().values()):
        _must_be("optimizer.state", not any(isinstance(part, Tensor) and part.is_complex() for part in state))
    if run.scheduler is not None:
        schedule = _decoded(header["scheduler"], tensors)
        _check_like(schedule, run.scheduler.state_dict(), "scheduler")
        run.scheduler.load_state_dict(schedule)
    run.put_back(tensors)
    run.optimizer.load_state_dict(optimizer)
    _lay_out(run.optimizer)
    run.epoch, run.step, run.stopped, run.history = epoch, step, stopped, history
    run.best_loss, run.best_epoch = best_loss, best_epoch
    for copy in ("best", "average"):
        if header.get(f"has_{copy}"):  # files of older versions have no average
            found = {name: tensors[f"{copy}.{name}"].to(t.device) for name, t in run.tensors().items()}
            setattr(run, copy, found)
    _set_random_states(run.generators, tensors, run.ranks.rank)


def _lay_out(optimizer: torch.optim.Optimizer) -> None:
    """Give the optimiser's state the memory layout of its parameters.

    Fused optimisers go through both in the order of memory, and a file keeps shapes only: with channels last,
    state in another layout would belong to other weights.
    """
    for part in getattr(optimizer, "both", (optimizer,)):
        for parameter, state in part.state.items():
            for name, value in state.items():
                is_alike = isinstance(value, Tensor) and value.shape == parameter.shape
                if is_alike and value.stride() != parameter.stride():
                    state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _must_be(name: str, sound: bool) -> None:
    if not sound:
        raise ValueError(f"{name} make no sense")


def _check_like(value: Any, known: Any, name: str) -> None:
    """Raise unless state has the structure of a new object's: the same names, numbers in the same places."""
    if isinstance(known, dict):
        _must_be(name, isinstance(value, dict) and value.keys() == known.keys())
        for key in known:
            _check_like(value[key], known[key], f"{name}.{key}")
    elif isinstance(known, list | tuple):
        _must_be(name, type(value) is type(known) and len(value) == len(known))
        for place, part in enumerate(known):
            _check_like(value[place], part, f"{name}.{place}")
    elif isinstance(known, bool | str):
        _must_be(name, type(value) is type(known))
    elif isinstance(known, int | float):
        _must_be(name, isinstance(value, int | float) and not isinstance(value, bool))


# state of optimisers and schedulers


def _encoded(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Nested state as JSON; tensors are put into `tensors` and referred to by name."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        kind = "counter" if isinstance(value, Counter) else "dict"
        return {kind: [[key, _encoded(part, f"{name}.{key}", tensors)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        parts = [_encoded(part, f"{name}.{place}", tensors) for place, part in enumerate(value)]
        return {"tuple": parts} if isinstance(value, tuple) else parts
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"fit: `checkpoint` needs state of numbers and tensors; {name} is a {type(value).__name__}."
    )


def _decoded(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decoded(part, tensors) for part in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "tuple" in value:
        return tuple(_decoded(part, tensors) for part in value["tuple"])
    if "counter" in value:
        return Counter({key: _decoded(part, tensors) for key, part in value["counter"]})
    return {key: _decoded(part, tensors) for key, part in value["dict"]}


# random state


def _random_states(generators: dict[str, torch.Generator]) -> dict[str, Tensor]:
    """Names and states of the global generators and of the given ones."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states |= {f"cuda{place}": state for place, state in enumerate(torch.cuda.get_rng_state_all())}
    return states | {name: generator.get_state() for name, generator in generators.items()}


def _set_random_states(generators: dict[str, torch.Generator], tensors: dict[str, Tensor], rank: int) -> None:
    torch.set_rng_state(tensors[_random_name("cpu", rank)])
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for place in range(torch.cuda.device_count()):
            name = _random_name(f"cuda{place}", rank)
            if name in tensors:
                torch.cuda.set_rng_state(tensors[name], place)
    for name, generator in generators.items():
        generator.set_state(tensors[_random_name(name, rank)])
