"""Plain networks are read, not watched: what they are at the moment of the call is what is drawn from.

The truth is the model itself, run once for each draw (plan="whole model").
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bayesdrop import NoRandomness, predict
from bayesdrop.execute import read
from bayesdrop.predict import PartlyRandom
from bayesdrop.trace import FunctionDraw, Selection

PLANS = (None, "stacked", "kept units", "loop")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def perceptron(p: float = 0.4, width: int = 12) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, width), nn.ReLU(), nn.Dropout(p), nn.Linear(width, width), nn.Tanh(), nn.Dropout(p),
        nn.Linear(width, 2),
    ).double()  # fmt: skip


def is_read(model: nn.Module, x: Any, **selection: Any) -> bool:
    with torch.no_grad():
        return read(model, x, per_row=False, selection=Selection(**selection)) is not None


def assert_is_the_model(model: nn.Module, x: Tensor, *, num_draws: int = 9, **options: Any) -> Tensor:
    """Every plan gives the draws of the model itself, as it is now."""
    truth = predict(model, x, num_draws=num_draws, plan="whole model", **options).draws
    for plan in PLANS:
        draws = predict(model, x, num_draws=num_draws, plan=plan, **options).draws
        torch.testing.assert_close(draws, truth, rtol=1e-9, atol=1e-10)
    one = predict(model, x, num_draws=1, **options).draws
    torch.testing.assert_close(one, truth[:1], rtol=1e-9, atol=1e-10)
    return truth


# what is read


SHARED = nn.Dropout(0.3)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "a perceptron": (perceptron, (5, 4)),
    "one row": (perceptron, (1, 4)),
    "noise first": (lambda: nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 3)), (5, 4)),
    "noise last": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.2)), (5, 4)),
    "noise alone": (lambda: nn.Dropout(0.2), (5, 4)),
    "noise twice": (lambda: nn.Sequential(nn.Dropout(0.2), nn.Dropout(0.5), nn.Linear(4, 3)), (5, 4)),
    "noise, then a function": (lambda: nn.Sequential(nn.Dropout(0.2), nn.ReLU(), nn.Linear(4, 3)), (5, 4)),
    "one module twice": (
        lambda: nn.Sequential(SHARED, nn.Linear(4, 4), nn.Sequential(nn.SiLU(), SHARED), nn.Linear(4, 2)),
        (5, 4),
    ),
    "no bias": (lambda: nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 3, bias=False)), (5, 4)),
    "in place": (
        lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.2, inplace=True), nn.Linear(4, 3)),
        (5, 4),
    ),
    "nested": (
        lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 6), nn.Sequential()), nn.Sequential(nn.Dropout())),
        (5, 4),
    ),
    "positions": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.2), nn.GELU(), nn.Linear(3, 2)),
        (5, 7, 4),
    ),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
            nn.Dropout(0.5), nn.Linear(16, 3),
        ).eval(),
        (3, 1, 6, 6),
    ),
    "flat after noise": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(21, 3)),
        (5, 7, 4),
    ),
    "flat already": (
        lambda: nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Identity(), nn.Linear(4, 3)),
        (5, 4),
    ),
    "functions": (
        lambda: nn.Sequential(
            nn.Dropout(0.2), nn.Linear(4, 4), nn.ELU(0.7), nn.LeakyReLU(0.2), nn.SELU(), nn.Sigmoid(),
            nn.Softplus(2.0, 5.0), nn.GELU("tanh"), nn.Dropout(0.2), nn.Linear(4, 2),
        ),
        (5, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("draws", ["shared", "independent"])
def test_plain_networks_are_read_and_give_the_draws_of_the_model(name: str, draws: str) -> None:
    build, shape = NETWORKS[name]
    model, x = build().double(), normal(*shape)
    before = x.clone()
    assert is_read(model, x)
    truth = assert_is_the_model(model, x, draws=draws)
    assert (truth != truth[:1]).any()
    assert torch.equal(x, before)


def test_batches_of_a_loader_are_read() -> None:
    model, x = perceptron(), normal(5, 4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=2)
    assert is_read(model, (x,))
    draws = predict(model, loader, num_draws=6).draws
    torch.testing.assert_close(draws, assert_is_the_model(model, x, num_draws=6), rtol=1e-9, atol=1e-10)


def test_integers_are_embedded_before_the_first_noise() -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(12, 2)).double()
    x = torch.arange(6).reshape(2, 3)
    assert is_read(model, x)
    assert_is_the_model(model, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_types_are_the_models_own(dtype: torch.dtype) -> None:
    model, x = perceptron().to(dtype), normal(5, 4).to(dtype)
    assert is_read(model, x)
    draws = predict(model, x, num_draws=3).draws
    truth = predict(model, x, num_draws=3, plan="whole model").draws
    assert draws.dtype == dtype
    # A few roundings of the largest number.
    torch.testing.assert_close(
        draws, truth, rtol=0, atol=4 * torch.finfo(dtype).eps * float(truth.abs().max())
    )


def test_sites_that_are_off_are_told_as_ever() -> None:
    model = perceptron()
    model[2].p = 0.0
    with pytest.warns(PartlyRandom, match=r"2 \(p = 0\)"):
        prediction = predict(model, normal(3, 4), num_draws=4)
    assert "1 of 2 sites are random: 5 (Dropout)" in str(prediction.plan)
    assert is_read(model, normal(3, 4))
    assert_is_the_model(model, normal(3, 4))
    with pytest.raises(NoRandomness, match="p = 0"):
        predict(perceptron(0.0), normal(3, 4))


@pytest.mark.filterwarnings("ignore::bayesdrop.predict.sampler.PartlyRandom")
def test_sites_can_be_chosen() -> None:
    model, x = perceptron(), normal(3, 4)
    first = assert_is_the_model(model, x, exclude="5")
    second = assert_is_the_model(model, x, include=lambda path, module: path == "5")
    assert is_read(model, x, exclude="5")
    assert not torch.equal(first, second)
    with pytest.raises(NoRandomness, match="excluded"):
        predict(model, x, exclude=nn.Dropout)


def test_a_reading_draws_nothing_from_the_global_generators() -> None:
    model, state = perceptron(), torch.get_rng_state()
    predict(model, normal(3, 4), num_draws=5)
    assert torch.equal(torch.get_rng_state(), state)


# nothing is kept from call to call


def _in_place(model: nn.Sequential) -> None:
    with torch.no_grad():
        model[3].weight.mul_(-2)


def _behind_the_version(model: nn.Sequential) -> None:
    model[3].weight.data.add_(1)


def _data(model: nn.Sequential) -> None:
    model[0].weight.data = normal(12, 4, seed=3)


def _parameter(model: nn.Sequential) -> None:
    model[6].weight = nn.Parameter(normal(2, 12, seed=4))


def _rate(model: nn.Sequential) -> None:
    model[5].p = 0.8


def _module(model: nn.Sequential) -> None:
    model[4] = nn.ReLU()


def _longer(model: nn.Sequential) -> None:
    model.append(nn.Dropout(0.5))


def _state(model: nn.Sequential) -> None:
    model.load_state_dict({name: value * 3 for name, value in model.state_dict().items()})


def _step(model: nn.Sequential) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    model(normal(6, 4)).square().sum().backward()
    optimiser.step()


def _hook(model: nn.Sequential) -> None:
    model[3].register_forward_hook(lambda module, args, output: output + 7)


def _pre_hook(model: nn.Sequential) -> None:
    model[6].register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def _forward(model: nn.Sequential) -> None:
    layer = model[3]
    layer.forward = lambda x: F.linear(x, layer.weight) - 1


def _parametrized(model: nn.Sequential) -> None:
    nn.utils.parametrizations.weight_norm(model[3])
    with torch.no_grad():
        model[3].parametrizations.weight.original0.mul_(3)


def _wider(model: nn.Sequential) -> None:
    model[3], model[6] = nn.Linear(12, 20).double(), nn.Linear(20, 2).double()


@pytest.mark.parametrize(
    "change",
    [
        _in_place, _behind_the_version, _data, _parameter, _rate, _module, _longer, _state, _step, _hook,
        _pre_hook, _forward, _parametrized, _wider,
    ],
)  # fmt: skip
def test_whatever_is_changed_between_calls_counts(change: Callable[[nn.Sequential], None]) -> None:
    model, x = perceptron(), normal(5, 4)
    before = assert_is_the_model(model, x)
    change(model)
    after = assert_is_the_model(model, x)
    assert not torch.allclose(before, after)


def test_training_mode_changes_nothing() -> None:
    model, x = perceptron(), normal(5, 4)
    draws = assert_is_the_model(model.eval(), x)
    assert torch.equal(assert_is_the_model(model.train(), x), draws)
    assert all(module.training is True for module in model.modules())


def test_shapes_and_types_may_change_between_calls() -> None:
    model = perceptron()
    for rows in (1, 5, 3):
        assert_is_the_model(model, normal(rows, 4))
    assert_is_the_model(model, normal(2, 3, 4))
    single = predict(model.float(), normal(5, 4).float(), num_draws=3).draws
    double = predict(model.double(), normal(5, 4), num_draws=3).draws
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)


def test_two_models_do_not_meet() -> None:
    first, second, x = perceptron(), perceptron(), normal(5, 4)
    _state(second)
    alone = predict(first, x, num_draws=5).draws
    other = predict(second, x, num_draws=5).draws
    assert torch.equal(predict(first, x, num_draws=5).draws, alone)
    assert not torch.equal(alone, other)


def test_threads_do_not_meet() -> None:
    models = [perceptron(p) for p in (0.1, 0.3, 0.5, 0.7)]
    x = normal(20, 4)
    truth = [predict(model, x, num_draws=300).draws for model in models]
    found: dict[int, list[Tensor]] = {}

    def work(which: int) -> None:
        found[which] = [predict(models[which], x, num_draws=300).draws for _ in range(5)]

    threads = [threading.Thread(target=work, args=(which,)) for which in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for which, draws in found.items():
        assert all(torch.equal(one, truth[which]) for one in draws)


def test_a_model_is_freed_after_its_prediction() -> None:
    model = perceptron()
    predict(model, normal(5, 4), num_draws=5)
    gone = [weakref.ref(model), weakref.ref(model[3].weight)]
    gc.collect()
    gc.disable()
    try:
        del model
        assert all(reference() is None for reference in gone)
    finally:
        gc.enable()


def test_the_draws_are_nobody_elses_memory() -> None:
    x = normal(4, 3)
    draws = predict(nn.Dropout(0.5), x, num_draws=1).draws
    draws.zero_()
    assert (x != 0).all()


# what is not certain is recorded


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Passing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Tagged(Tensor):
    pass


@contextmanager
def _global_hook() -> Iterator[None]:
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize(
    "around",
    [Passing, _global_hook, lambda: torch.autocast("cpu"), lambda: torch.device("cpu")],
    ids=["mode", "global hook", "autocast", "device"],
)
def test_what_is_around_a_model_is_respected(around: Callable[[], Any]) -> None:
    model, x = perceptron(), normal(5, 4)
    with around():
        assert not is_read(model, x)
    assert is_read(model, x)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(Doubled(4, 3), nn.Dropout(0.5)).double(),
        nn.Sequential(nn.Dropout(0.5), nn.Flatten(0)),
        nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5)).double().train(),
        nn.Sequential(nn.Dropout(1.0), nn.Linear(4, 2)).double(),
        nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4)).double().eval(),
        nn.Sequential(nn.Dropout(0.5), nn.AlphaDropout(0.5)),
        nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 2)).double(),
        nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)),
    ],
    ids=["subclass", "rows merged", "statistics", "all dropped", "after noise", "another", "size", "type"],
)
def test_what_is_not_known_for_certain_is_not_read(model: nn.Module) -> None:
    assert not is_read(model, normal(5, 4))


def test_inputs_of_other_kinds_are_not_read() -> None:
    model, x = perceptron(), normal(5, 4)
    assert not is_read(model, {"input": x})
    assert not is_read(model, (x, x))
    assert not is_read(model, x.as_subclass(Tagged))
    assert not is_read(model, x[:, :3])
    with torch.no_grad(), FunctionDraw(model):
        assert not is_read(model, x)


def test_another_function_in_the_place_of_torchs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = perceptron(), normal(5, 4)
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, h: torch.exp(h))
    assert not is_read(model, x)
    assert_is_the_model(model, x)


def test_errors_are_the_models_own_and_leave_nothing_behind() -> None:
    model = perceptron()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        predict(model, normal(5, 3), num_draws=4)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert_is_the_model(model, normal(5, 4))
