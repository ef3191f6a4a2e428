"""predict from many threads on one model: right, and nothing is left behind."""

from __future__ import annotations

import asyncio
import copy
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop import FunctionDraw, NegativeELBO, convert, fit, predict
from bayesdrop.likelihoods import Gaussian

THREADS, CALLS = 8, 12


class Own(nn.Module):
    """Keeps state, passes a rate in training mode only, and calls dropout as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 2)
        self.kept: Tensor | None = None
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.kept = F.dropout(self.first(x).relu(), 0.3 if self.training else 0.0, self.training)
        return self.last(F.dropout(self.kept, 0.2, self.training))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.last = nn.LSTM(6, 8, 2, dropout=0.3, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.recurrent(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(6, 2, 12, dropout=0.2, batch_first=True)
        self.last = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.encoder(x).mean(1))


class Closure(nn.Module):
    """A function that holds the modules themselves: no copy can stand for this model."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.last = nn.Dropout(0.4), nn.Linear(6, 2)
        drop, last = self.drop, self.last
        self.function = lambda x: last(drop(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8), nn.Dropout1d(0.3), nn.Conv1d(8, 2, 3), nn.BatchNorm1d(2)
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "sequential": (plain, (5, 6)),
    "own": (Own, (5, 6)),
    "lstm": (Recurrent, (5, 7, 6)),
    "attention": (Attention, (5, 7, 6)),
    "convolution": (convolution, (3, 4, 9)),
    "closure": (Closure, (5, 6)),
}


@pytest.fixture(autouse=True)
def _threads_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run_together(work: Callable[[int], None], count: int = THREADS) -> None:
    """Run in threads; the first exception is raised here."""
    errors: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _state(model: nn.Module) -> Any:
    return (
        [
            (type(m.training), m.training, len(m._forward_hooks), len(m._forward_pre_hooks))
            for m in model.modules()
        ],
        {name: tensor.clone() for name, tensor in model.state_dict().items()},
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [False, True])
def test_threads_get_the_draws_of_one_thread_and_leave_the_model_alone(name: str, training: bool) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make().train(training), torch.randn(shape)
    alone = [predict(model, x, num_draws=5, seed=seed).draws for seed in range(3)]
    flags, tensors = _state(model)
    numbers: list[float] = []

    def work(index: int) -> None:
        for call in range(CALLS):
            seed = (index + call) % 3
            draws = predict(model, x, num_draws=5, seed=seed).draws
            torch.testing.assert_close(draws, alone[seed])
            numbers.append(float(torch.rand((), dtype=torch.float64)))

    run_together(work)
    after_flags, after_tensors = _state(model)
    assert after_flags == flags
    assert all(torch.equal(after_tensors[key], tensors[key]) for key in tensors)
    # The global generator was not moved by any of this, but by the numbers that were asked for.
    assert len(set(numbers)) == THREADS * CALLS


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("closure", "own")])
def test_a_plain_pass_in_another_thread_is_a_plain_pass(name: str) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model, x = make().eval(), torch.randn(shape)
    with torch.no_grad():
        expected = model(x)
    drawn = predict(model, x, num_draws=4).draws

    def work(index: int) -> None:
        for _ in range(CALLS):
            if index % 2:
                torch.testing.assert_close(predict(model, x, num_draws=4).draws, drawn)
            else:
                # As people write it: the flags are set, the model is run.
                with torch.no_grad():
                    torch.testing.assert_close(model.eval()(x), expected)
                assert model.training is False

    run_together(work)


def test_a_draw_by_hand_waits_for_the_one_that_is_open() -> None:
    torch.manual_seed(0)
    model, x = Own().eval(), torch.randn(4, 6)

    def drawn(index: int) -> Tensor:
        with torch.no_grad(), FunctionDraw(model, index=index):
            return model(x)

    expected = [drawn(index) for index in range(THREADS)]
    predicted = predict(model, x, num_draws=3).draws

    def work(index: int) -> None:
        for _ in range(CALLS):
            torch.testing.assert_close(drawn(index), expected[index])
            torch.testing.assert_close(predict(model, x, num_draws=3).draws, predicted)

    run_together(work)
    assert all(type(module.training) is bool for module in model.modules())


def test_a_draw_that_another_task_of_the_thread_holds_is_not_waited_for() -> None:
    model, x = Own().eval(), torch.randn(4, 6)

    async def hold(ready: asyncio.Event, leave: asyncio.Event) -> None:
        with FunctionDraw(model):
            ready.set()
            await leave.wait()

    async def run() -> None:
        ready, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(hold(ready, leave))
        await ready.wait()
        with pytest.raises(RuntimeError, match="open in another task of this thread"), FunctionDraw(model):
            pass
        # A private copy needs no turn, and the open draw does not see it.
        assert predict(model, x, num_draws=3).num_draws == 3
        leave.set()
        await task

    asyncio.run(run())


def test_draws_that_are_left_out_of_order_say_so() -> None:
    first, second = FunctionDraw(plain()), FunctionDraw(plain())
    first.__enter__()
    second.__enter__()
    with pytest.raises(RuntimeError, match="the last first"):
        first.__exit__(None, None, None)
    while torch.overrides._get_current_function_mode_stack():
        torch.overrides._pop_mode()


def test_training_in_threads_is_reproducible() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, 6, generator=generator)
    y = x[:, :2].sin()
    torch.manual_seed(0)
    start = {kind: convert(plain(), kind) for kind in ("bernoulli", "concrete", "learnable", "gaussian")}

    def trained(kind: str) -> Tensor:
        model = copy.deepcopy(start[kind])
        objective = NegativeELBO(Gaussian(), num_data=60)
        fit(model, (x, y), objective, epochs=3, batch_size=16, validation=(x, y), seed=4, progress=False)
        return nn.utils.parameters_to_vector(model.parameters()).detach()

    state = torch.get_rng_state()
    alone = {kind: trained(kind) for kind in start}
    kinds = list(start)

    def work(index: int) -> None:
        for turn in range(2):
            kind = kinds[(index + turn) % 4]
            assert torch.equal(trained(kind), alone[kind]), kind

    run_together(work, 4)
    assert torch.equal(torch.get_rng_state(), state)
