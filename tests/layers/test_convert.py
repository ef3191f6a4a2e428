"""convert(): other noise, the same trained weights."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop import (
    BernoulliDropout,
    ConcreteDropout,
    DropConnect,
    FunctionDraw,
    Gaussian,
    GaussianDropout,
    LearnableDropout,
    MeanFieldGaussian,
    MixtureDropout,
    NegativeELBO,
    StochasticLayer,
    VariationalGaussianDropout,
    load,
    predict,
    rates,
    save,
    total_kl,
)
from bayesdrop.layers import ConcreteNoise, RecurrentDropout, convert
from bayesdrop.objectives import RowsMeet

KINDS: dict[str, type[StochasticLayer]] = {
    "bernoulli": BernoulliDropout,
    "gaussian": GaussianDropout,
    "concrete": ConcreteDropout,
    "learnable": LearnableDropout,
    "dropconnect": DropConnect,
    "mixture": MixtureDropout,
    "variational": VariationalGaussianDropout,
    "meanfield": MeanFieldGaussian,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# models that one meets


class Block(nn.Module):
    def __init__(self, width: int, dropout: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.drop = dropout
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.drop(F.relu(self.norm(self.first(x)))))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3)
        self.blocks = nn.ModuleList([Block(6, nn.Dropout2d(0.2)), Block(6, nn.Dropout(0.3))])
        self.drop = nn.Dropout(0.4)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.drop(x.mean((2, 3))))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x)[:, 0])


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 6, 2, batch_first=True, dropout=0.25)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.lstm(x)[0][:, -1]))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(5, 8),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(8, 8),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(8, 2),
    )


def vgg() -> nn.Module:
    features = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout2d(0.1),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Dropout(0.3),
    )
    head = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 2))
    return nn.Sequential(features, nn.Flatten(), head)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, Any]]] = {
    "mlp": (mlp, (6, 5), {}),
    "mlp weights": (mlp, (6, 5), {"where": "weights"}),
    "vgg": (vgg, (4, 3, 8, 8), {}),
    "vgg convolutions": (vgg, (4, 3, 8, 8), {"where": nn.Conv2d}),
    "residual": (Residual, (4, 3, 6, 6), {"x": torch.randn(2, 3, 6, 6, generator=seeded(0))}),
    "transformer": (Attention, (4, 5, 8), {"where": "weights"}),
    "transformer dropouts": (
        Attention,
        (4, 5, 8),
        {"where": "encoder.layers.*.dropout", "x": torch.randn(2, 5, 8, generator=seeded(0))},
    ),
    "lstm": (Sequence, (4, 5, 3), {"x": torch.randn(2, 5, 3, generator=seeded(0))}),
    "lstm weights": (Sequence, (4, 5, 3), {"where": ("weights", "dropouts"), "x": torch.zeros(2, 5, 3)}),
}
every_model = pytest.mark.parametrize("name", MODELS)


def made(name: str) -> tuple[nn.Module, Tensor, dict[str, Any]]:
    torch.manual_seed(0)
    make, shape, options = MODELS[name]
    return make().eval(), torch.randn(shape, generator=seeded(1)), options


def stochastic(model: nn.Module) -> list[StochasticLayer]:
    return [part for part in model.modules() if isinstance(part, StochasticLayer)]


@every_model
@every_kind
def test_the_mean_network_is_unchanged_and_the_noise_is_there(name: str, kind: str) -> None:
    model, x, options = made(name)
    before = copy.deepcopy(model.state_dict())
    new = convert(model, kind, **options)
    layers = stochastic(new)
    assert layers
    assert {type(layer) for layer in layers} == {KINDS[kind]}
    with torch.no_grad():
        torch.testing.assert_close(new(x), model(x))
    torch.testing.assert_close(new(x), model(x))
    # Draws of the new noise alone: what dropouts are left are kept quiet.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (predict(new, x, num_draws=10, include=StochasticLayer).epistemic > 0).all()
    for part in new.train().modules():
        if isinstance(part, nn.Dropout | nn.Dropout2d):
            part.p = 0.0
        elif isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0
    assert not torch.allclose(new(x), new(x))
    assert stochastic(model) == []
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@every_model
@pytest.mark.parametrize("kind", ["concrete", "learnable"])
def test_a_step_of_training_moves_the_rates(name: str, kind: str) -> None:
    model, x, options = made(name)
    new = convert(model, kind, **options).train()
    parameters = [p for layer in stochastic(new) for p in layer.rate_parameters()]
    assert len(parameters) == len(stochastic(new))
    start = [p.detach().clone() for p in parameters]
    weights = [p.detach().clone() for p in new.parameters()]
    optimizer = torch.optim.SGD(new.parameters(), lr=0.1)
    objective = NegativeELBO(Gaussian(1.0), num_data=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RowsMeet)  # some have BatchNorm
        objective(new, x, torch.ones(x.shape[0], 2)).loss.backward()
    optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(start, parameters, strict=True))
    moved = [not torch.equal(a, b) for a, b in zip(weights, new.parameters(), strict=True)]
    assert sum(moved) > len(moved) // 2


@every_model
@every_kind
def test_none_is_the_way_back(name: str, kind: str) -> None:
    model, x, options = made(name)
    back = convert(convert(model, kind, **options), "none")
    assert stochastic(back) == []
    assert back.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in back.state_dict().items())
    torch.testing.assert_close(back(x), model(x))


@pytest.mark.parametrize("name", ["mlp", "vgg", "transformer dropouts"])
@pytest.mark.parametrize("kind", ["bernoulli", "concrete", "learnable"])
def test_dropout_is_the_way_back_to_dropouts(name: str, kind: str) -> None:
    model, x, options = made(name)
    back = convert(convert(model, kind, **options), "dropout")
    assert repr(back) == repr(model)
    torch.testing.assert_close(back(x), model(x))


@every_model
def test_files_hold_what_was_converted(name: str, tmp_path: Path) -> None:
    model, x, options = made(name)
    new = convert(model, "learnable", **options)
    save(new, tmp_path / "new.safetensors")
    make = MODELS[name][0]
    own = type(model) is not nn.Sequential
    into = convert(make(), "learnable", **options) if own else None
    loaded = load(tmp_path / "new.safetensors", into)
    with FunctionDraw(new, seed=3):
        expected = new(x)
    with FunctionDraw(loaded, seed=3):
        assert torch.equal(loaded(x), expected)


# rates


def test_rates_are_those_of_the_dropouts() -> None:
    model, _, _ = made("vgg")
    new: Any = convert(model, "bernoulli")
    found = {name: round(p.item(), 6) for name, p in rates(new).items()}
    assert found == {"0.5": 0.1, "2.0": 0.3, "2.3": 0.4}
    assert [new[0][5].elementwise, new[2][0].elementwise] == [False, True]
    assert all(isinstance(new.get_submodule(path), nn.Identity) for path in ("0.3", "0.8", "2.2"))
    given = rates(convert(model, "concrete", p=0.15, per="unit", length_scale=0.5))
    assert [tuple(p.shape) for p in given.values()] == [(6,), (32,), (16,)]
    assert all(torch.allclose(p, torch.tensor(0.15)) for p in given.values())
    assert rates(convert(model, "learnable", where="weights"))["0.0"].unique().item() == pytest.approx(0.1)


def test_elementwise_dropout_before_a_convolution_stays_elementwise() -> None:
    model: Any = Residual().eval()
    new: Any = convert(model, "concrete", x=torch.zeros(1, 3, 6, 6))
    assert not new.blocks[0].second.elementwise
    assert new.blocks[1].second.elementwise
    assert isinstance(new.blocks[0].drop, nn.Identity)
    channels = convert(model, "concrete", x=torch.zeros(1, 3, 6, 6), elementwise=False)
    assert not channels.blocks[1].second.elementwise  # type: ignore[index, union-attr]


@pytest.mark.parametrize("name", ["mlp", "vgg", "residual"])
def test_bernoulli_noise_on_weights_is_the_dropout_that_it_replaces(name: str) -> None:
    model, x, options = made(name)
    new = convert(model, "bernoulli", **options)
    num = 1500
    first, second = (
        predict(net, x, num_draws=num, seed=i, keep_draws=True).draws for i, net in enumerate((model, new))
    )
    for power in (1, 2):
        centre = first.mean(0) if power == 2 else 0.0
        a, b = ((draws - centre) ** power for draws in (first, second))
        error = ((a.var(0) + b.var(0)) / num).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() <= 5 * error).all()


SOURCES: dict[str, Callable[[], StochasticLayer]] = {
    "bernoulli": lambda: BernoulliDropout(nn.Linear(3, 2), 0.3, length_scale=0.2),
    "bernoulli per unit": lambda: BernoulliDropout(nn.Linear(3, 2), [0.1, 0.3, 0.6]),
    "bernoulli bias": lambda: BernoulliDropout(nn.Linear(3, 2), 0.3, bias_p=0.2, prior_on_bias=False),
    "gaussian conv": lambda: GaussianDropout(nn.Conv1d(3, 2, 2), 0.3, elementwise=True),
    "concrete": lambda: ConcreteDropout(nn.Linear(3, 2), 0.3, temperature=0.4),
    "concrete per unit": lambda: ConcreteDropout(nn.Linear(3, 2), torch.tensor([0.1, 0.3, 0.6]), per="unit"),
    "learnable": lambda: LearnableDropout(nn.Linear(3, 2), torch.tensor([0.1, 0.3, 0.6])),
    "learnable raw": lambda: LearnableDropout(nn.Linear(3, 2), torch.tensor([0.1, 0.3, 0.6]), scaling="raw"),
    "dropconnect": lambda: DropConnect(nn.Linear(3, 2), 0.3, scale_by_fan_in=True),
    "mixture": lambda: MixtureDropout(nn.Linear(3, 2), 0.3, sigma=0.2),
    "variational": lambda: VariationalGaussianDropout(nn.Linear(3, 2), 0.3, per="weight"),
    "meanfield": lambda: MeanFieldGaussian(nn.Linear(3, 2), 0.3, length_scale=0.3),
}


@pytest.mark.parametrize("source", SOURCES)
@every_kind
def test_rates_means_and_options_survive_a_change_of_kind(source: str, kind: str) -> None:
    layer = SOURCES[source]().eval()
    if kind in ("variational", "meanfield") and layer.p.dim():
        name = KINDS[kind].__name__
        with pytest.raises(
            ValueError, match=rf"convert, at 'the model itself': {name}.* `p_init` must be in"
        ):
            convert(layer, kind)
        layer = SOURCES["concrete"]().eval()
    new = convert(layer, kind)
    assert type(new) is KINDS[kind]
    assert isinstance(new, StochasticLayer)
    torch.testing.assert_close(*torch.broadcast_tensors(new.p, layer.p), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(new.weight, layer.weight)
    x = torch.randn(4, 3, 5, generator=seeded(0)) if isinstance(layer.layer, nn.Conv1d) else torch.randn(4, 3)
    torch.testing.assert_close(new(x), layer(x))
    shared = (
        "length_scale",
        "scale_by_fan_in",
        "prior_on_bias",
        "elementwise",
        "temperature",
        "per",
        "scaling",
    )
    for name in shared:
        own = getattr(layer, name, "weight")
        if own != "weight" and name in KINDS[kind].__init__.__kwdefaults__:
            assert getattr(new, name) == getattr(layer, name)
    assert total_kl(new).isfinite()


def test_learned_rates_can_be_fixed_and_given_up() -> None:
    layer = ConcreteDropout(nn.Linear(3, 2), 0.3)
    with torch.no_grad():
        layer.logit_p.fill_(-2.0)
    fixed = convert(layer, "bernoulli")
    assert isinstance(fixed, BernoulliDropout)
    assert list(fixed.rate_parameters()) == []
    torch.testing.assert_close(fixed.p, torch.sigmoid(torch.tensor(-2.0)))
    plain: Any = convert(layer, "dropout")
    assert plain[0].p == pytest.approx(torch.sigmoid(torch.tensor(-2.0)).item(), abs=1e-6)
    assert torch.equal(plain[1].weight, layer.layer.weight)


def test_raw_masks_keep_the_mean_network() -> None:
    model, x, options = made("lstm")
    raw = convert(model, "learnable", scaling="raw", **options)
    torch.testing.assert_close(raw(x), model(x))
    back = convert(raw, "none")
    torch.testing.assert_close(back(x), model(x))
    torch.testing.assert_close(back.state_dict(), model.state_dict())


def test_recurrent_modules_take_their_own_rate() -> None:
    model, x, options = made("lstm")
    new: Any = convert(model, "concrete", **options)
    assert isinstance(new.lstm, RecurrentDropout)
    assert new.lstm.layer.dropout == 0
    assert {round(p.item(), 6) for name, p in rates(new).items() if name.startswith("lstm")} == {0.25}
    assert rates(new)["head"].item() == pytest.approx(0.3)
    assert model.lstm.dropout == 0.25  # type: ignore[union-attr]
    changed = convert(new, "gaussian", where=nn.LSTM)
    assert isinstance(changed.head, ConcreteDropout)
    assert {type(part) for part in stochastic(changed.lstm)} == {GaussianDropout}  # type: ignore[arg-type]
    torch.testing.assert_close(changed(x), model(x))
    with pytest.raises(
        ValueError, match=r"'lstm.inputs.l0' is part of 'lstm', which is made plain as a whole"
    ):
        convert(new, "none", where="lstm.inputs.l0")


# what is kept


def test_a_conversion_in_place_keeps_every_parameter_object() -> None:
    model = vgg()
    parameters = [id(p) for p in model.parameters()]
    new = convert(model, "dropconnect", inplace=True)
    assert new is model
    assert [id(p) for p in model.parameters()] == parameters
    assert len(stochastic(model)) == 3


def test_trained_weights_are_not_thrown_away() -> None:
    model = mlp()
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.fill_(0.1 * (i + 1))
    for kind in KINDS:
        new = convert(model, kind, where="weights")
        kept = [p for name, p in new.named_parameters() if name.endswith(("weight", "bias"))]
        for a, b in zip(kept, model.parameters(), strict=True):
            assert torch.equal(a, b)
            assert a is not b


def test_flags_dtypes_frozen_weights_and_hooks_are_kept() -> None:
    model: Any = mlp().double()
    model[3].eval()
    model[2].eval()
    model[3].weight.requires_grad_(False)
    calls: list[str] = []
    handle = model[2].register_forward_hook(lambda *_: calls.append("dropout"))
    model[3].register_forward_hook(lambda *_: calls.append("linear"))
    new = convert(model, "concrete", inplace=True)
    assert not new[3].training
    assert not new[2].training
    assert new[6].training
    assert new[3].p.dtype == torch.float64
    assert not new[3].layer.weight.requires_grad
    new(torch.zeros(1, 5, dtype=torch.float64))
    assert calls == ["dropout", "linear"]
    handle.remove()
    outer = new[3].register_forward_hook(lambda *_: calls.append("noise"))
    new(torch.zeros(1, 5, dtype=torch.float64))
    assert calls == ["dropout", "linear", "linear", "noise"]
    changed = convert(new, "bernoulli", inplace=True)
    changed(torch.zeros(1, 5, dtype=torch.float64))
    assert calls[4:] == ["linear", "noise"]
    outer.remove()
    changed(torch.zeros(1, 5, dtype=torch.float64))
    assert calls[6:] == ["linear"]
    assert not changed[3].training


def test_shared_modules_and_tied_weights_stay_shared() -> None:
    linear, drop = nn.Linear(4, 4), nn.Dropout(0.2)
    model: Any = nn.Sequential(drop, linear, nn.ReLU(), drop, linear, nn.Linear(4, 4))
    model[5].weight = linear.weight
    new: Any = convert(model, "concrete")
    assert new[1] is new[4]
    assert new[0] is new[3]
    assert len(stochastic(new)) == 1
    assert new[5].weight is new[1].layer.weight
    both: Any = convert(model, "concrete", where="weights")
    assert both[1] is both[4]
    assert both[5].layer.weight is both[1].layer.weight


def test_nothing_is_wrapped_twice() -> None:
    model, _, _ = made("mlp")
    once = convert(model, "concrete", where="weights")
    twice = convert(once, "learnable", where="weights")
    again = convert(twice, "learnable", where="*")
    for net in (twice, again):
        assert len(stochastic(net)) == 3
        assert all(isinstance(layer.layer, nn.Linear) for layer in stochastic(net))
        assert {type(layer) for layer in stochastic(net)} == {LearnableDropout}


def test_stochastic_layers_alone_can_be_meant() -> None:
    both: Any = nn.Sequential(
        convert(Attention(), "concrete", where="weights"), RecurrentDropout(nn.GRU(2, 2))
    )
    with pytest.raises(ValueError, match="where=StochasticLayer means the layers that have noise"):
        convert(both, "bernoulli")
    fixed = convert(both, "gaussian", where=StochasticLayer)
    assert {type(layer) for layer in stochastic(fixed)} == {GaussianDropout}
    assert len(stochastic(fixed)) == 7
    plain: Any = convert(both, "none", where=StochasticLayer)
    assert isinstance(plain[1], nn.GRU)
    assert stochastic(plain) == []


def test_the_model_may_be_a_layer_itself() -> None:
    linear = nn.Linear(3, 2)
    new = convert(linear, "concrete", where="weights", inplace=True)
    assert isinstance(new, ConcreteDropout)
    assert new.layer is linear
    assert convert(new, "none", inplace=True) is linear
    assert isinstance(convert(nn.GRU(3, 2), "concrete", where="weights"), RecurrentDropout)


def test_attention_projections_are_left_alone() -> None:
    new = convert(Attention(), "concrete", where="weights")
    assert list(rates(new)) == [
        "encoder.layers.0.linear1",
        "encoder.layers.0.linear2",
        "encoder.layers.1.linear1",
        "encoder.layers.1.linear2",
        "head",
    ]
    with pytest.raises(ValueError, match="It has neither weight layers nor dropouts"):
        convert(nn.MultiheadAttention(8, 2), "concrete", where="weights")


def test_a_transformer_without_gradients_is_the_mean_network_by_its_fast_path() -> None:
    model: Any = Attention().eval()
    x = torch.randn(3, 5, 8, generator=seeded(0))
    for scaling in ("inverted", "raw"):
        new: Any = convert(model, "learnable", where="weights", p=0.4, scaling=scaling)
        with torch.no_grad():
            torch.testing.assert_close(new(x), model(x))


# choosing


def test_names_patterns_types_and_functions_choose() -> None:
    model, _, _ = made("vgg")

    def found(where: Any) -> list[str]:
        return list(rates(convert(model, "concrete", where=where)))

    assert found("2") == ["2.0", "2.3"]
    assert found("2.3") == ["2.3"]
    assert found(["0.0", "2.*"]) == ["0.0", "2.0", "2.3"]
    assert found(nn.Conv2d) == ["0.0", "0.5"]
    assert found(lambda path, module: isinstance(module, nn.Linear) and module.out_features > 2) == ["2.0"]
    assert found("2.2") == ["2.3"]  # a dropout, by the layer that it feeds
    assert found(nn.Dropout2d) == ["0.5"]
    assert found(["weights", "dropouts"]) == ["0.0", "0.5", "2.0", "2.3"]
    assert rates(convert(model, "concrete", where=["weights", "dropouts"]))["2.3"].item() == pytest.approx(
        0.4
    )


class Odd(nn.Module):
    """A dropout whose output goes through a function before the weights."""

    def __init__(self, function: Callable[..., Tensor], dropout: nn.Module | None = None) -> None:
        super().__init__()
        self.drop = dropout or nn.Dropout(0.2)
        self.fc = nn.Linear(8, 2)
        self.other = nn.Linear(8, 8)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


FOLLOWED: dict[str, Callable[..., Tensor]] = {
    "as it is": lambda net, x: net.fc(net.drop(x)),
    "relu": lambda net, x: net.fc(F.relu(net.drop(x))),
    "in place": lambda net, x: net.fc(F.leaky_relu(net.drop(x), inplace=True)),
    "shapes": lambda net, x: net.fc(
        net.drop(x).view(-1, 2, 4).transpose(1, 2).flatten(1)[:, :8].T.contiguous().T
    ),
    "scaled": lambda net, x: net.fc(2 * net.drop(x) / 3),
    "twice": lambda net, x: net.fc(net.drop(torch.tanh(net.other(net.drop(x))))),
    "reads its shape": lambda net, x: net.fc(net.drop(x).reshape(net.drop(x).shape[0], -1)),
}
ALONE: dict[str, tuple[Callable[..., Tensor], str]] = {
    "sigmoid": (
        lambda net, x: net.fc(torch.sigmoid(net.drop(x))),
        "'drop' goes through sigmoid before any weight",
    ),
    "sum": (lambda net, x: net.fc(x + net.drop(x)), "'drop' goes through add before"),
    "norm": (lambda net, x: net.fc(F.layer_norm(net.drop(x), (8,))), "'drop' goes through layer_norm before"),
    "bare": (
        lambda net, x: net.fc(net.drop(x)) + net.fc(x),
        "'drop' feeds a layer that is also used without it",
    ),
    "output": (lambda net, x: net.drop(net.fc(x)), "'drop' goes to the output of the model"),
}
BLOCKED: dict[str, tuple[Callable[..., Tensor], str]] = {
    "two uses": (
        lambda net, x: net.fc(net.drop(x)) + net.drop(x)[:, :2],
        "'drop' goes through add before any weight layer, and is used at several places",
    ),
    "unused": (lambda net, x: net.fc(x), "'drop' feeds no weight layer, and is not called with this `x`"),
    "one row": (lambda net, x: net.fc(torch.sigmoid(net.drop(x[0]))), "and is given no rows"),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_pass_shows_what_a_dropout_feeds(name: str) -> None:
    model = Odd(FOLLOWED[name]).train()
    x = torch.randn(4, 8, generator=seeded(0))
    state = torch.get_rng_state()
    new: Any = convert(model, "bernoulli", x=x)
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(new.fc, BernoulliDropout)
    assert isinstance(new.other, BernoulliDropout) == (name == "twice")
    assert isinstance(new.drop, nn.Identity)
    assert new.training
    assert not new.fc._forward_pre_hooks
    torch.testing.assert_close(x, torch.randn(4, 8, generator=seeded(0)))
    torch.testing.assert_close(new.eval()(x.clone()), model.eval()(x.clone()))


@pytest.mark.parametrize("name", ALONE)
def test_a_dropout_that_feeds_no_weights_becomes_noise_in_its_place(name: str) -> None:
    function, words = ALONE[name]
    x = torch.randn(4, 8, generator=seeded(0))
    model = Odd(function).eval()
    new: Any = convert(model, "concrete", x=x)
    assert isinstance(new.drop, ConcreteNoise)
    assert type(new.fc) is nn.Linear
    assert new.drop.num_units == (2 if name == "output" else 8)
    assert rates(new)["drop"].item() == pytest.approx(0.2)
    torch.testing.assert_close(new(x), model(x))
    # noise on weights and nothing else has no such form
    with pytest.raises(ValueError, match=words):
        convert(model, "dropconnect", x=x, inplace=True)
    assert stochastic(model) == []


@pytest.mark.parametrize("name", BLOCKED)
def test_a_dropout_that_cannot_be_replaced_is_named(name: str) -> None:
    function, words = BLOCKED[name]
    model = Odd(function)
    with pytest.raises(ValueError, match=words):
        convert(model, "concrete", x=torch.randn(4, 8), inplace=True)
    assert stochastic(model) == []


def test_channels_must_be_units_of_the_layer() -> None:
    images = torch.randn(2, 2, 2, 2)
    net = Odd(lambda net, x: net.fc(net.drop(x).flatten(1)), nn.Dropout2d(0.2))
    with pytest.raises(ValueError, match="'drop' drops 2 channels, but feeds a layer with 8 input units"):
        convert(net, "mixture", x=images)
    new: Any = convert(net, "concrete", x=images)
    assert isinstance(new.drop, ConcreteNoise)
    assert (new.drop.num_units, new.drop.elementwise) == (2, False)
    pooled = Odd(lambda net, x: net.fc(F.avg_pool2d(net.drop(x), 2).flatten(1)), nn.Dropout2d(0.2))
    assert isinstance(convert(pooled, "concrete", x=torch.randn(2, 8, 2, 2)).fc, ConcreteDropout)
    with pytest.raises(ValueError, match="'0' drops channels, but feeds a linear layer, and has a width"):
        convert(nn.Sequential(nn.Dropout2d(0.1), nn.Flatten(), nn.Linear(8, 2)), "concrete")


def test_one_layer_takes_one_dropout() -> None:
    model = nn.Sequential(nn.Dropout(0.1), nn.ReLU(), nn.Dropout(0.2), nn.Linear(3, 2))
    for x in (None, torch.ones(2, 3)):
        with pytest.raises(ValueError, match="feeds a layer that another dropout feeds too"):
            convert(model, "bernoulli", x=x)
    done = nn.Sequential(nn.Dropout(0.1), BernoulliDropout(nn.Linear(3, 2), 0.2))
    for x in (None, torch.ones(2, 3)):
        with pytest.raises(ValueError, match="'0' feeds a BernoulliDropout, which has noise of its own"):
            convert(done, "concrete", x=x)


def test_what_cannot_be_is_said() -> None:
    model, _, _ = made("mlp")
    with pytest.raises(
        ValueError, match=r"`where` must be something that the model has; got 'fc'. It has weight"
    ):
        convert(model, "concrete", where="fc")
    with pytest.raises(ValueError, match=r"got 'nothing'"):
        convert(model, "concrete", where=["weights", "nothing"])
    with pytest.raises(ValueError, match=r"It has weight layers \(0\)\. Use where='weights'"):
        convert(nn.Sequential(nn.Linear(2, 1)), "concrete")
    with pytest.raises(ValueError, match=r"It has weight layers \(0\); dropouts \(1\)"):
        convert(nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.0)), "concrete")
    with pytest.raises(ValueError, match=r"neither weight layers nor dropouts"):
        convert(nn.ReLU(), "concrete", where="weights")
    with pytest.raises(ValueError, match=r"Give `x`, a batch of inputs"):
        convert(Residual(), "concrete")
    with pytest.raises(ValueError, match=r"'0' goes through BatchNorm1d before any weight layer"):
        convert(nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2), nn.Linear(2, 1)), "concrete")
    with pytest.raises(ValueError, match=r"`kind` must be one of .*'dropout', 'none'; got 'arm'"):
        convert(model, "arm")
    with pytest.raises(TypeError, match=r"`kind` must be one of"):
        convert(model, nn.Linear)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"`options` must be options of BernoulliDropout .*; got 'temperature'"
    ):
        convert(model, "bernoulli", temperature=0.1)
    with pytest.raises(TypeError, match=r"`options` must be none for the kind 'none'"):
        convert(model, "none", p=0.1)
    with pytest.raises(TypeError, match=r"`model` must be an nn.Module"):
        convert("mlp", "concrete")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"`where` must be 'dropouts', 'weights', 'last', paths"):
        convert(model, "concrete", where=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`where` must be at least one place"):
        convert(model, "concrete", where=[])
    with pytest.raises(ValueError, match=r"convert, at '0': BernoulliDropout: `p` must be in"):
        convert(model, "bernoulli", where="weights", p=1.5)
    with pytest.raises(
        ValueError, match=r"convert, at 'the model itself': ConcreteDropout: `p_init` must be in"
    ):
        convert(BernoulliDropout(nn.Linear(2, 1), 0.0), "concrete")
    with pytest.raises(ValueError, match=r"stochastic layers, of which there are: none"):
        convert(model, "none")


def test_what_cannot_be_a_dropout_is_said() -> None:
    words = {
        "its units have rates of their own": BernoulliDropout(nn.Linear(2, 1), [0.1, 0.2]),
        "GaussianDropout is not such noise": GaussianDropout(nn.Linear(2, 1)),
        "its bias is dropped too": BernoulliDropout(nn.Linear(2, 1), 0.1, bias_p=0.1),
        "cannot hold a mask over time": RecurrentDropout(nn.GRU(2, 1)),
    }
    for word, layer in words.items():
        with pytest.raises(
            ValueError, match=f"'0' cannot become nn.Dropout: .*{word}.*'bernoulli' for fixed rates"
        ):
            convert(nn.Sequential(layer), "dropout")
    new = convert(Attention(), "concrete", where="weights")
    with pytest.raises(ValueError, match="TransformerEncoderLayer reads the weights of the layer itself"):
        convert(new, "dropout")
    conv: Any = convert(ConcreteDropout(nn.Conv1d(2, 1, 2), 0.25), "dropout")
    assert repr(conv[0]) == "Dropout1d(p=0.25, inplace=False)"
    position: Any = convert(ConcreteDropout(nn.Conv1d(2, 1, 2), 0.25, elementwise=True), "dropout")
    assert repr(position[0]) == "Dropout(p=0.25, inplace=False)"


# a model from elsewhere


class Logits(nn.Module):
    """The logits of a Hugging Face classifier."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.bert(input_ids=input_ids).logits


