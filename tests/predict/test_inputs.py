"""What goes into predict, and which part of what a model returns comes out."""

from __future__ import annotations

import os
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bayesdrop import Categorical, FunctionDraw, Gaussian, NoRandomness, NotFinite, audit, predict

X = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
Y = torch.randn(7, 2, generator=torch.Generator().manual_seed(1))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


class Masked(nn.Module):
    """Takes a second input if it is given one."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        out: Tensor = self.net(x)
        return out if mask is None else out * mask


# pairs


def test_the_targets_of_a_loader_never_reach_the_model() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=3)
    expected = predict(network(), X, num_draws=5, likelihood=Gaussian(0.5), targets=Y)
    found = predict(network(), loader, num_draws=5, likelihood=Gaussian(0.5))
    torch.testing.assert_close(found.mean, expected.mean)
    # They are scored, as targets are.
    lean = predict(network(), loader, num_draws=5, likelihood=Gaussian(0.5), keep_draws=False)
    torch.testing.assert_close(lean.log_prob(Y), expected.log_prob(Y))
    torch.testing.assert_close(
        predict(network(), loader, num_draws=5).mean, predict(network(), X, num_draws=5).mean
    )


def test_a_pair_that_may_be_two_inputs_is_asked_about() -> None:
    model, loader = Masked(), DataLoader(TensorDataset(X, Y), batch_size=3)
    for call in (lambda: predict(model, loader, num_draws=3), lambda: audit(model, loader)):
        with pytest.raises(
            TypeError, match=r"2 parts, and Masked\.forward takes more than one input.*items="
        ):
            call()
    pairs = predict(model, loader, num_draws=3, items="pairs").draws
    torch.testing.assert_close(pairs, predict(model, X, num_draws=3).draws)
    inputs = predict(model, loader, num_draws=3, items="inputs").draws
    torch.testing.assert_close(inputs, predict(model, (X, Y), num_draws=3).draws)
    # Many inputs and targets can be told apart.
    nested = [((X, Y), torch.zeros(7))]
    torch.testing.assert_close(predict(model, nested, num_draws=3).draws, inputs)


def test_a_batch_that_is_no_pair_is_refused_as_one() -> None:
    triples = DataLoader(TensorDataset(X, Y, Y), batch_size=3)
    with pytest.raises(TypeError, match="batches that are pairs"):
        predict(network(), triples, items="pairs")
    with pytest.raises(TypeError, match="3 parts"):
        predict(network(), triples)
    with pytest.raises(ValueError, match="`items` must be 'pairs', 'inputs' or None"):
        predict(network(), X, items="both")
    with pytest.raises(ValueError, match="`targets` must be None where batches"):
        predict(network(), DataLoader(TensorDataset(X, Y)), likelihood=Gaussian(1.0), targets=Y)
    with pytest.raises(ValueError, match="pairs with 7 rows of y"):
        predict(network(), [(X, Y[:3])], likelihood=Gaussian(1.0))


# arrays


def test_arrays_take_the_models_precision() -> None:
    expected = predict(network(), X, num_draws=4)
    for array in (X.numpy(), X.double().numpy(), X.numpy()[::-1][::-1], X.numpy().astype(">f4")):
        torch.testing.assert_close(predict(network(), array, num_draws=4).mean, expected.mean)
    batches = [X.numpy()[:3], X.numpy()[3:]]
    torch.testing.assert_close(predict(network(), batches, num_draws=4).mean, expected.mean)
    named = predict(Masked(), {"x": X.numpy(), "mask": Y.double().numpy()}, num_draws=4, batch_size=2)
    torch.testing.assert_close(named.mean, predict(Masked(), (X, Y), num_draws=4).mean)
    scored = predict(network(), X, num_draws=4, likelihood=Gaussian(1.0), targets=Y.numpy())
    assert scored.log_prob(Y).shape == (7,)


def test_what_is_no_batch_is_refused() -> None:
    class Frame:
        def __iter__(self) -> Any:
            return iter("ab")

        def to_numpy(self) -> Any:
            return X.numpy()

    with pytest.raises(TypeError, match=r"got Frame\. Pass its `to_numpy\(\)`"):
        predict(network(), Frame())
    for bad in ("text", [[1.0, 2.0]], [None], [()]):
        with pytest.raises(TypeError, match="predict: `x` must be"):
            predict(network(), bad)
    with pytest.raises(TypeError, match="arrays of numbers; got 'one of object'"):
        predict(network(), np.array([[None, 1, 2]], dtype=object))


def test_batches_whose_outputs_differ_in_shape_are_refused() -> None:
    model = nn.Sequential(nn.Dropout(0.5))
    with pytest.raises(ValueError, match=r"batches whose outputs have one shape.*\(3,\), \(4,\).*Pad them"):
        predict(model, [torch.ones(2, 3), torch.ones(2, 4)], num_draws=3)


# the loader's random numbers


class Augmented(Dataset[Tensor]):
    def __len__(self) -> int:
        return 7

    def __getitem__(self, row: int) -> Tensor:
        return X[row] + torch.rand(3) + float(np.random.rand())  # noqa: NPY002


@pytest.mark.parametrize("fails", [False, True])
def test_a_loader_has_the_numbers_it_would_have_and_moves_no_generator(fails: bool) -> None:
    loader, model = DataLoader(Augmented(), batch_size=2, shuffle=True), network()
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    inputs = torch.cat(list(loader))
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    state, arrays = torch.get_rng_state(), np.random.get_state()[1:3]  # noqa: NPY002
    if fails:
        with pytest.raises(RuntimeError, match="on purpose"):
            predict(_failing(), loader, num_draws=3)
    else:
        found = predict(model, loader, num_draws=3).draws
        torch.testing.assert_close(found, predict(model, inputs, num_draws=3).draws)
    assert torch.equal(torch.get_rng_state(), state)
    now = np.random.get_state()[1:3]  # noqa: NPY002
    assert np.array_equal(now[0], arrays[0])
    assert now[1] == arrays[1]


def _failing() -> nn.Module:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            torch.rand(1)
            raise RuntimeError("on purpose")

    return Failing()


# what is not finite


def test_inputs_and_outputs_that_are_not_finite_are_told_of() -> None:
    bad = X.clone()
    bad[4, 1] = torch.nan
    with pytest.warns(NotFinite) as told:
        prediction = predict(network(), bad, num_draws=3, batch_size=2)
    texts = [str(warning.message) for warning in told]
    assert any("1 of 6 values of `x` are NaN or infinite, the first in row 4" in text for text in texts)
    assert any("the mean of 1 of 7 rows is NaN or infinite, the first in row 4" in text for text in texts)
    assert all(warning.filename == __file__ for warning in told)
    assert prediction.mean[4].isnan().all()
    assert prediction.mean[3].isfinite().all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict(network(), X, num_draws=3)


def test_the_row_of_an_input_with_one_axis_that_is_not_finite_is_named() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            out: Tensor = self.drop(x) * weight.nan_to_num().unsqueeze(-1)
            return out

    weight = torch.ones(len(X))
    weight[5] = torch.nan
    with pytest.warns(NotFinite, match="1 of 7 values of `x.1.` are NaN or infinite, the first in row 5"):
        predict(Weighted(), (X, weight), num_draws=3)


# which output

Named = namedtuple("Named", ["first", "second"])


class Several(nn.Module):
    def __init__(self, form: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.net, self.form = network(), form

    def forward(self, x: Tensor) -> Any:
        return self.form(self.net(x), x)


@pytest.mark.parametrize("plan", [None, "whole model"])
@pytest.mark.parametrize(
    ("form", "output"),
    [
        (lambda a, b: {"first": a, "second": b}, "first"),
        (lambda a, b: Named(b, a), "second"),
        (lambda a, b: (b, a), 1),
        (lambda a, b: [a, b], -2),
        (lambda a, b: {"x": b, "y": a}, 1),
        (lambda a, b: (b, (a,)), lambda out: out[1][0]),
    ],
)
def test_an_output_is_picked_by_name_place_or_function(form: Any, output: Any, plan: Any) -> None:
    expected = predict(Several(lambda a, b: a), X, num_draws=5).draws
    found = predict(Several(form), X, num_draws=5, output=output, plan=plan).draws
    torch.testing.assert_close(found, expected)


def test_a_function_of_the_output_is_part_of_every_draw() -> None:
    found = predict(network(), X, num_draws=5, output=lambda out: out.softmax(-1)[:, :1])
    expected = predict(network(), X, num_draws=5).draws.softmax(-1)[..., :1]
    torch.testing.assert_close(found.draws, expected)
    moments = predict(Several(lambda a, b: (a, b)), X, method="moments", output=0)
    torch.testing.assert_close(moments.mean, predict(network(), X, method="moments").mean)


def test_an_output_that_is_not_there_is_refused_by_name() -> None:
    model = Several(lambda a, b: {"first": a, "second": b})
    with pytest.raises(TypeError, match=r"returns one tensor; got dict\. Say which tensor with `output=`"):
        predict(model, X)
    with pytest.raises(ValueError, match="`output` must be one of 'first', 'second'; got 'third'"):
        predict(model, X, output="third")
    with pytest.raises(ValueError, match="the index of one of 2 outputs; got 2"):
        predict(model, X, output=2)
    for output in ("first", 0):
        with pytest.raises(ValueError, match="one tensor is returned"):
            predict(Masked(), X, output=output)
    for bad in (True, 1.5, object()):
        with pytest.raises(TypeError, match="`output` must be a name, an index, a function, or None"):
            predict(model, X, output=bad)


# arguments that mean nothing


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("plan", "abc"),
        ("seed", object()),
        ("seed", 1.0),
        ("seed", True),
        ("max_memory", -1),
        ("max_memory", 1.5),
        ("exclude", "encodr"),
        ("include", nn.Conv2d),
        ("exclude", lambda path, module: False),
        ("method", "magic"),
        ("tolerance", True),
        ("keep_draws", "yes"),
        ("targets", 3),
        ("recurrent", "often"),
    ],
)
def test_an_argument_that_means_nothing_is_refused(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^predict: `{name}` must be"):
        predict(network(), X, num_draws=2, likelihood=Gaussian(1.0), **{name: value})


def test_a_path_that_is_misspelt_is_set_right() -> None:
    model = nn.Sequential()
    model.add_module("encoder", network())
    with pytest.raises(
        ValueError, match=r"what matches a module of the model; got 'encodr'\. Did you mean 'encoder'"
    ):
        predict(model, X, exclude="encodr")
    assert predict(model, X, num_draws=2, seed=np.int64(3)).num_draws == 2


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"seed": 0.5}, "FunctionDraw: `seed` must be an int; got 0.5"),
        ({"index": -1}, "FunctionDraw: `index` must be an int of at least 0; got -1"),
    ],
)
def test_a_draw_of_nonsense_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises((ValueError, TypeError), match=match):
        FunctionDraw(network(), **options)
    with pytest.raises(TypeError, match=r"FunctionDraw: `model` must be an nn\.Module; got 3"):
        FunctionDraw(3)


# a model in which nothing is random


def test_a_network_without_dropout_is_told_the_next_step() -> None:
    plain = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(NoRandomness, match=r'where="weights", p=0\.1.*Then train it on') as caught:
        predict(plain, X)
    line = str(caught.value).split("model = ")[1].split(". Then")[0]
    import bayesdrop as bd

    converted = eval(line, {"bd": bd, "model": plain})  # the line that it names works
    assert predict(converted, X, num_draws=3, likelihood=Categorical()).num_draws == 3


def test_a_script_is_told_what_to_give_instead() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.script(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)))
    with pytest.raises(NoRandomness, match="Give the model before it was scripted"):
        predict(script, X)


# nothing that is found of a model outlives the call

SETTINGS = {"p": 0.0}
RATES = [0.0]


def _rate() -> float:
    return SETTINGS["p"]


def _by_environment() -> float:
    return float(os.environ.get("BAYESDROP_TEST_RATE", "0"))


class Plain:
    rate = 0.0


@pytest.mark.parametrize(
    ("rate", "change"),
    [
        (lambda: SETTINGS["p"], lambda patch: patch.setitem(SETTINGS, "p", 0.5)),
        (lambda: RATES[0], lambda patch: patch.setattr(f"{__name__}.RATES", [0.5])),
        (lambda: Plain.rate, lambda patch: patch.setattr(Plain, "rate", 0.5)),
        (_by_environment, lambda patch: patch.setenv("BAYESDROP_TEST_RATE", "0.5")),
        (lambda: 1.0 * _rate(), lambda patch: patch.setattr(f"{__name__}._rate", lambda: 0.5)),
    ],
    ids=["dictionary", "list", "class", "environment", "monkeypatch"],
)
def test_a_rate_that_changes_between_two_calls_is_seen(
    rate: Callable[[], float], change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.01)

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(self.drop(x), rate() if self.training else 0.0)

    model, x = Model().eval(), torch.ones(2, 400)

    def dropped() -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float((predict(model, x, num_draws=30).draws == 0).float().mean())

    assert dropped() < 0.05
    change(monkeypatch)
    assert dropped() > 0.4
    with FunctionDraw(model), torch.no_grad():
        assert float((model(x) == 0).float().mean()) > 0.4


def test_numbers_of_numpy_in_a_forward_go_on_from_draw_to_draw() -> None:
    class Numpy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.drop(x) * 0 + float(np.random.rand())  # noqa: NPY002

    state = np.random.get_state()[1].copy()  # noqa: NPY002
    with pytest.warns(UserWarning, match="no seed can repeat"):
        draws = predict(Numpy(), X, num_draws=10).draws
    assert len(draws[:, 0, 0].unique()) == 10
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002
