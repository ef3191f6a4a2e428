"""export(): a model's draws as one file that runs without this library."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.errors import is_one_of, must, must_be_flag, must_be_module, whole_number
from bayesdrop.export.onnx_file import GraphPlan, onnx_model, rows_to_try
from bayesdrop.export.packing import noise_of, packed
from bayesdrop.export.program import Program, Recorded, program_of, size_at
from bayesdrop.export.quantities import default_names, known_names, quantities_program
from bayesdrop.export.torch_file import write_torch
from bayesdrop.export.verify import check_file
from bayesdrop.inputs import Inputs, arguments, as_tensors, is_batch, num_rows, take_rows, tensors_in
from bayesdrop.likelihoods import Likelihood
from bayesdrop.predict import Compiled
from bayesdrop.predict.prediction import frozen_copy
from bayesdrop.predict.sampler import check_output, unwrapped
from bayesdrop.randomness import ProcessSwitch
from bayesdrop.storage import whole_file
from bayesdrop.trace import Where

__all__ = ["ROWS", "Exported", "checked_path", "export", "recorded_program"]

#: rows of the two passes that show what depends on the number of rows: neither a usual width
ROWS = (5, 7)
_FORMATS = ("onnx", "torch")


def _say_exporting() -> Callable[[], Any]:
    """Let `torch.compiler.is_exporting()` be true, so that models leave out what depends on values."""
    before = getattr(torch.compiler, "_is_exporting_flag", False)
    torch.compiler._is_exporting_flag = True
    return lambda: setattr(torch.compiler, "_is_exporting_flag", before)


_exporting = ProcessSwitch(_say_exporting)


@dataclass(frozen=True, eq=False)
class Exported:
    """What `export` has written.

    Attributes:
        path: the file.
        format: "onnx" or "torch".
        inputs: names of the inputs, those of noise too.
        outputs: names of the outputs, in order.
        num_draws: T.
        num_bytes: size of the file.
        weight_bytes: of the model's numbers in it.
        noise_bytes: of the noise in it.
        largest_error: of the file's answers against `predict`, relative to the largest answer.
    """

    path: Path
    format: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    num_draws: int
    num_bytes: int
    weight_bytes: int
    noise_bytes: int
    largest_error: float
    _leaves: tuple[Any, ...] = ()
    _noise_names: tuple[str, ...] = ()

    def masks(self, num_draws: int | None = None, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """The noise of T draws by the names of the inputs, for a file with `masks="input"`.

        Args:
            num_draws: T; that of the export if None.
            seed: of the draws: they are those of `predict` with it.
        """
        count = (
            self.num_draws if num_draws is None else whole_number("masks", "num_draws", num_draws, at_least=1)
        )
        seed = whole_number("masks", "seed", seed)
        if not self._noise_names:
            raise ValueError(
                "Exported.masks: the file holds its masks; it was not written with masks='input'."
            )
        return {
            name: noise_of(leaf, count, seed).numpy()
            for name, leaf in zip(self._noise_names, self._leaves, strict=True)
        }


def export(
    model: nn.Module,
    example: Inputs,
    path: str | os.PathLike[str],
    *,
    format: Literal["onnx", "torch"] = "onnx",
    num_draws: int = 50,
    seed: int = 0,
    likelihood: Likelihood | None = None,
    outputs: Sequence[str] | None = None,
    dynamic_batch: bool = True,
    masks: Literal["constants", "input"] = "constants",
    include: Where | Iterable[Where] | None = None,
    exclude: Where | Iterable[Where] | None = None,
    output: str | int | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write T draws of a model into one file that runs without Python, and without chance.

    The file answers what `predict(model, x, num_draws=T, seed=seed, likelihood=likelihood)` answers, to
    rounding, for any number of rows. It holds the weights once, the masks of all draws as bits, and the
    arithmetic from the draws to their moments or entropies; nothing in it is random. What comes before the
    first noise is run once a batch.

    Before the file is put in its place it is run, twice, and compared with `predict` on other rows and for
    other numbers of rows. A file that differs is not left behind.

    Args:
        model: any `nn.Module` that `bd.compile` takes.
        example: inputs as in later calls: a tensor or array, or a tuple or mapping of these.
        path: the file to write.
        format: "onnx", for onnxruntime and others (extra `onnx`), or "torch", a program of `torch.export`.
        num_draws: how many functions, T; at least 2.
        seed: of the draws.
        likelihood: what the outputs mean; None gives moments of the raw outputs.
        outputs: names of attributes of a `Prediction`: mean, std, variance, epistemic, aleatoric, draws;
            with a likelihood of classes also probs, label, entropy, expected_entropy, mutual_information,
            variation_ratio. None for the usual ones.
        dynamic_batch: any number of rows; False for that of `example` alone.
        masks: "constants" bakes the noise into the file; "input" makes it an input, so that the caller
            chooses the draws; `Exported.masks` gives those of a seed.
        include: which sites are on, as in `predict`.
        exclude: which sites are off.
        output: which tensor to use of a model that returns several: a name or an index.
        overwrite: replace a file that is there.

    Returns: what was written, and how far it is from `predict`.

    >>> import bayesdrop as bd, tempfile
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = bd.export(net, torch.zeros(4, 3), f"{folder}/net.onnx", num_draws=20)
    >>> done.inputs, done.outputs
    (('x',), ('mean', 'std'))
    """
    must_be_module("export", "model", model)
    if isinstance(model, Likelihood):
        raise TypeError(must("export", "model", "a network, an nn.Module", model))
    if likelihood is not None and not isinstance(likelihood, Likelihood):
        raise TypeError(must("export", "likelihood", "a Likelihood, as Categorical(), or None", likelihood))
    if not is_one_of(format, _FORMATS):
        raise ValueError(must("export", "format", "'onnx' or 'torch'", format))
    if not is_one_of(masks, ("constants", "input")):
        hint = "A file holds functions, which all rows share; noise of each row's own cannot be written."
        raise ValueError(must("export", "masks", "'constants' or 'input'", masks, hint))
    must_be_flag("export", dynamic_batch=dynamic_batch, overwrite=overwrite)
    num_draws = whole_number("export", "num_draws", num_draws, at_least=2)
    seed = whole_number("export", "seed", seed)
    names = _checked_names(outputs, likelihood)
    check_output(output, "export")
    target = checked_path(path, overwrite=overwrite)
    if not is_batch(example):
        raise TypeError(
            must("export", "example", "a tensor, an array, or a tuple or mapping of such", type(example))
        )
    own, given = _copied(model), _on_cpu(model, example)
    if any(tensor.dim() == 0 for tensor in tensors_in(arguments(given))):
        raise ValueError(must("export", "example", "tensors with rows on axis 0", "a number as a tensor"))
    if num_rows(given, "export") < 1:
        raise ValueError(must("export", "example", "at least one row", 0))
    rules = {"include": include, "exclude": exclude, "output": output}
    rules = {
        name: tuple(rule) if isinstance(rule, Iterable) and not isinstance(rule, str) else rule
        for name, rule in rules.items()
    }
    plan = _planned(own, given, num_draws, seed, frozen_copy(likelihood), names, rules, dynamic_batch, masks)
    with whole_file(target, owner="export") as draft:
        sizes: tuple[int, ...] = (1, 4)
        if format == "onnx":
            made = onnx_model(plan)
            draft.write_bytes(made.SerializeToString())
            sizes = rows_to_try(made)
        else:
            write_torch(plan, _rows_of(given, ROWS[0]) if dynamic_batch else given, draft)
        error = check_file(
            draft,
            format,
            plan,
            own,
            given,
            sizes=sizes if dynamic_batch else (),
            options={"num_draws": num_draws, "seed": seed, "likelihood": likelihood, **rules},
        )
        size = draft.stat().st_size
    return Exported(
        path=target,
        format=format,
        inputs=(*plan.inputs, *(plan.noise_names if plan.noise is None else ())),
        outputs=tuple(plan.outputs),
        num_draws=num_draws,
        num_bytes=size,
        weight_bytes=sum(t.numel() * t.element_size() for t in plan.program.constants()),
        noise_bytes=sum(part.num_bytes for part in plan.noise or ()),
        largest_error=error,
        _leaves=tuple(plan.program.leaves),
        _noise_names=tuple(plan.noise_names) if plan.noise is None else (),
    )


