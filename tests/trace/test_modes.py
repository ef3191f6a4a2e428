"""Functions of a model that draw no numbers are called past our own modes, and past no one else's."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesdrop import FunctionDraw, predict


class Net(nn.Module):
    """A network of the user."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(F.relu(self.norm(self.first(x)))))


class Doubling(TorchFunctionMode):
    """A mode of the user that changes what a function does."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return 2 * out if func is F.relu else out


class Noting(Tensor):
    """A tensor that notes the functions it is given to."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func.__name__)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def test_a_mode_of_the_user_sees_the_model() -> None:
    net, x = Net().eval(), torch.randn(5, 3)
    plain = predict(net, x, num_draws=4).draws
    with Doubling():
        doubled = predict(net, x, num_draws=4).draws
    torch.testing.assert_close(doubled - net.last.bias, 2 * (plain - net.last.bias))


def test_a_tensor_of_the_users_class_sees_what_it_is_given_to() -> None:
    net, x = Net().eval(), torch.randn(5, 3)
    plain = predict(net, x, num_draws=4).draws
    del net.first.bias
    torch.manual_seed(0)
    net.first.bias = nn.Linear(3, 8).bias.detach().as_subclass(Noting)  # type: ignore[assignment]
    Noting.seen.clear()
    torch.testing.assert_close(predict(net, x, num_draws=4).draws, plain)
    assert "linear" in Noting.seen


def test_a_draw_inside_a_draw_keeps_its_flags() -> None:
    inner, outer, x = Net(), Net(), torch.randn(5, 3)
    with torch.no_grad(), FunctionDraw(inner, index=1):
        alone = inner(x)
        with FunctionDraw(outer, index=2):
            both = inner(x), outer(x)
    torch.testing.assert_close(both[0], alone)
    with torch.no_grad(), FunctionDraw(outer, index=2):
        torch.testing.assert_close(both[1], outer(x))
