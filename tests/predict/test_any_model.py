"""Any model: every dropout of it is random, held and seeded; never a silent zero, never a wrong draw.

The truth is the model itself, run once for each draw (plan="whole model"), torch's own noise in training
mode, or a formula. Every plan, batch size and order must give the same numbers as the model itself.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop import BernoulliDropout, FunctionDraw, NoRandomness, predict
from bayesdrop.predict.sampler import PartlyRandom

# Sites are switched off on purpose here; that this is said has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:predict. these are not random:bayesdrop.PartlyRandom")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Apply(nn.Module):
    """A module whose forward is a function of it and its inputs."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, dtype=torch.float64)


# functional dropout


def flagged(call: Callable[[Tensor, Any], Tensor]) -> Callable[..., Tensor]:
    return lambda self, x: call(x, self.training)


FUNCTIONAL = {
    "F.dropout": (flagged(lambda x, t: F.dropout(x, 0.4, t)), (5, 6)),
    "F.dropout by name": (flagged(lambda x, t: F.dropout(input=x, p=0.4, training=t)), (5, 6)),
    "F.dropout 3-D": (flagged(lambda x, t: F.dropout(x, 0.4, t)), (5, 3, 4)),
    "F.dropout1d": (flagged(lambda x, t: F.dropout1d(x, 0.4, t)), (5, 6, 4)),
    "F.dropout2d": (flagged(lambda x, t: F.dropout2d(x, 0.4, t)), (5, 6, 2, 3)),
    "F.dropout3d": (flagged(lambda x, t: F.dropout3d(x, 0.4, t)), (5, 6, 2, 3, 2)),
    "F.alpha_dropout": (flagged(lambda x, t: F.alpha_dropout(x, 0.4, t)), (5, 6)),
    "F.feature_alpha_dropout": (flagged(lambda x, t: F.feature_alpha_dropout(x, 0.4, t)), (5, 6, 3)),
    "torch.dropout": (flagged(lambda x, t: torch.dropout(x, 0.4, t)), (5, 6)),
    "torch.feature_dropout": (flagged(lambda x, t: torch.feature_dropout(x, 0.4, t)), (5, 6, 3)),
    "torch.alpha_dropout": (flagged(lambda x, t: torch.alpha_dropout(x, 0.4, t)), (5, 6)),
    "torch.native_dropout": (flagged(lambda x, t: torch.native_dropout(x, 0.4, t)[0]), (5, 6)),
    "aten dropout": (flagged(lambda x, t: torch.ops.aten.dropout(x, 0.4, t)), (5, 6)),
    "aten dropout.default": (lambda self, x: torch.ops.aten.dropout.default(x, 0.4, True), (5, 6)),
    "in place": (flagged(lambda x, t: F.dropout(x * 1.0, 0.4, t, inplace=True)), (5, 6)),
    "in place on the input": (flagged(lambda x, t: F.dropout(x, 0.4, t, inplace=True)), (5, 6)),
    "torch.dropout_": (flagged(lambda x, t: torch.dropout_(x * 1.0, 0.4, t)), (5, 6)),
    "constant True": (lambda self, x: F.dropout(x, 0.4, True), (5, 6)),
    "no flag": (lambda self, x: F.dropout(x, 0.4), (5, 6)),
    "flag and True": (flagged(lambda x, t: F.dropout(x, 0.4, t and True)), (5, 6)),
    "True and flag": (flagged(lambda x, t: F.dropout(x, 0.4, True and t)), (5, 6)),
    "flag or False": (flagged(lambda x, t: F.dropout(x, 0.4, t or False)), (5, 6)),
    "bool(flag)": (flagged(lambda x, t: F.dropout(x, 0.4, bool(t))), (5, 6)),
    "flag == True": (flagged(lambda x, t: F.dropout(x, 0.4, t == True)), (5, 6)),  # noqa: E712
    "not not flag": (flagged(lambda x, t: F.dropout(x, 0.4, not (not t))), (5, 6)),  # noqa: SIM208
    "rate times flag": (flagged(lambda x, t: F.dropout(x, 0.4 * t)), (5, 6)),
    "rate if flag": (flagged(lambda x, t: F.dropout(x, 0.4 if t else 0.0)), (5, 6)),
    "only if flag": (flagged(lambda x, t: F.dropout(x, 0.4) if t else x), (5, 6)),
    "unless not flag": (flagged(lambda x, t: x if not t else F.dropout(x, 0.4)), (5, 6)),
}


@pytest.mark.parametrize(("function", "shape"), FUNCTIONAL.values(), ids=FUNCTIONAL.keys())
def test_a_dropout_call_has_the_moments_of_torchs_own(
    function: Callable[..., Tensor], shape: Any, assert_is_a_function: Any, assert_moments_of_training: Any
) -> None:
    model, x = Apply(function), normal(*shape)
    assert_is_a_function(model, x)
    assert_moments_of_training(model, x, copies=200, num_draws=20)


@pytest.mark.parametrize("shape", [(5, 6), (5, 3, 4)])
def test_a_mask_is_shared_by_all_rows(shape: tuple[int, ...]) -> None:
    for function in (FUNCTIONAL["F.dropout"][0], FUNCTIONAL["in place"][0], FUNCTIONAL["only if flag"][0]):
        masks = predict(Apply(function), torch.ones(shape), num_draws=20).draws
        assert torch.equal(masks, masks[:, :1].expand_as(masks))
        torch.testing.assert_close(masks[masks != 0], torch.full_like(masks[masks != 0], 1 / 0.6))
        assert (masks == 0).any()


@pytest.mark.parametrize("name", ["F.dropout1d", "F.dropout2d", "F.dropout3d"])
def test_channels_are_dropped_whole(name: str) -> None:
    function, shape = FUNCTIONAL[name]
    masks = predict(Apply(function), torch.ones(shape), num_draws=20).draws.flatten(3)
    assert torch.equal(masks, masks[..., :1].expand_as(masks))
    assert masks[..., 0].unique().numel() == 2