@pytest.fixture(scope="module")
def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        num_labels=2,
    )
    return Logits(transformers.BertForSequenceClassification(config)).eval()


@pytest.mark.parametrize("kind", ["concrete", "learnable", "dropconnect"])
def test_a_hugging_face_model_learns_rates(bert: nn.Module, kind: str) -> None:
    ids = torch.randint(0, 50, (4, 7), generator=seeded(0))
    where = ["*.intermediate.dense", "*.layer.?.output.dense", "*.attention.self.*", "bert.classifier"]
    new = convert(bert, kind, where=where)
    assert len(stochastic(new)) == 2 * 5 + 1
    torch.testing.assert_close(new(ids), bert(ids))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (predict(new, {"input_ids": ids}, num_draws=8, include=StochasticLayer).epistemic > 0).all()
    new.train()
    terms = NegativeELBO(Gaussian(1.0), num_data=20)(new, {"input_ids": ids}, torch.ones(4, 2))
    terms.loss.backward()
    for layer in stochastic(new):
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.rate_parameters())
    back = convert(new.eval(), "none")
    torch.testing.assert_close(back.state_dict(), bert.state_dict())


def test_dropouts_of_a_hugging_face_model_that_feed_weights(bert: nn.Module) -> None:
    ids = {"input_ids": torch.randint(0, 50, (2, 7), generator=seeded(0))}
    new: Any = convert(bert, "concrete", where="bert.dropout", x=ids)
    assert list(rates(new)) == ["bert.classifier"]
    # torch's attention reads the rate of a dropout that it does not call
    words = r"'bert.bert.encoder.layer.0.attention.self.dropout' feeds no weight layer, and is not called"
    with pytest.raises(ValueError, match=rf"{words}.*where=\['bert.bert.embeddings.dropout', "):
        convert(bert, "concrete", x=ids)
    others = ["*.output.dropout", "*.embeddings.dropout", "bert.dropout"]
    new = convert(bert, "concrete", where=others, x=ids)
    assert len(stochastic(new)) == 6
    torch.testing.assert_close(new(**ids), bert(**ids))
