"""ServedModule: any module of torch, built by a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.audit import built_from
from bayesdrop.errors import must
from bayesdrop.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from bayesdrop.serve.served.answers import Answers, Ask
from bayesdrop.serve.served.base import BadRow, ServedModel, TensorSpec
from bayesdrop.serve.served.network import ServedNetwork, digest_of
from bayesdrop.serve.served.outputs import answers_of, task_of

__all__ = ["ServedModule"]

_LIKELIHOODS = {
    "categorical": Categorical,
    "bernoulli": Bernoulli,
    "heteroscedastic": HeteroscedasticGaussian,
    "gaussian": Gaussian,
}
_DATATYPES = {torch.float32: "FP32", torch.float64: "FP64", torch.int64: "INT64", torch.bool: "BOOL"}
_SKETCH = 8


class ServedModule(ServedModel):
    """A model that a function builds: it returns (model, example inputs) or (model, example, likelihood).

    The example, a tensor or a mapping of tensors with rows on axis 0, shows what one row is: a request gives
    {"x": nested list}, or a list for each name.

    Args:
        target: "package.module:function".
        likelihood: categorical, bernoulli, gaussian, heteroscedastic or raw; that of the function if None.
        num_draws: T unless asked otherwise.
        level: of intervals unless asked otherwise.
        defer_above: entropy, or standard deviation, above which rows go to a person.
    """

    kind = "torch"

    def __init__(
        self,
        target: str,
        *,
        likelihood: str | None = None,
        num_draws: int | None = None,
        level: float | None = None,
        defer_above: float | None = None,
    ) -> None:
        made = built_from(target, directory=Path.cwd(), owner="serve")
        parts = made if isinstance(made, tuple) else (made,)
        if not (2 <= len(parts) <= 3 and isinstance(parts[0], nn.Module)):
            want = "a function that returns (model, example inputs) or (model, example inputs, likelihood)"
            raise TypeError(must("serve", "model", want, f"{target}, which returns {type(made).__name__}"))
        self._example = _tensors(parts[1], target)
        meaning = _likelihood(likelihood, parts[2] if len(parts) == 3 else None)
        self._network = ServedNetwork(parts[0], meaning)
        self.task = task_of(meaning)
        self.num_draws = num_draws or 100
        self.level = (level or 0.95) if self.task == "regression" else None
        self.digest = digest_of(parts[0], target, repr(meaning))
        self._defer_above = defer_above
        example = self._network(self._inputs(self._example), Ask(self.num_draws, 0, self.level), at_once=True)
        self.classes = ()
        if self.task == "classification":
            count = 2 if isinstance(meaning, Bernoulli) else int(example.probs.shape[1])
            if example.mean.dim() > 2 or (count == 2 and example.mean.shape[1:] not in ((), (1,), (2,))):
                raise ValueError(must("serve", "model", "one with a class for each row", target))
            self.classes = tuple(str(place) for place in range(count))
        self._scale = 1.0
        if self.task == "regression":
            self._scale = max(float(example.std.double().mean()), 1e-300)
        self.inputs = tuple(
            TensorSpec(name, _DATATYPES.get(value.dtype, "FP32"), (-1, *value.shape[1:]))
            for name, value in self._example.items()
        )
        self.about = {"target": target}

    def _inputs(self, named: Mapping[str, Tensor]) -> Any:
        return named["x"] if list(self._example) == ["x"] else dict(named)

    def row(self, given: Any) -> dict[str, Any]:
        """See `ServedModel`."""
        if list(self._example) == ["x"] and not isinstance(given, dict):
            given = {"x": given}
        if not isinstance(given, dict) or given.keys() != self._example.keys():
            names = ", ".join(map(repr, self._example))
            raise BadRow(f"a row must be an object with {names}.")
        return given

    def rows_of(self, tensors: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows from tensors of the example's names; a single one may have any name."""
        if len(tensors) == 1 and len(self._example) == 1:
            tensors = {next(iter(self._example)): next(iter(tensors.values()))}
        if tensors.keys() != self._example.keys():
            raise BadRow(f"the inputs must be {', '.join(map(repr, self._example))}; got {sorted(tensors)}.")
        if len({len(values) for values in tensors.values()}) != 1:
            raise BadRow("all inputs must have the same number of rows.")
        columns = [np.asarray(values).tolist() for values in tensors.values()]
        return [dict(zip(tensors, cells, strict=True)) for cells in zip(*columns, strict=True)]

    def check(self, rows: Sequence[dict[str, Any]]) -> None:
        """See `ServedModel`."""
        self._read(rows)

    def _read(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        made = {}
        for name, example in self._example.items():
            try:
                values = np.array([row[name] for row in rows])
            except (ValueError, TypeError) as error:
                raise BadRow(f"{name!r} must be numbers of the shape {tuple(example.shape[1:])}.") from error
            if values.dtype.kind not in "iufb" or values.shape[1:] != tuple(example.shape[1:]):
                got = values.shape[1:] if values.dtype.kind in "iufb" else "something else"
                want = tuple(example.shape[1:])
                raise BadRow(f"{name!r} must be numbers of the shape {want} for each row; got {got}.")
            if not np.isfinite(values).all():
                raise BadRow(f"{name!r} must be finite.")
            whole = not example.is_floating_point()
            if whole and values.dtype.kind == "f":
                raise BadRow(f"{name!r} must be whole numbers.")
            made[name] = torch.from_numpy(values).to(example.dtype)
            if not torch.isfinite(made[name]).all():
                raise BadRow(f"{name!r} must fit into {example.dtype}.")
        return made

    def predict(self, rows: Sequence[dict[str, Any]], ask: Ask) -> Answers:
        """See `ServedModel`."""
        named = self._read(rows)
        found = self._network(self._inputs(named), ask)
        flat = torch.cat([value.reshape(len(rows), -1).double() for value in named.values()], 1).numpy()
        generator = np.random.default_rng(0)
        projection = generator.normal(size=(flat.shape[1], _SKETCH)) / max(1, flat.shape[1]) ** 0.5
        return answers_of(
            found,
            classes=self.classes,
            level=ask.level,
            defer_above=self._defer_above,
            scale=self._scale,
            sketch=np.round(flat @ projection, 4),
        )


def _tensors(example: Any, target: str) -> dict[str, Tensor]:
    named = dict(example) if isinstance(example, Mapping) else {"x": example}
    if not named or not all(isinstance(value, Tensor) and value.dim() for value in named.values()):
        want = "a function whose example inputs are a tensor or a mapping of tensors"
        raise TypeError(must("serve", "model", want, target))
    return named


def _likelihood(named: str | None, built: Any) -> Likelihood | None:
    if named is None:
        if built is not None and not isinstance(built, Likelihood):
            raise TypeError(must("serve", "likelihood", "a Likelihood", built))
        return built
    if named == "raw":
        return None
    if named not in _LIKELIHOODS:
        raise ValueError(must("serve", "likelihood", f"one of {', '.join(_LIKELIHOODS)}, raw", named))
    made: Likelihood = _LIKELIHOODS[named]()
    return made
