"""The same program as a file of torch.export."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesdrop.export.nodes import CannotExport
from bayesdrop.export.onnx_file import GraphPlan
from bayesdrop.export.packing import Packed
from bayesdrop.export.program import Program, Size, Step
from bayesdrop.inputs import Inputs, arguments, tensors_in

__all__ = ["write_torch"]


def write_torch(plan: GraphPlan, example: Inputs, path: Path) -> None:
    """Write a plan as a program of torch.export.

    Args:
        plan: what the file holds.
        example: inputs of some rows.
        path: the file.
    """
    inputs = tensors_in(arguments(example))
    program = plan.program
    rows = torch.export.Dim("N") if _is_dynamic(program) else None
    before, after = program.parts()
    edge = _edge(program, after)
    body = _Draw(program, after, edge)
    values: dict[int, Any] = dict(zip(program.inputs, inputs, strict=True))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        count = inputs[0].shape[0]
        for step in before:
            step.run(values, count)
        noise = [torch.ones(leaf.shape, dtype=leaf.dtype) for leaf in program.leaves]
        given = [*(values[index] for index in edge), *noise]
        dims = [_dynamic(program.values[index].shape, rows) for index in edge]
        dims += [None] * len(noise)
        shapes = (tuple(dims),) if rows is not None else None
        draw = _exported(body, tuple(given), shapes, "one draw")
        whole = _Whole(plan, before, edge, draw)
        own = [_dynamic(program.values[index].shape, rows) for index in program.inputs]
        masks = (
            []
            if plan.noise is not None
            else [torch.ones(plan.num_draws, *leaf.shape, dtype=leaf.dtype) for leaf in program.leaves]
        )
        shapes = ((*own, *[None] * len(masks)),) if rows is not None else None
        done = _exported(whole, (*inputs, *masks), shapes, "the program")
        for graph in done.graph_module.modules():
            # Where in this library an operation was called says nothing to a reader of the file.
            for node in graph.graph.nodes if isinstance(graph, torch.fx.GraphModule) else ():
                for note in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node"):
                    node.meta.pop(note, None)
        # Into memory first: torch wants a path that ends in .pt2.
        buffer = io.BytesIO()
        torch.export.save(done, buffer)
        path.write_bytes(buffer.getvalue())


def _is_dynamic(program: Program) -> bool:
    return any(isinstance(size, Size) for index in program.inputs for size in program.values[index].shape)


def _edge(program: Program, after: Sequence[Step]) -> list[int]:
    """Values from before the first noise that a draw uses, and the first input, which has the rows."""
    noisy = {leaf.index for leaf in program.leaves} | {index for step in after for index in step.outputs}
    used = {index for step in after for index in step.refs} - noisy
    return sorted(used | {program.inputs[0]})


def _dynamic(shape: Sequence[Any], rows: Any) -> Any:
    found = {
        axis: _times(size, rows)
        for axis, size in enumerate(shape)
        if isinstance(size, Size) and rows is not None
    }
    return found or None


def _times(size: Size, rows: Any) -> Any:
    dim = rows if size.times == 1 else size.times * rows
    return dim if size.plus == 0 else dim + size.plus


def _exported(module: nn.Module, given: tuple[Any, ...], shapes: Any, what: str) -> Any:
    try:
        return torch.export.export(module, given, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = lines[0][:300] if lines else type(error).__name__
        raise CannotExport(f"export: torch.export does not take {what} of `model`: {reason}") from error


class _Constants(nn.Module):
    """Holds the constants of steps as buffers, each once."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, str] = {}
        self._alive: list[Tensor] = []

    def hold(self, tensors: Sequence[Tensor], titles: Mapping[int, str] | None = None) -> None:
        """Keep tensors."""
        for tensor in tensors:
            if id(tensor) not in self._places:
                title = (titles or {}).get(id(tensor), "").replace(".", "_")
                name = title if title and not hasattr(self, title) else f"c{len(self._places)}"
                self.register_buffer(name, tensor.detach())
                self._places[id(tensor)] = name
                self._alive.append(tensor)

    def held(self, tensor: Tensor) -> Tensor:
        """The buffer of a tensor."""
        buffer: Tensor = getattr(self, self._places[id(tensor)])
        return buffer