def test_dropout2d_takes_three_axes_for_rows_channels_positions(assert_is_a_function: Any) -> None:
    model = Apply(lambda self, x: F.dropout2d(x, 0.5, self.training))
    x = normal(4, 5, 6)
    draws = assert_is_a_function(model, x)
    kept = draws / x
    torch.testing.assert_close(kept, kept[:, :1, :, :1].expand_as(kept))


def test_dropout1d_without_a_batch_axis_drops_rows_together(assert_is_a_function: Any) -> None:
    """Torch takes (N, C) for one row of N channels; a draw gives all N the same fate."""
    model = Apply(lambda self, x: F.dropout1d(x, 0.5, self.training))
    draws = assert_is_a_function(model, normal(4, 5), num_draws=20)
    fate = (draws != 0).flatten(1)
    assert torch.equal(fate.all(1), fate.any(1))


class IsTrue(nn.Module):
    """Some people write it like this."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, dtype=torch.float64)
        self.mean, self.variance = nn.Buffer(normal(6)), nn.Buffer(normal(6).square())

    def forward(self, x: Tensor) -> Tensor:
        x = F.batch_norm(self.norm(x), self.mean, self.variance, training=self.training is not False)
        x = torch.batch_norm(x, None, None, self.mean, self.variance, self.training, 0.1, 1e-5, False)
        return F.dropout(x, 0.4) if self.training is True else x


def test_a_flag_may_be_compared_by_identity(assert_is_a_function: Any) -> None:
    assert_is_a_function(IsTrue(), normal(5, 6))


def test_a_call_that_says_false_stays_off_and_is_reported() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return F.dropout(F.dropout(x, 0.5, False), 0.5, self.training)

    with pytest.warns(PartlyRandom, match=r"\(model\) \(called with training=False\)"):
        predict(Apply(forward), normal(3, 4), num_draws=2)
    with pytest.raises(NoRandomness, match=r"called with training=False"):
        predict(Apply(lambda self, x: F.dropout(x, 0.5, False)), normal(3, 4))


def test_a_flag_that_is_computed_to_false_stays_off() -> None:
    """`self.training and False` is off in training mode, so it is off in a draw."""
    model = Apply(lambda self, x: F.dropout(F.dropout(x, 0.5, self.training and False), 0.3, self.training))
    with pytest.warns(PartlyRandom, match="training=False"):
        draws = predict(model, torch.ones(2, 50), num_draws=200).draws
    share = (draws == 0).double().mean()
    assert abs(share - 0.3) < 5 * math.sqrt(0.3 * 0.7 / (200 * 50))


def test_a_model_that_is_random_in_eval_mode_only_stays_so(assert_is_a_function: Any) -> None:
    model = Apply(lambda self, x: x if self.training else F.dropout(x, 0.5, True))
    assert_is_a_function(model, normal(5, 6))


def test_a_helper_function_may_read_the_flag(assert_is_a_function: Any) -> None:
    def attend(module: nn.Module, x: Tensor) -> Tensor:
        return F.dropout(x, 0.4 if module.training else 0.0)

    assert_is_a_function(Apply(attend), normal(5, 6))


def test_the_rate_may_come_from_a_module_above(assert_is_a_function: Any) -> None:
    inner = Apply(lambda self, x, p: F.dropout(x, p))
    outer = Apply(lambda self, x: self.inner(x, 0.4 if self.training else 0.0), inner=inner)
    assert_is_a_function(outer, normal(5, 6))
    assert_is_a_function(Apply(lambda self, x: self.outer(x), outer=outer), normal(5, 6))


def test_training_mode_is_not_turned_on_where_it_changes_more_than_dropout() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = F.dropout(x, 0.5, self.training)
        if self.training:
            h = F.dropout(h, 0.3)
        return h if self.training else torch.softmax(h, -1)

    with pytest.warns(PartlyRandom, match="on in training mode only"):
        prediction = predict(Apply(forward), normal(5, 6), num_draws=8)
    torch.testing.assert_close(prediction.draws.sum(-1), torch.ones(8, 5, dtype=torch.float64))


def test_an_auxiliary_output_of_training_stays_away() -> None:
    def forward(self: Any, x: Tensor) -> Any:
        h = self.drop(x)
        return (h, self.head(h)) if self.training else h

    model = Apply(forward, drop=nn.Dropout(0.5), head=nn.Sequential(nn.Dropout(0.2), linear(6, 2)))
    with pytest.warns(PartlyRandom, match="head.0 .*on in training mode only"):
        assert predict(model, normal(5, 6), num_draws=3).draws.shape == (3, 5, 6)


def test_a_module_that_wants_targets_in_training_does_not_hide_the_others(assert_is_a_function: Any) -> None:
    def forward(self: Any, x: Tensor, targets: Tensor | None = None) -> Tensor:
        if self.training and targets is None:
            raise ValueError("targets, please")
        return self.inner(x)

    class Outer(Apply):
        pass

    inner = Apply(lambda self, x: F.dropout(x, 0.4 if self.training else 0.0))
    assert_is_a_function(Outer(forward, inner=inner), normal(5, 6))


def test_a_module_may_need_the_one_above_it_in_training_too(assert_is_a_function: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return self.inner(x, (1.0,) if self.training else None)

    def inner(self: Any, x: Tensor, prepared: Any) -> Tensor:
        return F.dropout(x, 0.4) * prepared[0] if self.training else x

    assert_is_a_function(Apply(forward, inner=Apply(inner)), normal(5, 6))


def test_training_mode_that_cannot_be_had_is_reported(assert_is_a_function: Any) -> None:
    def forward(self: Any, x: Tensor) -> Any:
        return (self.inner(x, 1.0), x) if self.training else self.inner(self.drop(x), None)

    def inner(self: Any, x: Tensor, prepared: Any) -> Tensor:
        return F.dropout(x, 0.4) * prepared if self.training else x

    model = Apply(forward, inner=Apply(inner), drop=nn.Dropout(0.3))
    with pytest.warns(PartlyRandom, match="inner .*on in training mode only"):
        predict(model, normal(5, 6), num_draws=2)
    assert_is_a_function(model, normal(5, 6))


def test_dropout_on_weights_is_one_mask_whatever_the_batch(assert_is_a_function: Any) -> None:
    """Rows and weights may have the same length, or one may divide the other: a mask is a mask."""
    for rows in (3, 6, 12, 24):
        model = Apply(
            lambda self, x: F.linear(x, F.dropout(self.weight, 0.5, self.training)),
            weight=nn.Parameter(normal(6, 4)),
        )
        assert_is_a_function(model, normal(rows, 4))


def test_dropout_on_positions_is_one_mask_whatever_the_batch(assert_is_a_function: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return x + F.dropout(self.table(torch.arange(x.shape[1])), 0.5, self.training)

    for rows in (4, 5, 8):
        assert_is_a_function(
            Apply(forward, table=nn.Embedding(9, 3, dtype=torch.float64)), normal(rows, 4, 3)
        )


LAYOUTS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "rows first": lambda self, x: self.drop(x),
    "time first": lambda self, x: self.drop(x.transpose(0, 1)).transpose(0, 1),
    "rows last": lambda self, x: self.drop(x.permute(1, 2, 0)).permute(2, 0, 1),
    "rows and time": lambda self, x: self.drop(x.flatten(0, 1)).unflatten(0, x.shape[:2]),
    "time and rows": lambda self, x: (
        self.drop(x.transpose(0, 1).flatten(0, 1)).unflatten(0, (x.shape[1], x.shape[0])).transpose(0, 1)
    ),
    "one long axis": lambda self, x: self.drop(x.flatten()).reshape(x.shape),
    "rows twice": lambda self, x: self.drop(torch.cat([x, x.flip(-1)])).unflatten(0, (2, -1)).sum(0),
    "each row twice": lambda self, x: self.drop(x.repeat_interleave(2, 0)).unflatten(0, (-1, 2)).sum(1),
    "time, then rows and units": lambda self, x: (
        self.drop(x.transpose(0, 1).flatten(1)).unflatten(1, (x.shape[0], x.shape[2])).transpose(0, 1)
    ),
    "one row at a time": lambda self, x: torch.stack([self.drop(row) for row in x]),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("shape", [(4, 4, 4), (4, 8, 4), (5, 3, 2), (6, 2, 12)], ids=str)
def test_rows_share_a_mask_wherever_they_are(
    name: str, shape: tuple[int, ...], assert_is_a_function: Any
) -> None:
    model = Apply(LAYOUTS[name], drop=nn.Dropout(0.5))
    batches = name != "one row at a time"  # where each row makes a call of its own, and so has its own noise
    draws = assert_is_a_function(model, normal(*shape), batches=batches)
    if batches:
        masks = predict(model, torch.ones(shape), num_draws=6).draws
        assert torch.equal(masks, masks[:, :1].expand_as(masks))
        assert masks[:, 0].unique(dim=0).shape[0] > 1
    assert draws.shape[1:] == shape


# what models do


def mlp(self: Any, x: Tensor) -> Tensor:
    return self.last(self.drop(torch.relu(self.first(x))))


def parts() -> dict[str, Any]:
    return {"first": linear(4, 6), "drop": nn.Dropout(0.4), "last": linear(6, 3)}


def residual_in_place(self: Any, x: Tensor) -> Tensor:
    h = self.first(x)
    h += self.drop(h)
    h.mul_(2).relu_()
    return self.last(h)


def constant_changed_by_noise(self: Any, x: Tensor) -> Tensor:
    h = self.first(x)
    y = h.clone()
    y += self.drop(h)
    return self.last(y) + self.last(h)


def view_changed(self: Any, x: Tensor) -> Tensor:
    h = self.drop(self.first(x))
    h[:, :2].mul_(3)
    h[:, 2:] += 1
    return self.last(h)


def view_of_a_changed_tensor(self: Any, x: Tensor) -> Tensor:
    h = self.drop(self.first(x))
    left = h[:, :3]
    h.mul_(2)
    return self.last(h) + left


def view_of_a_constant_changed(self: Any, x: Tensor) -> Tensor:
    h = self.first(x)
    left = h[:, :3]
    F.dropout(h, 0.4, self.training, inplace=True)
    return self.last(h) + left


def columns(self: Any, x: Tensor) -> Tensor:
    h = self.drop(self.first(x))
    out = torch.zeros(x.shape[0], 6, dtype=x.dtype)
    for i in range(6):
        out[:, i] = h[:, i] * i
    return self.last(out)


def list_buffer(self: Any, x: Tensor) -> Tensor:
    seen = []
    for i in range(3):
        seen.append(self.drop(self.first(x)) * i)
    return self.last(torch.stack(seen).sum(0) + torch.cat([s[:, :2] for s in seen], -1))


def in_place_activation(self: Any, x: Tensor) -> Tensor:
    h = self.act(self.drop(self.first(x)))
    return self.last(F.leaky_relu(h, 0.1, True) + F.elu(h.clone(), inplace=True))


def skips(self: Any, x: Tensor) -> Tensor:
    prefix = torch.tanh(self.first(x))
    h = self.drop(prefix)
    return self.last(h * prefix + prefix) + prefix[:, :3]


def made_here(self: Any, x: Tensor) -> Tensor:
    n = x.shape[-1]
    weights = torch.arange(n, dtype=x.dtype) / torch.full((), n) + torch.eye(n, dtype=x.dtype)[0]
    return self.last(self.drop(self.first(x * weights))) + x.new_ones(3) + torch.tensor([1.0, 2.0, 3.0])


GLOBAL = torch.linspace(0, 1, 6, dtype=torch.float64)


def global_constant(self: Any, x: Tensor) -> Tensor:
    return self.last(self.drop(self.first(x)) * GLOBAL)


def from_numpy(self: Any, x: Tensor) -> Tensor:
    return self.last(self.drop(self.first(x)) * torch.from_numpy(np.ones(6)))


def branch_on_noise(self: Any, x: Tensor) -> Tensor:
    h = self.drop(self.first(x))
    return self.last(h) if (h[0] != 0).sum() % 2 == 0 else -self.last(h)


def item_of_noise(self: Any, x: Tensor) -> Tensor:
    h = self.drop(self.first(x))
    return self.last(h) * (h[0] == 0).double().mean().item()


def through_numpy(self: Any, x: Tensor) -> Tensor:
    h = self.drop(self.first(x)).numpy()
    return self.last(torch.from_numpy(np.tanh(h)))


def cut_by_noise(self: Any, x: Tensor) -> Tensor:
    h = self.drop(self.first(x))
    return self.last(h) + x[:, : (h[0] == 0).sum() % 3 + 1].sum(-1, keepdim=True)


def chosen_by_noise(self: Any, x: Tensor) -> Tensor:
    h = self.drop(self.first(x))
    kept = h[:, (h != 0).any(0)]
    return self.last(h) + kept.sum(-1, keepdim=True) / max(1, kept.shape[1])


def sorted_by_noise(self: Any, x: Tensor) -> Tensor:
    values, order = self.drop(self.first(x)).sort(-1)
    top = values.topk(2, -1)
    return self.last(values.gather(-1, order)) + top.values.sum(-1, keepdim=True) + values.max(-1)[0][:, None]


def data_of_an_input(self: Any, x: Tensor) -> Tensor:
    h = self.last(self.drop(self.first(x)))
    x[:, :2] *= 2
    return h + x.data[:, :3]


def out_of_torch(self: Any, x: Tensor) -> Tensor:
    h = self.first(x)
    y = self.drop(h) + h
    h.numpy()[:] *= 2
    z = h + 1
    z.numpy()[:] *= 2
    return self.last(y + z)


def data_is_set(self: Any, x: Tensor) -> Tensor:
    h = torch.zeros(x.shape[0], 6, dtype=x.dtype)
    h.data = self.drop(self.first(x))
    return self.last(h)


def data_is_changed(self: Any, x: Tensor) -> Tensor:
    h, scale = self.drop(self.first(x)), torch.ones(6, dtype=x.dtype)
    y = h * scale
    scale.data.mul_(2)
    return self.last(y * scale)


def detached(self: Any, x: Tensor) -> Tensor:
    h = self.drop(self.first(x))
    return self.last(h.detach().clone().requires_grad_() + h.data + h.T.mT)


def gradient(self: Any, x: Tensor) -> Tensor:
    with torch.enable_grad():
        h = self.drop(self.first(x)).detach().requires_grad_()
        (slope,) = torch.autograd.grad(h.pow(3).sum(), h)
    return self.last(slope)


def backward(self: Any, x: Tensor) -> Tensor:
    with torch.enable_grad():
        z = self.first(x).detach().requires_grad_()
        torch.autograd.backward(self.drop(z).pow(3).sum())
    return self.last(z.grad)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, training: bool) -> Tensor:
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


def custom_function(self: Any, x: Tensor) -> Tensor:
    return self.last(Cube.apply(self.drop(self.first(x)), self.training))


def half_precision(self: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = F.linear(self.drop(x.float()), self.first.weight.float())
    return self.last(h.double())


def inference(self: Any, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return self.last(torch.relu_(self.drop(self.first(x))))


def vmapped(self: Any, x: Tensor) -> Tensor:
    h = self.drop(self.first(x))
    return self.last(torch.func.vmap(lambda row: row * row.sum())(h))


def returned_in_place(self: Any, x: Tensor) -> Tensor:
    x += self.drop(x)
    return x


def sum_of_inputs(self: Any, x: Tensor) -> Tensor:
    x *= 2
    x[:, 0] = 1
    return self.last(self.drop(self.first(x)))


def exceptions(self: Any, x: Tensor) -> Tensor:
    try:
        return self.last(self.drop(self.first(x)).reshape(-1, 7, 11))
    except RuntimeError:
        pass
    try:
        h = torch.dropout(self.first(x), 0.3, self.training)
    except TypeError:
        h = self.first(x)
    return self.last(self.drop(h))


def flags_in_lists(self: Any, x: Tensor) -> Tensor:
    on = (
        torch.tensor([self.training, not self.training]).any()
        & torch.stack([torch.as_tensor(self.training), torch.tensor(True)]).any()
    )
    return self.last(self.drop(self.first(x))) * on


def copies(self: Any, x: Tensor) -> Tensor:
    again = copy.deepcopy(self.last)
    return again(copy.deepcopy(self.drop(self.first(x)))) + again(self.drop(self.first(x)))


def copied_dropout(self: Any, x: Tensor) -> Tensor:
    return self.last(copy.deepcopy(self.drop)(self.first(x)))


def functional_call(self: Any, x: Tensor) -> Tensor:
    doubled = {name: 2 * parameter for name, parameter in self.last.named_parameters()}
    return torch.func.functional_call(self.last, doubled, (self.drop(self.first(x)),))


def dropout_under_vmap(self: Any, x: Tensor) -> Tensor:
    weights = torch.stack([self.last.weight, -2 * self.last.weight])
    h = self.first(x)
    return torch.func.vmap(lambda w: F.dropout(h @ w.T, 0.4, self.training))(weights).sum(0)


def itself(self: Any, x: Tensor, depth: int = 0) -> Tensor:
    return (
        self.last(self.drop(self.first(x))) if depth == 2 else self(x, depth=depth + 1) + self.drop(x)[:, :3]
    )


def checkpointed(self: Any, x: Tensor) -> Tensor:
    return self.last(
        torch.utils.checkpoint.checkpoint(lambda t: self.drop(self.first(t)), x, use_reentrant=False)
    )


MODELS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    function.__name__: (function, {})
    for function in (
        mlp, residual_in_place, constant_changed_by_noise, view_changed, view_of_a_changed_tensor,
        view_of_a_constant_changed, columns, list_buffer, skips, made_here, global_constant, from_numpy,
        branch_on_noise, item_of_noise, through_numpy, cut_by_noise, chosen_by_noise, sorted_by_noise,
        data_is_set, data_is_changed, detached, gradient, backward, custom_function, half_precision,
        inference, vmapped, returned_in_place, sum_of_inputs, exceptions, flags_in_lists, copies, itself,
        checkpointed, copied_dropout, functional_call, dropout_under_vmap, out_of_torch,
        data_of_an_input,
    )
} | {
    "in_place_activation": (in_place_activation, {"act": nn.ReLU(inplace=True)}),
    "in_place_dropout": (mlp, {"drop": nn.Dropout(0.4, inplace=True)}),
    "module_list": (
        lambda self, x: self.last(sum(drop(self.first(x)) for drop in self.drops)),
        {"drops": nn.ModuleList(nn.Dropout(p) for p in (0.2, 0.5))},
    ),
    "module_dict": (
        lambda self, x: self.last(self.drops["a"](self.first(x)) + self.drops["b"](self.first(x))),
        {"drops": nn.ModuleDict({"a": nn.Dropout(0.2), "b": nn.Dropout(0.5)})},
    ),
    "plain_list": (
        lambda self, x: self.last(self.drops[0](self.first(x))),
        {"drops": [nn.Dropout(0.5)]},
    ),
    "batch_norm": (
        lambda self, x: self.last(self.drop(self.norm(self.first(x)))),
        {"norm": nn.BatchNorm1d(6, dtype=torch.float64)},
    ),
    "batch_norm_function": (
        lambda self, x: self.last(
            F.dropout(
                F.batch_norm(self.first(x), self.mean, self.variance, training=self.training),
                0.4 if self.training else 0.0,
            )
        ),
        {"mean": nn.Buffer(normal(6)), "variance": nn.Buffer(normal(6).square())},
    ),
    "weight_norm": (mlp, {"first": nn.utils.parametrizations.weight_norm(linear(4, 6))}),
    "spectral_norm": (mlp, {"last": nn.utils.parametrizations.spectral_norm(linear(6, 3))}),
    "stochastic_layers": (mlp, {"first": BernoulliDropout(linear(4, 6), p=0.3)}),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [True, False])
def test_every_plan_gives_the_draws_of_the_model_itself(
    name: str, training: bool, assert_is_a_function: Any
) -> None:
    function, own = MODELS[name]
    model = Apply(function, **{**parts(), **copy.deepcopy(own)}).train(training)
    tolerance = 1e-2 if name == "half_precision" else 1e-9
    assert_is_a_function(model, normal(6, 4), num_draws=8, tolerance=tolerance)


def test_a_hook_may_drop_too(assert_is_a_function: Any) -> None:
    model = nn.Sequential(linear(4, 4), nn.Tanh(), linear(4, 2))
    model[0].register_forward_hook(lambda module, _, out: F.dropout(out, 0.4, module.training))
    assert_is_a_function(model, normal(5, 4))


def test_a_traced_graph_keeps_what_was_traced(assert_is_a_function: Any) -> None:
    class Source(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = linear(4, 2)
            self.drop = nn.Dropout(0.3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(F.dropout(self.drop(x), 0.4, self.training))

    assert_is_a_function(torch.fx.symbolic_trace(Source().train()), normal(5, 4))
    with pytest.warns(PartlyRandom, match="called with training=False"):
        predict(torch.fx.symbolic_trace(Source().eval()), normal(5, 4), num_draws=2)


def test_layers_that_training_skips_by_chance_do_not_confuse(assert_is_a_function: Any) -> None:
    """Noise that is not called dropout decides in training mode which layers run; in a draw all do."""

    def forward(self: Any, x: Tensor) -> Tensor:
        for layer in self.layers:
            if self.training and torch.rand(()) < 0.5:
                continue
            x = layer(x)
        return x

    layers = nn.ModuleList(
        Apply(lambda self, x: self.linear(F.dropout(x, 0.4, self.training)), linear=linear(4, 4))
        for _ in range(6)
    )
    model, x = Apply(forward, layers=layers), normal(5, 4)
    with pytest.warns(PartlyRandom, match="draws numbers of its own in training mode only"):
        draws = predict(model, x, num_draws=6).draws
    with torch.no_grad(), FunctionDraw(model, index=2) as draw:
        torch.testing.assert_close(model(x), draws[2])
    assert sum(site.random for site in draw.sites.values()) == 6


def test_modules_that_are_shared_have_one_path_and_two_calls(assert_is_a_function: Any) -> None:
    shared = nn.Sequential(linear(4, 4), nn.Dropout(0.5))
    model = Apply(lambda self, x: torch.stack([self.a(x), self.b(x)], 1), a=shared, b=shared)
    draws = assert_is_a_function(model, normal(5, 4))
    assert not torch.equal(draws[:, :, 0], draws[:, :, 1])
    assert_is_a_function(nn.Sequential(shared, nn.ReLU(), shared), normal(5, 4))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wrappers_are_taken_off(assert_is_a_function: Any) -> None:
    model = Apply(mlp, **parts())
    plain = assert_is_a_function(model, normal(5, 4))
    for wrapped in (torch.compile(model), nn.DataParallel(model), torch.compile(nn.DataParallel(model))):
        torch.testing.assert_close(predict(wrapped, normal(5, 4), num_draws=6).draws, plain)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_part_runs_as_it_was_written(assert_is_a_function: Any) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the compiler was run")

    inner = nn.Sequential(linear(6, 6), nn.Dropout(0.4))
    compiled = Apply(
        lambda self, x: self.last(self.inner(self.first(x))),
        **parts() | {"inner": torch.compile(inner, backend=never)},
    )
    assert_is_a_function(compiled, normal(5, 4))


def test_two_inputs_and_keywords(assert_is_a_function: Any) -> None:
    model = Apply(
        lambda self, left, right, scale=1.0: self.last(self.drop(self.first(left)) + right) * scale, **parts()
    )
    pair = (normal(6, 4), normal(6, 6, seed=1))
    draws = assert_is_a_function(model, pair)
    named = assert_is_a_function(model, {"right": pair[1], "left": pair[0]})
    torch.testing.assert_close(named, draws)


def test_images(assert_is_a_function: Any) -> None:
    net = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(inplace=True), nn.Dropout2d(0.3), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.LeakyReLU(0.1, inplace=True),
        nn.Dropout(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.AlphaDropout(0.1), nn.Linear(8, 3),
    ).double()  # fmt: skip
    assert_is_a_function(net, normal(5, 2, 6, 6))


# models that keep something from one pass to the next


def test_a_hidden_state_does_not_go_from_draw_to_draw(assert_is_a_function: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x) if self.state is None else self.first(x) + self.state[: len(x)].mean(0))
        self.state = self.drop(h)
        self.steps += 1
        return self.last(self.state)

    model = Apply(forward, **parts(), state=None, steps=0)
    assert_is_a_function(model, normal(6, 4))
    assert model.state is None
    assert model.steps == 0


def test_buffers_that_a_forward_moves_are_put_back(assert_is_a_function: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = self.drop(self.first(x))
        self.average.mul_(0.9).add_(0.1 * h.mean(0))
        self.count += 1
        self.history.append(h)
        self.late = h
        return self.last(h + self.average * self.count)

    model = Apply(
        forward, **parts(), average=nn.Buffer(normal(6)), count=nn.Buffer(torch.zeros(())), history=[]
    )
    # The average is over the rows of a batch, so only the plans must agree.
    assert_is_a_function(model, normal(6, 4), batches=False)
    assert model.history == []
    assert not hasattr(model, "late")


def test_whatever_a_forward_writes_to_is_put_back(assert_is_a_function: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        torch.add(self.a, 1, out=self.a)
        torch._foreach_add_([self.b, self.c], 1.0)
        F.batch_norm(x, self.mean, self.variance, training=True)
        self.d.numpy()[:] += 1
        x.numpy()[:, 0] = 2
        self.e.random_(3)
        return (
            self.drop(x) * self.a * self.b * self.c + self.mean + self.d + self.table(torch.arange(4))[:, 0]
        )

    buffers = {name: nn.Buffer(normal(4, seed=i)) for i, name in enumerate("abcde")}
    statistics = {"mean": nn.Buffer(normal(4)), "variance": nn.Buffer(normal(4).square())}
    table = nn.Embedding(4, 3, max_norm=0.5, dtype=torch.float64)
    model = Apply(forward, drop=nn.Dropout(0.4), table=table, **buffers, **statistics)
    with pytest.warns(PartlyRandom, match="no seed can repeat: random_"):
        predict(model, normal(5, 4), num_draws=2)
    # Statistics are those of the batch, so only the plans must agree.
    assert_is_a_function(model, normal(5, 4), batches=False)


def test_an_output_in_the_models_own_memory_survives(assert_is_a_function: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        self.memory[: len(x)].copy_(self.last(self.drop(self.first(x))))
        return self.memory[: len(x)]

    assert_is_a_function(Apply(forward, **parts(), memory=nn.Buffer(normal(9, 3))), normal(6, 4))


def test_a_counter_counts_the_users_passes_alone() -> None:
    model = Apply(
        lambda self, x: setattr(self, "calls", self.calls + 1) or self.drop(x), calls=0, drop=nn.Dropout(0.5)
    )
    predict(model, normal(3, 4), num_draws=3)
    assert model.calls == 0
    with FunctionDraw(model):
        model(normal(3, 4))
    assert model.calls == 1


# randomness of a model's own


class DropPath(nn.Module):
    """Stochastic depth, as image models have it."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if self.p == 0.0 or not self.training:
            return x
        mask = x.new_empty((x.shape[0],) + (1,) * (x.dim() - 1)).bernoulli_(1 - self.p)
        return x * mask / (1 - self.p)


