"""Plans are ways to the same numbers: random networks, chunks of any size, and the model as the truth."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from torch import Tensor, nn

from bayesdrop import (
    BernoulliDropout,
    DropConnect,
    GaussianDropout,
    LearnableDropout,
    MixtureDropout,
    NoRandomness,
    predict,
)
from bayesdrop.threads import thread_pool
from bayesdrop.trace import Subject, probe, recorded

PLANS = (None, "stacked", "kept units", "loop")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_plans_agree(model: nn.Module, x: Tensor, num_draws: int = 7, **options: Any) -> Tensor:
    truth = predict(model, x, num_draws=num_draws, plan="whole model", **options).draws
    for plan in PLANS:
        draws = predict(model, x, num_draws=num_draws, plan=plan, **options).draws
        torch.testing.assert_close(
            draws, truth, rtol=1e-9, atol=1e-10, msg=lambda t, plan=plan: f"{plan}: {t}"
        )
    return truth


# random architectures

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu in place": lambda: nn.ReLU(inplace=True),
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "elu in place": lambda: nn.ELU(inplace=True),
    "leaky in place": lambda: nn.LeakyReLU(0.1, inplace=True),
    "softplus": nn.Softplus,
    "prelu": nn.PReLU,
    "none": nn.Identity,
    "softmax": lambda: nn.Softmax(1),
}
DROPOUTS: dict[str, Callable[[float], nn.Module]] = {
    "none": lambda p: nn.Identity(),
    "Dropout": nn.Dropout,
    "Dropout in place": lambda p: nn.Dropout(p, inplace=True),
    "AlphaDropout": nn.AlphaDropout,
    "FeatureAlphaDropout": nn.FeatureAlphaDropout,
}
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "plain": lambda layer, p: layer,
    "bernoulli": lambda layer, p: BernoulliDropout(layer, p=p),
    "bernoulli with bias": lambda layer, p: BernoulliDropout(layer, p=p, bias_p=p),
    "gaussian": lambda layer, p: GaussianDropout(layer, p=p),
    "dropconnect": lambda layer, p: DropConnect(layer, p=p),
    "mixture": lambda layer, p: MixtureDropout(layer, p=p, sigma=0.1),
}


class Skip(nn.Module):
    """inner(x) joined to x in one of several ways."""

    def __init__(self, inner: nn.Module, join: str) -> None:
        super().__init__()
        self.inner = inner
        self.join = join

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x)
        if self.join == "add":
            return x + h
        if self.join == "add in place":
            h += x
            return h
        if self.join == "multiply":
            return x * torch.sigmoid(h)
        if self.join == "twice":
            return self.inner(h) + x
        if self.join == "write":
            out = torch.zeros_like(h)
            out[:, ::2] = h[:, ::2]
            out[:, 1::2] = x[:, 1::2]
            return out
        left, right = h.chunk(2, 1)
        return torch.cat([right, left], 1)


@st.composite
def networks(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    """A network of blocks that keep the shape, and the shape of one row."""
    images = draw(st.booleans())
    width = draw(st.sampled_from([2, 4, 6]))
    row = (width, 3, 3) if images else (width,)

    def block() -> nn.Module:
        make = (
            (lambda: nn.Conv2d(width, width, 3, padding=1)) if images else (lambda: nn.Linear(width, width))
        )
        p = draw(st.sampled_from([0.1, 0.5, 0.9]))
        kinds = dict(DROPOUTS)
        if images:
            kinds["Dropout2d"] = nn.Dropout2d
        parts = [
            draw(st.sampled_from(sorted(kinds.items())))[1](p),
            LAYERS[draw(st.sampled_from(sorted(LAYERS)))](make(), p),
            (nn.BatchNorm2d if images else nn.BatchNorm1d)(width) if draw(st.booleans()) else nn.Identity(),
            ACTIVATIONS[draw(st.sampled_from(sorted(ACTIVATIONS)))](),
        ]
        inner = nn.Sequential(*draw(st.permutations(parts)))
        join = draw(st.sampled_from(["no", "add", "add in place", "multiply", "twice", "write", "halves"]))
        return inner if join == "no" else Skip(inner, join)

    blocks = [block() for _ in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        blocks.append(blocks[0])  # one block at two places
    # Some noise there must be, after which something is computed.
    blocks += [nn.Dropout(0.4), nn.Flatten(), nn.Linear(torch.Size(row).numel(), 2)]
    return nn.Sequential(*blocks).double(), row


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(network=networks(), rows=st.sampled_from([1, 2, 4, 6, 30]), per_row=st.booleans())
def test_every_plan_gives_the_draws_of_a_random_network(
    network: tuple[nn.Module, tuple[int, ...]], rows: int, per_row: bool
) -> None:
    model, row = network
    x = normal(rows, *row)
    truth = assert_plans_agree(model, x, draws="independent" if per_row else "shared")
    if not per_row:
        small = predict(model, x, num_draws=7, batch_size=3).draws
        torch.testing.assert_close(small, truth, rtol=1e-9, atol=1e-10)


# random programs: views, changes in place, constants and noise, in any order

STEPS: dict[str, Callable[[Any, list[Tensor], Tensor, Tensor], Any]] = {
    "copy": lambda m, v, a, b: v.append(a.clone()),
    "view": lambda m, v, a, b: v.append(a[:, :]),
    "turned view": lambda m, v, a, b: v.append(a.t().t()),
    "detached": lambda m, v, a, b: v.append(a.detach()),
    "data": lambda m, v, a, b: v.append(a.data),
    "reshaped": lambda m, v, a, b: v.append(a.reshape(-1).view(-1, 4)),
    "add in place": lambda m, v, a, b: a.add_(b),
    "multiply in place": lambda m, v, a, b: a.mul_(1.5),
    "square in place": lambda m, v, a, b: a.mul_(a),
    "clamp in place": lambda m, v, a, b: a.clamp_(-1, 1),
    "copy in place": lambda m, v, a, b: a.copy_(b),
    "fill in place": lambda m, v, a, b: a.masked_fill_(b > 0.5, 0.1),
    "part in place": lambda m, v, a, b: a.narrow(1, 1, 2).add_(1),
    "chunk in place": lambda m, v, a, b: a.chunk(2, 1)[0].mul_(2),
    "data in place": lambda m, v, a, b: a.data.add_(1),
    "column": lambda m, v, a, b: a.__setitem__((slice(None), 1), b[:, 2]),
    "columns": lambda m, v, a, b: a.__setitem__((slice(None), slice(2)), b[:, 2:]),
    "new column": lambda m, v, a, b: v.append(torch.zeros_like(a)) or v[-1].__setitem__((..., 0), b[:, 1]),
    "activation in place": lambda m, v, a, b: v.append(F.leaky_relu(a, 0.2, True)),
    "activation": lambda m, v, a, b: v.append(torch.tanh(a)),
    "drop": lambda m, v, a, b: v.append(m.drop(a)),
    "drop in place": lambda m, v, a, b: m.drop_in_place(a),
    "drop function": lambda m, v, a, b: v.append(F.dropout(a, 0.3, m.training, inplace=True)),
    "linear": lambda m, v, a, b: v.append(m.linear(a)),
    "join": lambda m, v, a, b: v.append(torch.cat([a[:, :2], b[:, 2:]], 1)),
    "choose": lambda m, v, a, b: v.append(torch.where(a > 0, a, b)),
    "stretch": lambda m, v, a, b: v.append(a[:, :1].expand(-1, 4)),
    "out": lambda m, v, a, b: v.append(torch.add(a, b, out=torch.empty_like(a))),
    "own noise": lambda m, v, a, b: v.append(a + torch.rand_like(b)),
    "read": lambda m, v, a, b: v.append(a * float((b[0] > 0).sum() % 2)),
    "buffer": lambda m, v, a, b: v.append(a + m.buffer.add_(1)),
}


class Program(nn.Module):
    def __init__(self, steps: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.steps = steps
        self.linear = nn.Linear(4, 4, dtype=torch.float64)
        self.drop, self.drop_in_place = nn.Dropout(0.4), nn.Dropout(0.4, inplace=True)
        self.buffer = nn.Buffer(normal(4))

    def forward(self, x: Tensor) -> Tensor:
        values = [self.linear(x), x]
        for name, first, second in self.steps:
            STEPS[name](self, values, values[first % len(values)], values[second % len(values)])
        return torch.stack(values[-3:]).sum(0)


def outcome(model: nn.Module, x: Tensor, plan: Any) -> Tensor | str:
    """Draws, or why there are none: torch refuses to change a stretched tensor in place."""
    try:
        return predict(model, x, num_draws=4, plan=plan).draws
    except NoRandomness:
        return "no noise"
    except RuntimeError as error:
        return str(error)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), max_size=9
    ),
    at=st.integers(0, 3),
    which=st.integers(0, 9),
)
def test_every_plan_gives_the_draws_of_a_random_program(
    steps: list[tuple[str, int, int]], at: int, which: int
) -> None:
    model, x = Program([*steps[:at], ("drop function", which, 0), *steps[at:]]), normal(3, 4)
    before, buffer = x.clone(), model.buffer.clone()
    truth = outcome(model, x, "whole model")
    for plan in PLANS:
        found = outcome(model, x, plan)
        if isinstance(found, str) and found == "no noise" and isinstance(truth, Tensor):
            assert (truth == truth[:1]).all()
        elif isinstance(truth, Tensor):
            torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-10, equal_nan=True)
        else:
            assert found == truth
    assert torch.equal(x, before)
    assert torch.equal(model.buffer, buffer)


# chunks


def perceptron(p: float = 0.5, width: int = 40) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, width), nn.ReLU(), nn.Dropout(p), nn.Linear(width, width), nn.ReLU(), nn.Dropout(p),
        nn.Linear(width, 2),
    ).double()  # fmt: skip


def attention() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 6, dropout=0.3, batch_first=True).double()


@pytest.mark.parametrize("limit", [1, 3000, 40_000, 10**9])
def test_chunks_of_any_size_give_the_same_numbers(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("bayesdrop.execute.plan"), "CACHE_BYTES", limit)
    assert_plans_agree(perceptron(), normal(30, 4), num_draws=70)
    assert_plans_agree(attention(), normal(3, 4, 8), num_draws=12)


@pytest.mark.parametrize("limit", [1, 10_000])
def test_a_memory_limit_changes_no_number(limit: int) -> None:
    model = attention()
    truth = predict(model, normal(3, 4, 8), num_draws=12, plan="whole model").draws
    draws = predict(model, normal(3, 4, 8), num_draws=12, plan="stacked", max_memory=limit).draws
    torch.testing.assert_close(draws, truth, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
def test_kept_units_survive_a_unit_that_the_first_chunk_never_keeps(p: float) -> None:
    assert_plans_agree(perceptron(p, 100), normal(50, 4), num_draws=200)


def test_folding_does_not_read_past_a_change_in_place() -> None:
    class Changed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.drop = nn.Linear(4, 6), nn.Linear(6, 3), nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.drop(self.first(x)))
            z = self.drop(h)
            h[:, 0] = 1
            h.add_(1)
            return self.last(z) + h[:, :3]

    assert_plans_agree(Changed().double(), normal(40, 4))


# which plan


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.LSTM(4, 5, 2, dropout=0.3, batch_first=True).double()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.network(x)[0]
        return out


@pytest.mark.parametrize(
    ("model", "x", "way"),
    [
        (perceptron(), normal(5, 4), "stacked"),
        (nn.Sequential(*perceptron(0.5, 600)), normal(400, 4), "kept units"),
        (
            nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True), nn.Dropout(0.5)).double(),
            normal(5, 4),
            "stacked",
        ),
        (attention(), normal(2, 3, 8), "stacked"),
        (
            nn.Sequential(
                nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout2d(0.5)
            ).double(),
            normal(2, 1, 5, 5),
            "stacked",
        ),
        (
            nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4), nn.LayerNorm(5), nn.InstanceNorm1d(4)).double(),
            normal(2, 4, 5),
            "stacked",
        ),
        (
            nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(12, 2)),
            torch.arange(6).reshape(2, 3),
            "stacked",
        ),
        (Recurrent(), normal(2, 3, 4), "loop"),
    ],
    ids=["small", "large", "in place", "attention", "images", "norms", "embedding", "recurrent"],
)
def test_common_networks_are_not_run_whole(model: nn.Module, x: Tensor, way: str) -> None:
    assert str(predict(model, x, num_draws=20).plan).startswith(way)


def convolutions(channels: int) -> nn.Module:
    """Not a chain of linear maps: run from a record, draw by draw or several at a time."""
    return nn.Sequential(
        nn.Dropout2d(0.2), nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
        nn.Dropout2d(0.2), nn.Conv2d(channels, channels, 3, padding=1), nn.Flatten(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("channels", "side", "plan"),
    [
        # Arithmetic for microseconds a draw: calls from Python would cost more.
        (4, 6, "stacked, 20 draws at a time"),
        # As little arithmetic an element, and more elements than stay in cache together.
        (1, 64, "stacked, 16 draws at a time"),
        # Arithmetic for milliseconds a draw: a call costs nothing beside it.
        (32, 24, "loop"),
    ],
)
def test_small_draws_are_stacked_as_the_cache_allows_and_large_ones_are_not(
    channels: int, side: int, plan: str
) -> None:
    found = predict(convolutions(channels), torch.randn(4, channels, side, side), num_draws=20).plan
    assert str(found).startswith(plan)


@pytest.mark.parametrize(
    ("p", "rows", "inputs", "width", "way"),
    [
        (0.5, 300, 400, 400, "kept units"),
        # Of the first map only what is dropped is computed, draw by draw.
        (0.01, 300, 400, 400, "kept units"),
        # Little is dropped, or there is little to drop: gathering would cost more than it saves.
        (0.01, 300, 4, 400, "stacked"),
        (0.5, 1, 400, 400, "stacked"),
        (0.5, 300, 8, 8, "stacked"),
    ],
)
def test_units_are_left_out_where_that_saves_more_than_it_costs(
    p: float, rows: int, inputs: int, width: int, way: str
) -> None:
    net = nn.Sequential(
        nn.Dropout(p), nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(p), nn.Linear(width, width)
    )
    assert str(predict(net, torch.randn(rows, inputs), num_draws=20).plan).startswith(way)


@pytest.mark.parametrize("p", [0.02, 0.1, 0.35, 0.5, 0.9])
@pytest.mark.parametrize("bias", [True, False])
def test_the_first_map_is_the_same_from_what_is_kept_and_from_what_is_dropped(p: float, bias: bool) -> None:
    first = BernoulliDropout(nn.Linear(30, 20, bias=bias), p=p)
    net = nn.Sequential(first, nn.Tanh(), nn.Dropout(0.3), nn.Linear(20, 5), nn.Tanh(), nn.Linear(5, 2))
    assert_plans_agree(net.double(), normal(9, 30), 70)


def test_units_with_rates_of_their_own_are_taken_off_with_scales_of_their_own() -> None:
    first = LearnableDropout(nn.Linear(30, 20), p_init=0.1)
    with torch.no_grad():
        first.logit_p.copy_(torch.linspace(-6, -1, 30))
    net = nn.Sequential(first, nn.ReLU(), nn.Dropout(0.3), nn.Linear(20, 2))
    assert_plans_agree(net.double(), normal(9, 30), 70)


def test_a_column_that_outweighs_the_others_costs_no_digits_where_it_is_dropped() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Dropout(0.1), nn.Linear(300, 200), nn.Tanh(), nn.Dropout(0.1), nn.Linear(200, 3))
    x = torch.randn(40, 300)
    x[7, 5] = 1e9
    truth = predict(net, x, num_draws=60, plan="whole model").draws
    draws = predict(net, x, num_draws=60, plan="kept units").draws
    torch.testing.assert_close(draws, truth, rtol=1e-4, atol=1e-5)


def test_threads_of_our_own_change_no_draw_and_leave_torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayesdrop.execute.plan._THREADS", 0.0)
    started: list[int] = []

    def counted(workers: int) -> Any:
        started.append(workers)
        return thread_pool(workers)

    monkeypatch.setattr("bayesdrop.execute.plan.thread_pool", counted)
    before = torch.get_num_threads()
    net, x = perceptron(), normal(9, 4)
    try:
        for way in ("kept units", "stacked"):
            torch.set_num_threads(1)
            alone = predict(net, x, num_draws=70, plan=way)
            assert not started
            torch.set_num_threads(3)
            shared = predict(net, x, num_draws=70, plan=way)
            assert started == [3]
            assert torch.get_num_threads() == 3
            torch.testing.assert_close(shared.draws, alone.draws, rtol=1e-9, atol=1e-10)
            with torch.autocast("cpu"):
                predict(net, x, num_draws=70, plan=way)
            assert started == [3]
            started.clear()
    finally:
        torch.set_num_threads(before)


def test_the_part_before_the_first_noise_runs_once() -> None:
    calls = 0

    class Counted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return super().forward(x)

    model = nn.Sequential(Counted(4, 6), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(6, 2)).double()
    predict(model, normal(5, 4), num_draws=3)
    few = calls  # with the passes that study the model, in every call
    predict(model, normal(5, 4), num_draws=300)
    assert calls == 2 * few


# what a recording says of a pass that it cannot repeat


class Last(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.drop(x))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda h: h * h.sum().item(), "item reads or stores"),
        (lambda h: h if h.sum() > 0 else -h, "__bool__ reads or stores"),
        (lambda h: torch.add(h, 1, out=torch.empty_like(h)), "reads or stores"),
        (lambda h: h[:, : (h != 0).sum()], "where a tensor is cut"),
        (lambda h: h * torch.from_numpy(np.ones(4)), "no function was seen to make"),
        (lambda h: h * torch.randperm(4), "randperm, which no draw can hold"),
        (lambda h: torch.ones(3, 4), "does not depend on any noise"),
        (lambda h: h * float(h.norm()), "__float__ reads or stores"),
        (lambda h: h * (torch.zeros(4).equal(h[0])), "equal reads or stores"),
    ],
)
def test_a_pass_that_cannot_be_repeated_says_why(function: Callable[[Tensor], Tensor], why: str) -> None:
    model, x = Last(function), normal(3, 4)
    subject, inputs = Subject(model), ((x,), {})
    with torch.no_grad():
        _, recorder, output = recorded(subject, inputs, findings=probe(subject, inputs))
    assert recorder.tape(output) is None
    assert why in str(recorder.broken)


def test_a_draw_of_another_shape_falls_back_to_the_model() -> None:
    def kept_units(h: Tensor) -> Tensor:
        chosen = h[:, (h[0] != 0)]
        return h + chosen.sum(1, keepdim=True) / max(1, chosen.shape[1])

    model, x = Last(kept_units), normal(5, 6)
    truth = predict(model, x, num_draws=30, plan="whole model").draws
    prediction = predict(model, x, num_draws=30)
    torch.testing.assert_close(prediction.draws, truth)
    assert "does not fit the recording" in str(prediction.plan)


def test_an_error_of_the_model_is_the_models_own() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.5) @ torch.zeros(3, 3)

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        predict(Failing(), torch.zeros(2, 4))
