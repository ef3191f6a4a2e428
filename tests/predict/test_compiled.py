"""A compiled model gives the draws of predict, for any inputs, and never those of another model."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import NoRandomness


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 8),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(8, 6),
        nn.Tanh(),
        nn.Dropout(0.5),
        nn.Linear(6, 2),
    )


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(4, 4), nn.Linear(4, 2), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = x + self.drop(torch.relu(self.a(x)))
        return self.b(h * x.sigmoid())


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.4))
        self.head = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(9 * 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.reshape(-1, 1, 8, 8)))  # type: ignore[no-any-return]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(4, 3), nn.Linear(2, 3), nn.Dropout(0.5)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"sum": self.drop(self.a(x)) + self.b(y), "other": x}


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def without_biases() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3, bias=False), nn.Dropout(0.5), nn.Linear(3, 1, bias=False))


def own_layers() -> nn.Module:
    first, second = bd.ConcreteDropout(nn.Linear(4, 6), 0.3), bd.DropConnect(nn.Linear(6, 2), 0.4)
    return nn.Sequential(first, nn.ReLU(), second)


def random_weights() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), bd.VariationalGaussianDropout(nn.Linear(6, 2)))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (perceptron, (4,)),
    "noise on the input": (lambda: nn.Sequential(nn.Dropout(0.2), perceptron()), (4,)),
    "without biases": (without_biases, (4,)),
    "residual": (Residual, (4,)),
    "images": (Images, (64,)),
    "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True), (5, 4)),
    "own layers": (own_layers, (4,)),
    "weights": (random_weights, (4,)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_draws_are_those_of_predict(name: str) -> None:
    make, shape = MODELS[name]
    model = make().eval()
    ask = bd.compile(model, normal(3, *shape), num_draws=7, seed=5)
    for rows in (3, 1, 6, 3):
        x = normal(rows, *shape)
        expected = bd.predict(model, x, num_draws=7, seed=5, keep_draws=True)
        torch.testing.assert_close(ask.draws(x), expected.draws, rtol=1e-4, atol=1e-5)
        found = ask(x)
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.epistemic, expected.epistemic, rtol=1e-3, atol=1e-5)


def test_likelihoods_arrays_and_several_inputs() -> None:
    model, x = perceptron(), normal(5, 4)
    ask = bd.compile(model, x.numpy(), num_draws=9, likelihood=bd.Categorical())
    expected = bd.predict(model, x, num_draws=9, likelihood=bd.Categorical())
    torch.testing.assert_close(ask(x.numpy()).mutual_information, expected.mutual_information)
    two = Two()
    both = {"x": normal(3, 4), "y": normal(3, 2)}
    ask = bd.compile(two, both, num_draws=9, output="sum")
    torch.testing.assert_close(ask(both).mean, bd.predict(two, both, num_draws=9, output="sum").mean)
    torch.testing.assert_close(ask(tuple(both.values())).mean, ask(both).mean)


def test_it_is_the_model_as_it_was() -> None:
    model, x = perceptron(), normal(5, 4)
    ask = bd.compile(model, x, num_draws=9)
    before = ask(x).mean
    with torch.no_grad():
        model[0].weight.data.add_(1.0)  # type: ignore[union-attr,operator,index]
    model.train()
    torch.testing.assert_close(ask(x).mean, before)
    torch.testing.assert_close(ask(normal(2, 4)).mean.shape, torch.Size([2, 2]))
    again = bd.compile(model, x, num_draws=9)
    torch.testing.assert_close(again(x).mean, bd.predict(model, x, num_draws=9).mean)
    assert not torch.allclose(again(x).mean, before)


def test_the_answers_are_the_callers() -> None:
    ask, x = bd.compile(perceptron(), normal(5, 4), num_draws=9), normal(5, 4)
    first = ask.draws(x)
    kept = first.clone()
    ask.draws(-x)
    assert torch.equal(first, kept)
    first.zero_()
    assert torch.equal(ask.draws(x), kept)


def test_excluded_sites_stay_off() -> None:
    model, x = perceptron(), normal(5, 4)
    with pytest.warns(bd.PartlyRandom, match="excluded"):
        ask = bd.compile(model, x, num_draws=9, exclude="5")
    with pytest.warns(bd.PartlyRandom, match="excluded"):
        bd.predict(model, x, num_draws=9, exclude="5")
    torch.testing.assert_close(ask(x).epistemic, bd.predict(model, x, num_draws=9, exclude="5").epistemic)


class ByValue(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.dropout(x, 0.5)
        return h * 2 if float(x.sum()) > 0 else h


class Chosen(nn.Module):
    """The shape of what is summed depends on values, and nothing in Python asks for it."""

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.dropout(x, 0.5)
        return h + x[x > 0].sum()


class Sampling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5) * torch.randperm(4)


@pytest.mark.filterwarnings("ignore::bayesdrop.PartlyRandom")
@pytest.mark.parametrize(
    ("model", "why"),
    [(ByValue(), "__bool__|__float__"), (Sampling(), "randperm"), (nn.Linear(4, 2), "stochastic")],
)
def test_what_cannot_be_compiled_is_refused(model: nn.Module, why: str) -> None:
    with pytest.raises((ValueError, NoRandomness), match=why):
        bd.compile(model, normal(3, 4))


def test_shapes_that_depend_on_values_fall_back_to_the_model() -> None:
    model = Chosen()
    ask = bd.compile(model, torch.ones(3, 4), num_draws=5)
    x = torch.tensor([[1.0, -1.0, 2.0, -3.0]] * 3)
    found, expected = ask(x), bd.predict(model, x, num_draws=5)
    torch.testing.assert_close(found.draws, expected.draws)
    assert "does not fit the recording" in found.plan


@pytest.mark.filterwarnings("ignore::bayesdrop.PartlyRandom")
def test_what_is_excluded_stays_off_where_the_model_itself_is_run() -> None:
    model = nn.Sequential(Chosen(), nn.Dropout(0.5))
    ask = bd.compile(model, torch.ones(3, 4), num_draws=5, exclude="1")
    x = torch.tensor([[1.0, -1.0, 2.0, -3.0]] * 3)
    torch.testing.assert_close(ask(x).draws, bd.predict(model, x, num_draws=5, exclude="1").draws)


def test_bad_inputs_have_clear_errors() -> None:
    ask = bd.compile(perceptron(), normal(3, 4), num_draws=3)
    wrong: list[tuple[Any, str]] = [
        ([1.0], "`x` must be"),
        (torch.zeros(0, 4), "at least one row"),
        ("a", "`x` must"),
    ]
    for x, words in wrong:
        with pytest.raises((TypeError, ValueError), match=words):
            ask(x)
    with pytest.raises(RuntimeError):
        ask(normal(3, 5))
    assert ask(normal(3, 4)).num_draws == 3  # nothing is broken by that
    for bad in ({"num_draws": 0}, {"seed": 1.5}, {"likelihood": 3}, {"exclude": "nothing"}, {"output": 1.5}):
        options: dict[str, Any] = bad
        with pytest.raises((TypeError, ValueError), match=next(iter(bad))):
            bd.compile(perceptron(), normal(3, 4), **options)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(2, 2), nn.Dropout(0.5)

    def forward(self, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
        out: Tensor = self.drop(self.linear(a) - b) * scale
        return out


def test_the_order_of_keywords_and_numbers_among_the_inputs_belong_to_their_kind() -> None:
    model, a, b = Scaled(), normal(3, 2), 7 + normal(3, 2)
    compiled = bd.compile(model, {"a": a, "b": b, "scale": 1.0}, num_draws=5)
    for x in ({"b": b, "a": a, "scale": 1.0}, {"a": a, "b": b, "scale": 3.0}, {"a": a, "b": b}):
        expected = bd.predict(model, x, num_draws=5).mean
        torch.testing.assert_close(compiled(x).mean, expected)


def test_errors_about_the_output_name_compile() -> None:
    with pytest.raises(ValueError, match=r"compile: `output` must be None or a function"):
        bd.compile(perceptron(), normal(3, 4), output="logits")


def test_another_thread_may_remove_a_kind_meanwhile() -> None:
    class Forgetful(OrderedDict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            return self.pop(key, default)

    model = perceptron()
    compiled = bd.compile(model, normal(3, 4), num_draws=5)
    compiled._kinds = Forgetful(compiled._kinds)
    expected = bd.predict(model, normal(3, 4), num_draws=5).mean
    torch.testing.assert_close(compiled(normal(3, 4)).mean, expected, atol=1e-5, rtol=1e-5)


def test_many_shapes_and_threads() -> None:
    model = perceptron()
    ask = bd.compile(model, normal(3, 4), num_draws=5)
    expected = {rows: bd.predict(model, normal(rows, 4), num_draws=5).mean for rows in range(1, 25)}
    failures: list[int] = []

    def work() -> None:
        for rows in range(1, 25):
            if not torch.allclose(ask(normal(rows, 4)).mean, expected[rows], atol=1e-5):
                failures.append(rows)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
