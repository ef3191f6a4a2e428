"""A private copy does what the model does, shares its weights, and nothing else."""

from __future__ import annotations

import functools
import types
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayesdrop import predict
from bayesdrop.trace import Subject
from bayesdrop.trace.isolate import PrivateCopy, copied_arguments, leads_back


class Memory:
    """An object that a model keeps, as a cache."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []


class Keeper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(3, 2)
        self.memory, self.numbers, self.recent = Memory(), [1, 2], deque([1], maxlen=3)
        self.layers = [self.drop, self.last]
        self.by_name = {"last": self.last}
        self.method, self.part = self.apply_last, functools.partial(self.apply_last)
        self.parent = weakref.ref(self)
        self.settings = types.SimpleNamespace(owner=self.last)

    def apply_last(self, x: Tensor) -> Tensor:
        return self.last(x)

    def forward(self, x: Tensor) -> Tensor:
        self.memory.seen.append(x)
        self.numbers.append(3)
        return self.part(self.layers[0](x)) + len(self.memory.seen)


def test_a_copy_is_apart_and_shares_its_tensors() -> None:
    model = Keeper()
    copy = PrivateCopy(model).module
    assert leads_back(PrivateCopy(model)) is None
    assert copy.last.weight is model.last.weight
    assert copy.layers[0] is copy.drop is not model.drop
    assert copy.by_name["last"] is copy.settings.owner is copy.last
    assert copy.method.__self__ is copy.part.func.__self__ is copy.parent() is copy
    copy(torch.ones(1, 3))
    copy.train(False)
    copy.register_buffer("new", torch.zeros(1))
    assert model.memory.seen == []
    assert model.numbers == [1, 2]
    assert model.training
    assert model.drop.training
    assert not dict(model.named_buffers())


def test_what_a_model_keeps_does_not_go_from_draw_to_draw() -> None:
    model = Keeper()
    x = torch.randn(4, 3)
    draws = predict(model, x, num_draws=6, plan="whole model").draws
    assert model.memory.seen == []
    # Every pass finds the memory as it was: empty.
    again = predict(model, x, num_draws=6).draws
    torch.testing.assert_close(again, draws)


HELD = nn.Dropout(0.5)


class ByGlobalName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.last = HELD, nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(HELD(x))


class Slots:
    __slots__ = ("module",)

    def __init__(self, module: nn.Module) -> None:
        self.module = module


def in_a_closure(model: nn.Module) -> None:
    drop = model.drop
    model.function = lambda x: drop(x) + 0


def in_a_default(model: nn.Module) -> None:
    def function(x: Tensor, drop: nn.Module = model.drop) -> Tensor:
        return drop(x)

    model.function = function


def in_an_object_that_is_not_copied(model: nn.Module) -> None:
    holder = Slots(model.drop)
    model.function = lambda x: holder.module(x) + 0


def in_a_forward_that_was_replaced(model: nn.Module) -> None:
    before = model.forward
    model.forward = lambda x: before(model.drop(x))


class WithFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(3, 2)
        self.function: Callable[[Tensor], Tensor] = torch.relu

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(x))


@pytest.mark.parametrize(
    "hide", [in_a_closure, in_a_default, in_an_object_that_is_not_copied, in_a_forward_that_was_replaced]
)
def test_a_module_that_is_reached_by_another_way_is_found(hide: Callable[[Any], None]) -> None:
    model = WithFunction()
    hide(model)
    assert leads_back(PrivateCopy(model)) is not None
    _assert_random(model)


def test_a_global_name_is_found() -> None:
    assert "global name 'HELD'" in str(leads_back(PrivateCopy(ByGlobalName())))
    _assert_random(ByGlobalName())


def test_a_copy_that_runs_a_part_of_the_model_itself_is_given_up() -> None:
    """A way that no look at the model shows: its own modules, asked for from outside."""
    shelf: dict[str, Any] = {}

    class FromAfar(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.last = nn.Dropout(0.5), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(vars(shelf["get"])["drop"](x))

    model = FromAfar()
    shelf["get"] = types.SimpleNamespace(drop=model.drop)
    _assert_random(model)


def _assert_random(model: nn.Module) -> None:
    model.eval()
    x = torch.ones(6, 3)
    draws = predict(model, x, num_draws=20).draws
    assert (draws != draws[:1]).any()
    torch.testing.assert_close(draws[:, 0], draws[:, 5])
    assert all(type(module.training) is bool and not module.training for module in model.modules())


def test_a_script_inside_is_run_in_the_model_itself() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(torch.jit.script(nn.Linear(3, 3)), nn.Dropout(0.5))
    subject = Subject(model)
    draws = predict(model, torch.ones(2, 3), num_draws=4).draws
    assert (draws != draws[:1]).any()
    with subject._lent() as (module, _, _):
        assert module is model
    assert subject.shared == "a part of it is a script"


def test_arguments_are_copied_for_passes_that_only_watch() -> None:
    memory, x = Memory(), torch.ones(2)
    memory.seen.append(torch.zeros(1))
    (copy, same), named = copied_arguments(((memory, x), {"more": [memory]}), tensors=False)
    assert same is x
    assert named["more"][0] is copy is not memory
    copy.seen[0].add_(1)
    copy.seen.append(x)
    assert len(memory.seen) == 1
    assert memory.seen[0] == 0
    assert copied_arguments(((x,), {}), tensors=True)[0][0] is not x


def test_the_users_own_modules_are_shown_to_include() -> None:
    model = Keeper()
    seen: list[nn.Module] = []
    predict(model, torch.ones(2, 3), num_draws=3, include=lambda path, module: seen.append(module) or True)
    assert any(module is model.drop for module in seen)
    assert all(any(module is own for own in model.modules()) for module in seen)
