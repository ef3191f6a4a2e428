"""What a file says of its draws: moments, entropies and so on, as a program of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesdrop.export.program import Program, Recorded, program_of
from bayesdrop.functional import entropy
from bayesdrop.likelihoods import ClassLikelihood, Likelihood
from bayesdrop.trace import Recorder

__all__ = ["default_names", "known_names", "quantities", "quantities_program"]

_MOMENTS = ("mean", "std", "variance", "epistemic", "aleatoric", "draws")
_CLASSES = ("probs", "label", "entropy", "expected_entropy", "mutual_information", "variation_ratio")


def known_names(likelihood: Likelihood | None) -> tuple[str, ...]:
    """The outputs that a file may have; each is that attribute of a `Prediction`."""
    return (*_MOMENTS, *_CLASSES) if isinstance(likelihood, ClassLikelihood) else _MOMENTS


def default_names(likelihood: Likelihood | None) -> tuple[str, ...]:
    """The outputs that a file has unless others are asked for."""
    if isinstance(likelihood, ClassLikelihood):
        return ("probs", "entropy", "mutual_information")
    return ("mean", "std", "epistemic", "aleatoric") if likelihood is not None else ("mean", "std")


def quantities(draws: Tensor, likelihood: Likelihood | None, names: Sequence[str]) -> list[Tensor]:
    """The named quantities of draws (T, N, ...), as `predict` has them.

    Args:
        draws: raw outputs.
        likelihood: what they mean; None for moments of the outputs themselves.
        names: some of `known_names`.
    """
    outputs = draws.float() if draws.dtype in (torch.float16, torch.bfloat16) else draws
    if isinstance(likelihood, ClassLikelihood):
        made = _of_classes(outputs, likelihood)
    else:
        mean, variance = (outputs, None) if likelihood is None else likelihood.moments(outputs)
        made = _moments(mean, variance)
    made["draws"] = lambda: draws
    return [made[name]() for name in names]


_Made = dict[str, Callable[[], Tensor]]


def _moments(values: Tensor, variances: Tensor | None) -> _Made:
    """Law of total variance: the spread of the draws' means, and the mean of their variances."""
    mean = values.mean(0)
    epistemic = (values - mean).square().mean(0)
    aleatoric = torch.zeros_like(epistemic) if variances is None else variances.mean(0)
    total = epistemic + aleatoric
    return {
        "mean": lambda: mean,
        "epistemic": lambda: epistemic,
        "aleatoric": lambda: aleatoric,
        "variance": lambda: total,
        "std": total.sqrt,
    }


def _of_classes(outputs: Tensor, likelihood: ClassLikelihood) -> _Made:
    probs = likelihood.class_log_probs(outputs, leading=1).exp()
    by_class = _moments(probs, probs * (1 - probs))
    expected = entropy(probs).mean(0)
    mean = by_class["mean"]()
    total = entropy(mean)

    def laid_out(name: str) -> Callable[[], Tensor]:
        return lambda: likelihood.laid_out(by_class[name]())

    def variation_ratio() -> Tensor:
        classes = torch.arange(probs.shape[-1])
        votes = (probs.argmax(-1, keepdim=True) == classes).to(probs.dtype).mean(0)
        return 1 - votes.amax(-1)

    return {name: laid_out(name) for name in by_class} | {
        "probs": laid_out("mean"),
        "label": lambda: mean.argmax(-1),
        "entropy": lambda: total,
        "expected_entropy": lambda: expected,
        "mutual_information": lambda: (total - expected).clamp_min(0),
        "variation_ratio": variation_ratio,
    }


def quantities_program(
    example: Callable[[int | None], Tensor],
    likelihood: Likelihood | None,
    names: Sequence[str],
    sizes: tuple[int, int] | None,
) -> Program:
    """The program from draws to the named quantities.

    Args:
        example: draws (T, N, ...) of so many rows.
        likelihood: what they mean.
        names: of the quantities.
        sizes: two numbers of rows to record with, as in `program_of`.
    """
    held: list[Tensor] = []
    if likelihood is not None:
        attributes = [value for value in vars(likelihood).values() if isinstance(value, Tensor)]
        held = [*likelihood.parameters(), *likelihood.buffers(), *attributes]

    def record(rows: int | None) -> Recorded:
        recorder = Recorder()
        draws = example(rows)
        recorder.input(draws)
        recorder.constants(held)
        with torch.no_grad(), _Seen(recorder):
            made = quantities(draws, likelihood, names)
        outputs = []
        for name, tensor in zip(names, made, strict=True):
            tape = recorder.tape(tensor)
            if tape is None:
                raise ValueError(f"export: the output {name!r} cannot be recorded: {recorder.broken}.")
            outputs.append(tape.output)
        return Recorded(recorder.ops, [], [draws], outputs, recorder.size)

    return program_of(record, sizes, "export")


class _Seen(TorchFunctionMode):
    """Shows every function of torch to a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._recorder.call(func, args, kwargs or {})