class LockedDropout(nn.Module):
    """One mask over time, as language models have it."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        mask = torch.empty(x.shape[0], 1, x.shape[2], dtype=x.dtype).bernoulli_(0.6) / 0.6
        return x * mask


class GaussianNoise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.3 * torch.randn_like(x) if self.training else x


class MaskByRand(nn.Module):
    def drop(self, x: Tensor) -> Tensor:
        return x * (torch.rand(x.shape, dtype=x.dtype) > 0.4) / 0.6 if self.training else x

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x)


class GumbelDropout(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.gumbel_softmax(x, dim=-1) if self.training else torch.softmax(x, -1)


@pytest.mark.parametrize(
    "layer",
    [DropPath(0.3), LockedDropout(), GaussianNoise(), MaskByRand()],
    ids=lambda layer: type(layer).__name__,
)
def test_dropout_of_a_models_own_making_is_held(
    layer: nn.Module, assert_is_a_function: Any, assert_moments_of_training: Any
) -> None:
    model = nn.Sequential(linear(4, 4), layer, nn.Tanh(), linear(4, 2))
    assert_is_a_function(model, normal(5, 3, 4), num_draws=12)
    assert_moments_of_training(model, normal(2, 3, 4))


OWN: dict[str, Callable[[Tensor], Tensor]] = {
    "rand": lambda x: x + torch.rand(x.shape, dtype=x.dtype),
    "rand sizes": lambda x: x + torch.rand(x.shape[0], 1, dtype=x.dtype),
    "randn": lambda x: x + torch.randn(x.shape, dtype=x.dtype),
    "rand_like": lambda x: x * torch.rand_like(x),
    "randn_like": lambda x: x * torch.randn_like(x),
    "bernoulli": lambda x: x * torch.bernoulli(torch.full_like(x, 0.3)),
    "bernoulli with p": lambda x: x * torch.bernoulli(x, 0.3),
    "bernoulli_": lambda x: x * torch.empty_like(x).bernoulli_(0.3),
    "bernoulli_ of a tensor": lambda x: x * torch.empty_like(x).bernoulli_(torch.sigmoid(x)),
    "uniform_": lambda x: x + torch.empty_like(x).uniform_(-1, 2),
    "normal_": lambda x: x + torch.empty_like(x).normal_(1, 2),
    "exponential_": lambda x: x + torch.empty_like(x).exponential_(2.0),
    "normal": lambda x: torch.normal(x, 0.3),
    "normal of tensors": lambda x: torch.normal(x, x.abs()),
    "normal of a size": lambda x: x + torch.normal(1.0, 2.0, x.shape, dtype=x.dtype),
    "gumbel": lambda x: F.gumbel_softmax(x, dim=-1),
    "distribution": lambda x: torch.distributions.Normal(x, 0.5, validate_args=False).rsample(),
    "bernoulli distribution": lambda x: x * torch.distributions.Bernoulli(0.3 * torch.ones_like(x)).sample(),
    "read as a number": lambda x: x * torch.rand(()).item() if float(torch.rand(1)) < 0.5 else -x,
}


@pytest.mark.parametrize("name", OWN)
def test_random_functions_in_a_forward_are_held(
    name: str, assert_is_a_function: Any, assert_moments_of_training: Any
) -> None:
    """A model that is random in eval mode too: its draws are functions all the same."""
    model, x = Apply(lambda self, x: OWN[name](x)), normal(5, 4)
    assert_is_a_function(model, x, num_draws=8)
    if name != "read as a number":  # one number for all rows is no sample of rows
        assert_moments_of_training(model, x, copies=200)


def test_noise_of_a_generator_that_the_model_seeds_is_no_noise(assert_is_a_function: Any) -> None:
    def own_generator(self: Any, x: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(3)
        return self.drop(x) @ torch.randn(4, 2, generator=generator, dtype=x.dtype)

    def global_generator(self: Any, x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return self.drop(x) @ torch.randn(4, 2, dtype=x.dtype)

    generator = torch.Generator().manual_seed(3)
    projection = torch.randn(4, 2, generator=generator, dtype=torch.float64)
    expected = predict(
        Apply(lambda self, x: self.drop(x) @ projection, drop=nn.Dropout(0.5)), normal(5, 4)
    ).draws
    for forward in (own_generator, global_generator):
        with pytest.warns(PartlyRandom, match="no seed can repeat: randn"):
            draws = predict(Apply(forward, drop=nn.Dropout(0.5)), normal(5, 4)).draws
        torch.testing.assert_close(draws, expected)


@pytest.mark.parametrize("name", ["multinomial", "fractional pooling", "numpy", "python"])
def test_randomness_that_cannot_be_held_is_reported(name: str, unchanged: Any) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = self.drop(x)
        if name == "multinomial":
            return h * torch.multinomial(torch.ones(4), 4)
        if name == "numpy":
            return h * np.random.random()  # noqa: NPY002
        if name == "python":
            return h * random.random()
        return F.fractional_max_pool2d(h[:, None, None].expand(-1, 1, 4, 4), 2, output_size=3).flatten(1)

    model, x = Apply(forward, drop=nn.Dropout(0.5)), normal(5, 4)
    with unchanged(model, x), pytest.warns(PartlyRandom, match="numbers that no seed can repeat"):
        prediction = predict(model, x, num_draws=8)
    assert "whole model" in str(prediction.plan)
    assert (prediction.std > 0).any()


def test_training_noise_that_is_not_called_dropout_stays_off_and_is_reported() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        if self.training and torch.rand(()) < 2:
            x = x.flip(-1)  # as an augmentation
        return self.drop(x)

    with pytest.warns(PartlyRandom, match="draws numbers of its own in training mode only"):
        draws = predict(
            Apply(forward, drop=nn.Dropout(0.5)), torch.arange(8.0).expand(3, 8), num_draws=50
        ).draws
    torch.testing.assert_close(draws.amax((0, 1)), 2 * torch.arange(8.0))


# scripts


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_script_with_dropout_inside_is_reported() -> None:
    script = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)))
    with pytest.raises(NoRandomness, match="a script: its dropout cannot be held"):
        predict(nn.Sequential(script, nn.ReLU()), normal(3, 4).float())
    with pytest.raises(NoRandomness, match="a script: its dropout cannot be held"):
        predict(script, normal(3, 4).float())
    with pytest.warns(PartlyRandom, match=r"0 \(a script: its dropout cannot be held\)"):
        predict(nn.Sequential(script, nn.Dropout(0.5)), normal(3, 4).float(), num_draws=3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_script_without_dropout_is_a_part_like_any_other(assert_is_a_function: Any) -> None:
    for script in (torch.jit.script(linear(4, 4)), torch.jit.trace(linear(4, 4), normal(2, 4))):
        assert_is_a_function(nn.Sequential(script, nn.Dropout(0.5)), normal(5, 4))


# outputs


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (lambda h: None, "one tensor; got NoneType"),
        (lambda h: (h, None), "one tensor; got tuple"),
        (lambda h: {"out": h}, "one tensor; got dict"),
        (lambda h: h.sum(), "returns 5 rows"),
        (lambda h: h[:2], "returns 5 rows"),
    ],
)
def test_an_output_that_is_not_one_tensor_of_rows_is_refused(output: Any, error: str, unchanged: Any) -> None:
    model, x = Apply(lambda self, x: output(self.drop(x)), drop=nn.Dropout(0.5)), normal(5, 4)
    for plan in (None, "whole model"):
        with unchanged(model, x), pytest.raises((TypeError, ValueError), match=error):
            predict(model, x, num_draws=3, plan=plan)


def test_noise_that_does_not_reach_the_output_is_an_error() -> None:
    model = Apply(lambda self, x: (self.drop(x), self.last(x))[1], drop=nn.Dropout(0.5), last=linear(4, 2))
    with pytest.raises(NoRandomness, match="no noise of `model` reaches its output"):
        predict(model, normal(5, 4))


# which sites are on


def tree() -> nn.Module:
    def block() -> nn.Module:
        def forward(self: Any, x: Tensor) -> Tensor:
            return F.dropout(self.drop(self.linear(x)), 0.5, self.training)

        return Apply(forward, linear=linear(4, 4), drop=nn.Dropout(0.5))

    return Apply(lambda self, x: self.b(self.a(x)), a=block(), b=block())


@pytest.mark.parametrize(
    ("options", "on"),
    [
        ({"include": "a"}, {"a", "a.drop"}),
        ({"include": "a.drop"}, {"a.drop"}),
        ({"include": "*.drop"}, {"a.drop", "b.drop"}),
        ({"include": nn.Dropout}, {"a.drop", "b.drop"}),
        ({"exclude": nn.Dropout}, {"a", "b"}),
        ({"exclude": lambda path, module: path.startswith("b")}, {"a", "a.drop"}),
        ({"include": ["a", "b.drop"], "exclude": "a.drop"}, {"a", "b.drop"}),
    ],
    ids=["path", "one path", "pattern", "type", "not a type", "not a function", "several"],
)
def test_sites_are_chosen_by_path_pattern_type_or_function(
    options: Any, on: set[str], assert_is_a_function: Any
) -> None:
    model, x = tree(), normal(5, 4)
    draws = assert_is_a_function(model, x, **options)
    # The same functions as a model in which the others are not there at all.
    other = copy.deepcopy(model)
    for path in {"a.drop", "b.drop"} - on:
        other.get_submodule(path).p = 0.0
    for path in ("a", "b"):
        block = other.get_submodule(path)
        if path not in on:
            block.function = lambda self, x: F.dropout(self.drop(self.linear(x)), 0.0, self.training)
    torch.testing.assert_close(predict(other, x, num_draws=6).draws, draws)


@pytest.mark.parametrize("exclude", ["1", DropPath, lambda path, module: isinstance(module, DropPath)])
def test_noise_that_is_on_in_training_only_can_be_excluded(exclude: Any, assert_is_a_function: Any) -> None:
    model = nn.Sequential(linear(4, 4), DropPath(0.5), nn.Dropout(0.4), linear(4, 2))
    without = nn.Sequential(model[0], nn.Identity(), model[2], model[3])
    expected = predict(without, normal(5, 4), num_draws=6).draws
    torch.testing.assert_close(assert_is_a_function(model, normal(5, 4), exclude=exclude), expected)


def test_own_noise_that_is_excluded_is_the_same_in_every_draw(assert_is_a_function: Any) -> None:
    noisy = Apply(lambda self, x: x + torch.randn_like(x))
    model = Apply(lambda self, x: self.drop(self.noisy(x)), noisy=noisy, drop=nn.Dropout(0.4))
    draws = assert_is_a_function(model, normal(5, 4), exclude="noisy", num_draws=20)
    kept = [draws[:, i, j][draws[:, i, j] != 0] for i in range(5) for j in range(4)]
    for values in kept:
        torch.testing.assert_close(values, values[:1].expand_as(values))


# nothing is left switched


@pytest.mark.parametrize(
    "name", ["mlp", "sum_of_inputs", "residual_in_place", "batch_norm_function", "columns"]
)
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6])
def test_nothing_is_left_switched_when_a_pass_fails(name: str, at: int, unchanged: Any) -> None:
    function, own = MODELS[name]
    calls = 0

    def failing(self: Any, x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        out = function(self, x)
        if calls >= at:
            raise ZeroDivisionError("on purpose")
        return out

    model, x = Apply(failing, **{**parts(), **copy.deepcopy(own)}), normal(5, 4)
    model.drop.train(False)
    with unchanged(model, x), pytest.raises(ZeroDivisionError, match="on purpose"):
        predict(model, x, num_draws=9, plan="whole model")
    with unchanged(model, x), pytest.raises(ZeroDivisionError), FunctionDraw(model):
        model(x)


def test_draws_of_two_models_keep_their_flags_apart() -> None:
    first, second = nn.Sequential(nn.Dropout(0.5)), nn.Sequential(nn.Dropout(0.5))
    x = torch.ones(3, 20)
    with FunctionDraw(first):
        alone = first(x)
        with FunctionDraw(second, seed=1):
            torch.testing.assert_close(first(x), alone)
            assert not torch.equal(second(x), alone)
    assert first[0].training is True


def test_a_copy_made_inside_a_draw_outlives_it() -> None:
    model = nn.Sequential(nn.Dropout(0.5))
    with FunctionDraw(model):
        made = copy.deepcopy(model)
    assert not made[0].training
    assert copy.copy(made[0].training) is False
    assert torch.equal(made(torch.ones(2, 3)), torch.ones(2, 3))
    assert made.train()[0].training is True


# what is found out about a model is true of one call

RATE = 0.0


class Rate:
    def __init__(self) -> None:
        self.p = 0.0


def test_a_rate_that_changes_is_noticed_wherever_it_is_kept() -> None:
    """A model that was studied with a rate of zero, which it passes on in training mode only."""
    closure, holder, settings = [0.0], Rate(), {"rates": {"hidden": 0.0}}

    class Global(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(F.dropout(x, 1e-9), RATE if self.training else 0.0)

    def model(rate: Callable[[Any], float], **parts: Any) -> nn.Module:
        return Apply(
            lambda self, x: F.dropout(F.dropout(x, 1e-9), rate(self) if self.training else 0.0), **parts
        )

    models: dict[str, tuple[nn.Module, Callable[[nn.Module], Any]]] = {
        "attribute": (model(lambda self: self.p, p=0.0), lambda m: setattr(m, "p", 0.5)),
        "tensor": (
            model(lambda self: float(self.p), p=nn.Parameter(torch.zeros(()))),
            lambda m: nn.init.constant_(m.p, 0.5),
        ),
        "dictionary": (
            model(lambda self: self.settings["rates"]["hidden"], settings=settings),
            lambda m: settings["rates"].update(hidden=0.5),
        ),
        "object": (model(lambda self: self.holder.p, holder=holder), lambda m: setattr(holder, "p", 0.5)),
        "closure": (model(lambda self: closure[0]), lambda m: closure.__setitem__(0, 0.5)),
        "global": (Global(), lambda m: globals().__setitem__("RATE", 0.5)),
    }
    x = torch.ones(3, 20)
    for name, (net, change) in models.items():
        with torch.no_grad():
            assert not (predict(net, x, num_draws=5).draws == 0).any(), name
            change(net)
            assert (predict(net, x, num_draws=5).draws == 0).any(), name