def _tensors(steps: Sequence[Step]) -> list[Tensor]:
    """The constants of steps, those with rows too."""
    found = [tensor for step in steps for tensor in tensors_in((step.args, step.kwargs))]
    return found + [part.one for step in steps for part in step.spread()]


class _Draw(nn.Module):
    """One draw, as a function of what comes before it and of its noise. Weights are lifted by the caller."""

    def __init__(self, program: Program, steps: Sequence[Step], edge: Sequence[int]) -> None:
        super().__init__()
        self._program, self._steps, self._edge = program, steps, edge
        self.constants = _Constants()
        self.constants.hold(_tensors(steps))

    def forward(self, *given: Tensor) -> Tensor:
        values: dict[int, Any] = dict(zip(self._edge, given, strict=False))
        for leaf, noise in zip(self._program.leaves, given[len(self._edge) :], strict=True):
            values[leaf.index] = noise
        rows = values[self._program.inputs[0]].shape[0]
        for step in self._steps:
            step.run(values, rows, self.constants.held)
        output: Tensor = values[self._program.outputs[0]]
        return output


class _Whole(nn.Module):
    """All draws, and what is said of them."""

    def __init__(self, plan: GraphPlan, before: Sequence[Step], edge: Sequence[int], draw: Any) -> None:
        super().__init__()
        self._plan, self._before, self._edge = plan, before, edge
        self.constants = _Constants()
        self.constants.hold(_tensors(before), plan.titles)
        self.constants.hold(_tensors(plan.tail.steps), plan.titles)
        # The program of one draw has the constants as its first inputs.
        self._draw = draw.graph_module
        self._lifted = []
        for spec in draw.graph_signature.input_specs:
            if spec.target is not None:
                tensor = draw.state_dict.get(spec.target, draw.constants.get(spec.target))
                self.constants.hold([tensor])
                self._lifted.append(tensor)
        for place, part in enumerate(plan.noise or ()):
            for name in ("bits", "scale", "numbers"):
                held = getattr(part, name)
                if held is not None:
                    self.register_buffer(f"noise_{place}_{name}", held)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        plan, program = self._plan, self._plan.program
        size = len(program.inputs)
        values: dict[int, Any] = dict(zip(program.inputs, inputs[:size], strict=True))
        rows = inputs[0].shape[0]
        for step in self._before:
            step.run(values, rows, self.constants.held)
        noise = list(inputs[size:]) or [
            self._unpacked(place, part) for place, part in enumerate(plan.noise or ())
        ]
        edge = [values[index] for index in self._edge]
        lifted = [self.constants.held(tensor) for tensor in self._lifted]
        draws = _scanned(self._draw, lifted, edge, noise)
        values = {plan.tail.inputs[0]: draws}
        for step in plan.tail.steps:
            step.run(values, rows, self.constants.held)
        return tuple(values[index].clone() for index in plan.tail.outputs)

    def _unpacked(self, place: int, part: Packed) -> Tensor:
        if part.bits is None:
            numbers: Tensor = getattr(self, f"noise_{place}_numbers")
            return numbers
        bits, scale = getattr(self, f"noise_{place}_bits"), getattr(self, f"noise_{place}_scale")
        places = torch.arange(8, dtype=torch.uint8)
        units = ((bits.unsqueeze(-1) >> places) & 1).to(scale.dtype).flatten(1)
        kept = units[:, : math.prod(part.shape)]
        made: Tensor = kept.reshape(part.bits.shape[0], *part.shape) * scale
        return made


def _scanned(
    draw: Callable[..., Any], lifted: list[Tensor], edge: list[Tensor], noise: list[Tensor]
) -> Tensor:
    """(T, N, ...) outputs of a draw for every slice of the noise."""
    try:
        # The operator itself: the function of the same name would have dynamo read the graph again.
        from torch._higher_order_ops.scan import scan_op
    except ImportError as error:
        raise CannotExport(
            f'export: format="torch" needs a scan over draws, which torch {torch.__version__} has not.'
        ) from error
    count, steps = len(lifted), len(noise)

    def step(state: Tensor, *given: Tensor) -> list[Tensor]:
        one, rest = given[:steps], given[steps:]
        return [state.clone(), *draw(*rest[:count], *rest[count:], *one)]

    stacked: Tensor = scan_op(step, [torch.zeros(1)], noise, (*lifted, *edge))[1]
    return stacked
