"""What the tests of any model share: a draw is a function, and nothing is left changed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayesdrop import FunctionDraw, predict

PLANS = (None, "stacked", "kept units", "loop")


@pytest.fixture
def assert_is_a_function() -> Callable[..., Tensor]:
    return _assert_is_a_function


@pytest.fixture
def assert_moments_of_training() -> Callable[..., None]:
    return _assert_moments_of_training


@pytest.fixture
def unchanged() -> Callable[[nn.Module], Any]:
    """A context that checks that a model, its inputs and the global states are left as they were."""
    return _unchanged


def _snapshot(model: nn.Module) -> Any:
    """Everything that predict must leave as it is."""
    return (
        {name: module.training for name, module in model.named_modules()},
        {name: tensor.clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]},
        {name: parameter.requires_grad for name, parameter in model.named_parameters()},
        [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        torch.get_rng_state(),
        random.getstate(),
        np.random.get_state()[1:3],  # noqa: NPY002
        torch.is_grad_enabled(),
        len(torch.overrides._get_current_function_mode_stack()),
    )


def _assert_unchanged(before: Any, after: Any) -> None:
    for old, new in zip(before, after, strict=True):
        if isinstance(old, dict):
            assert old.keys() == new.keys()
            for key, value in old.items():
                same = torch.equal(value, new[key]) if isinstance(value, Tensor) else value == new[key]
                assert same, key
                assert type(value) is type(new[key]), key
        elif isinstance(old, Tensor):
            assert torch.equal(old, new)
        elif isinstance(old, tuple) and isinstance(old[0], np.ndarray):
            assert (old[0] == new[0]).all()
            assert old[1] == new[1]
        else:
            assert old == new


@contextmanager
def _unchanged(model: nn.Module, x: Any = ()) -> Iterator[None]:
    before, inputs = _snapshot(model), copy.deepcopy(x)
    yield
    _assert_unchanged(before, _snapshot(model))
    for old, new in zip(_leaves(inputs), _leaves(x), strict=True):
        assert torch.equal(old, new)


def _rows_of(x: Any, rows: Any) -> Any:
    if isinstance(x, dict):
        return {name: part[rows] for name, part in x.items()}
    return tuple(part[rows] for part in x) if isinstance(x, tuple) else x[rows]


def _assert_is_a_function(
    model: nn.Module,
    x: Any,
    *,
    num_draws: int = 6,
    batches: bool = True,
    plans: tuple[Any, ...] = PLANS,
    tolerance: float = 1e-9,
    **options: Any,
) -> Tensor:
    """Draws of every plan, batch size, order and number are those of the whole model; nothing is changed."""
    with _unchanged(model, x):
        return _function(model, x, num_draws, batches, plans, tolerance, options)


def _function(
    model: nn.Module,
    x: Any,
    num_draws: int,
    batches: bool,
    plans: tuple[Any, ...],
    tolerance: float,
    options: dict[str, Any],
) -> Tensor:
    close = {"rtol": tolerance, "atol": tolerance}
    truth = predict(model, x, num_draws=num_draws, plan="whole model", **options).draws
    assert (truth != truth[:1]).any(), "no draw differs from the first"
    for plan in plans:
        draws = predict(model, x, num_draws=num_draws, plan=plan, **options).draws
        torch.testing.assert_close(draws, truth, **close, msg=lambda text, plan=plan: f"{plan}: {text}")
    torch.testing.assert_close(predict(model, x, num_draws=2, **options).draws, truth[:2], **close)
    assert not torch.equal(predict(model, x, num_draws=num_draws, seed=1, **options).draws, truth)
    if batches:
        rows = truth.shape[1]
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(3))
        for size in (1, 3):
            draws = predict(model, x, num_draws=num_draws, batch_size=size, **options).draws
            torch.testing.assert_close(draws, truth, **close)
        shuffled = predict(model, _rows_of(x, order), num_draws=num_draws, batch_size=4, **options).draws
        torch.testing.assert_close(shuffled, truth[:, order], **close)
        if not options:
            flags = {module: module.training for module in model.modules()}
            with torch.no_grad(), FunctionDraw(model, index=num_draws - 1):
                output = _called(model, x)
            torch.testing.assert_close(getattr(output, "logits", output), truth[-1], **close)
            assert flags == {module: module.training for module in model.modules()}
    return truth


def _called(model: nn.Module, x: Any) -> Any:
    return model(**x) if isinstance(x, dict) else model(*x) if isinstance(x, tuple) else model(x)


def _leaves(x: Any) -> list[Tensor]:
    return list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, tuple) else [x]


def _assert_moments_of_training(
    model: nn.Module, x: Any, *, copies: int = 300, num_draws: int = 12, **options: Any
) -> None:
    """Per-point mean and variance of independent draws are those of passes in training mode.

    Noise in training is fresh for every row, so that copies of a row are samples.
    """
    many = _rows_of(x, torch.arange(len(_leaves(x)[0])).repeat(copies))
    ours = predict(model, many, num_draws=num_draws, draws="independent", **options).draws
    flags = {module: module.training for module in model.modules()}
    model.train()
    with torch.no_grad():
        passes = []
        for _ in range(num_draws):
            output = _called(model, copy.deepcopy(many))
            passes.append(getattr(output, "logits", output))
    for module, flag in flags.items():
        module.training = flag
    theirs = torch.stack(passes)
    samples = [
        draws.double().reshape(num_draws, copies, -1, *draws.shape[2:]).flatten(0, 1)
        for draws in (ours, theirs)
    ]
    num = num_draws * copies
    error = sum(s.var(0) / num for s in samples).sqrt()
    assert (samples[0].std(0) > 0).all()
    assert ((samples[0].mean(0) - samples[1].mean(0)).abs() <= 5 * error + 1e-9).all()
    squares = [(s - s.mean(0)).square() for s in samples]
    error = sum(s.var(0) / num for s in squares).sqrt()
    assert ((squares[0].mean(0) - squares[1].mean(0)).abs() <= 5 * error + 1e-9).all()