def checked_path(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """The path, if a file may be written there."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(must("export", "path", "a path", path))
    target = Path(path)
    if target.is_dir():
        raise ValueError(must("export", "path", "a file", str(target), "It is a folder."))
    if (target.exists() or target.is_symlink()) and not overwrite:
        raise FileExistsError(f"export: {target} is there already; overwrite=True (--force) replaces it.")
    return target


def _checked_names(outputs: Any, likelihood: Likelihood | None) -> tuple[str, ...]:
    if outputs is None:
        return default_names(likelihood)
    known = known_names(likelihood)
    if isinstance(outputs, str) or not isinstance(outputs, Sequence) or not outputs:
        raise TypeError(must("export", "outputs", "a sequence of names, as ('mean', 'std')", outputs))
    wrong = [name for name in outputs if name not in known]
    if wrong or len(set(outputs)) != len(outputs):
        hint = "" if likelihood is not None else "Names of classes need likelihood=Categorical()."
        what = f"some of {', '.join(known)}, each once"
        raise ValueError(must("export", "outputs", what, wrong[0] if wrong else outputs, hint))
    return tuple(outputs)


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(unwrapped(model)).requires_grad_(False).cpu()
    except Exception as error:
        raise ValueError(f"export: `model` cannot be copied ({error}).") from error


def _on_cpu(model: nn.Module, example: Any) -> Any:
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    given = as_tensors(example, dtype, "export")
    if isinstance(given, Mapping):
        return {
            name: part.detach().cpu() if isinstance(part, Tensor) else part for name, part in given.items()
        }
    if isinstance(given, tuple | list):
        return tuple(part.detach().cpu() if isinstance(part, Tensor) else part for part in given)
    return given.detach().cpu()


def _rows_of(given: Inputs, rows: int) -> Inputs:
    """So many rows of the example, which begins again at its end."""
    return take_rows(given, torch.arange(rows) % num_rows(given, "export"))


def recorded_program(
    own: nn.Module,
    given: Inputs,
    *,
    num_draws: int,
    seed: int,
    include: Any = None,
    exclude: Any = None,
    output: Any = None,
    sizes: tuple[int, int] | None = ROWS,
) -> Program:
    """The program of one draw of a model, which nothing else may change meanwhile.

    Args:
        own: a private copy of the model.
        given: inputs.
        num_draws: T.
        seed: of the draws.
        include: which sites are on.
        exclude: which sites are off.
        output: which of the tensors that it returns.
        sizes: two numbers of rows to record with; None for those of `given` alone.
    """
    compiled = Compiled(own, num_draws, seed, None, include, exclude, output, "export")

    def record(rows: int | None) -> Recorded:
        inputs = arguments(given if rows is None else _rows_of(given, rows))
        with torch.no_grad(), _exporting:
            tape, _ = compiled.record(inputs)
        return Recorded(tape.ops, tape.leaves, tensors_in(inputs), [tape.output], tape.size)

    return program_of(record, sizes, "export")


def _planned(
    own: nn.Module,
    given: Inputs,
    num_draws: int,
    seed: int,
    likelihood: Likelihood | None,
    names: tuple[str, ...],
    rules: Mapping[str, Any],
    dynamic: bool,
    masks: str,
) -> GraphPlan:
    sizes = ROWS if dynamic else None
    program = recorded_program(own, given, num_draws=num_draws, seed=seed, sizes=sizes, **rules)
    value = program.values[program.outputs[0]]

    def example(rows: int | None) -> Tensor:
        shape = [size_at(size, rows or 0) for size in value.shape]
        # Values of all kinds, so that no branch of a likelihood is left out by chance.
        return (
            torch.linspace(-1, 1, num_draws * int(np.prod(shape))).to(value.dtype).reshape(num_draws, *shape)
        )

    tail = quantities_program(example, likelihood, names, sizes)
    noise = None
    if masks == "constants":
        noise = [packed(noise_of(leaf, num_draws, seed)) for leaf in program.leaves]
    return GraphPlan(
        program=program,
        tail=tail,
        noise=noise,
        inputs=_input_names(given, program),
        outputs=list(names),
        noise_names=[f"noise_{place}" for place in range(len(program.leaves))],
        facts={
            "bayesdrop": "draws of a network",
            "num_draws": str(num_draws),
            "seed": str(seed),
            "likelihood": "none" if likelihood is None else type(likelihood).__name__,
            "sites": ", ".join(leaf.key for leaf in program.leaves),
        },
        titles={id(tensor): name for name, tensor in (*own.named_parameters(), *own.named_buffers())},
        num_draws=num_draws,
    )


def _input_names(given: Inputs, program: Program) -> list[str]:
    if isinstance(given, Mapping):
        names = [name for name, part in given.items() if isinstance(part, Tensor)]
    else:
        names = (
            ["x"] if isinstance(given, Tensor) or len(given) == 1 else [f"x{i}" for i in range(len(given))]
        )
    if len(names) != len(program.inputs):
        raise ValueError(must("export", "example", "a tensor, or a tuple or mapping of tensors", type(given)))
    return names
