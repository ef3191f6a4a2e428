"""Models on disk: what is written is what is read, whole, and nothing else is ever built."""

from __future__ import annotations

import json
import stat
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import layers
from bayesdrop.storage import files, load, plain_options, read_tensors, save, write_tensors


def tied() -> nn.Sequential:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))
    model[1].weight = model[0].weight
    return model


def shared() -> nn.Sequential:
    layer, relu = nn.Linear(4, 4), nn.ReLU()
    return nn.Sequential(
        layer, relu, layer, relu, bd.BernoulliDropout(layer, p=0.2), nn.Sequential(relu, layer)
    )


def encoder_with_wrapped_layer() -> nn.Module:
    encoder = nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True)
    encoder.linear1 = bd.BernoulliDropout(encoder.linear1, p=0.4)  # type: ignore[assignment]
    return encoder


def one_layer_twice() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    encoder.layers[1] = encoder.layers[0]
    return encoder


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 2, bias=False)),
        lambda: torch.randn(3, 4),
    ),
    "norms": (
        lambda: nn.Sequential(
            nn.BatchNorm1d(4, momentum=None), nn.LayerNorm(4, eps=1e-3, bias=False), nn.RMSNorm(4)
        ),
        lambda: torch.randn(3, 4),
    ),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding="same", padding_mode="reflect", groups=2),
            nn.GELU(approximate="tanh"),
            nn.Dropout2d(0.2),
            nn.MaxPool2d((2, 1)),
            nn.GroupNorm(2, 4),
            nn.ConvTranspose2d(4, 3, 2, stride=2, output_padding=1, dilation=2),
            nn.AdaptiveAvgPool2d((2, None)),
            nn.Flatten(2),
            nn.PReLU(3),
            nn.Unflatten(2, (2, -1)),
            nn.Hardtanh(-0.5, 0.5),
        ),
        lambda: torch.randn(2, 2, 6, 6),
    ),
    "stochastic": (
        lambda: nn.Sequential(
            bd.BernoulliDropout(
                nn.Linear(4, 6),
                p=[0.1, 0.2, 0.3, 0.4],
                elementwise=True,
                bias_p=0.3,
                length_scale=0.5,
                scale_by_fan_in=True,
                prior_on_bias=False,
            ),
            nn.Tanh(),
            bd.GaussianDropout(nn.Linear(6, 6), p=0.25, length_scale=2.0),
            bd.DropConnect(nn.Linear(6, 3), p=0.15, per_row=True, bias_p=0.1),
            bd.MixtureDropout(nn.Linear(3, 2), p=0.35, sigma=0.7, per_row=True, scale_by_fan_in=True),
        ),
        lambda: torch.randn(3, 4),
    ),
    "tied": (tied, lambda: torch.tensor([[1, 2], [3, 0]])),
    "shared": (shared, lambda: torch.randn(3, 4)),
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, 0.2, "gelu", batch_first=True, norm_first=True),
            2,
            norm=nn.LayerNorm(8),
            enable_nested_tensor=False,
        ),
        lambda: torch.randn(2, 3, 8),
    ),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(9, 3, padding_idx=0, max_norm=2.0), nn.Softmax(-1)),
        lambda: torch.tensor([1, 0, 8]),
    ),
}

RECURRENT: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(3, 4, 2, batch_first=True, dropout=0.3, bidirectional=True),
    "gru": lambda: nn.GRU(3, 4, bias=False),
    "rnn": lambda: nn.RNN(3, 4, nonlinearity="relu"),
}

OTHERS: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: nn.MultiheadAttention(8, 2, dropout=0.1, bias=False, add_bias_kv=True, kdim=4),
    "decoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.2), 2),
    "module dict": lambda: nn.ModuleDict({"a": nn.Linear(1, 2), "list": nn.ModuleList([nn.Identity()])}),
    "projected lstm": lambda: nn.LSTM(3, 4, proj_size=2),
    "wrapped": encoder_with_wrapped_layer,
    "gaussian": bd.Gaussian,
    "gaussian map": lambda: bd.Gaussian(torch.tensor([0.1, 0.2]), noise="map", prior_shape=0.5),
    "heteroscedastic": bd.HeteroscedasticGaussian,
    "categorical": lambda: bd.Categorical(class_axis=-1),
    "categorical precision": lambda: bd.Categorical(precision=2.5, ignore_index=3),
    "categorical learned": lambda: bd.NegativeELBO(bd.Categorical(learn_precision=True), num_data=7),
    "multinomial": lambda: bd.Multinomial(coefficient=False),
    "objective": lambda: bd.NegativeELBO(bd.Gaussian(0.3), num_data=7, length_scale=0.1),
}


def assert_same(a: nn.Module, b: nn.Module) -> None:
    assert repr(a) == repr(b)
    states = a.state_dict(), b.state_dict()
    assert list(states[0]) == list(states[1])
    for name, tensor in states[0].items():
        assert tensor.dtype == states[1][name].dtype
        assert torch.equal(tensor, states[1][name]), name
    for x, y in zip(a.modules(), b.modules(), strict=True):
        assert type(x) is type(y)
        assert plain_options(x) == plain_options(y)


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_same_function(name: str, tmp_path: Path) -> None:
    make, inputs = MODELS[name]
    model = make()
    x = inputs()
    save(model, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    assert_same(model, loaded)
    assert torch.equal(loaded(x), model.eval()(x))


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_networks_round_trip(name: str, tmp_path: Path) -> None:
    model = RECURRENT[name]()
    x = torch.randn(2, 5, 3)
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert_same(model, loaded)
    assert torch.equal(loaded(x)[0], model.eval()(x)[0])


@pytest.mark.parametrize("name", OTHERS)
def test_likelihoods_objectives_and_containers_round_trip(name: str, tmp_path: Path) -> None:
    module = OTHERS[name]()
    save(module, tmp_path / "m")
    assert_same(module, load(tmp_path / "m"))


def test_options_and_draws_of_stochastic_layers_survive(tmp_path: Path) -> None:
    make, inputs = MODELS["stochastic"]
    model = make().double()
    x = inputs().double()
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert [layer.kl() for layer in model if hasattr(layer, "kl")] == [
        layer.kl() for layer in loaded.children() if hasattr(layer, "kl")
    ]
    draws = [bd.predict(net, x, num_draws=5, seed=3).draws for net in (model, loaded)]
    assert torch.equal(*draws)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_survive(dtype: torch.dtype, tmp_path: Path) -> None:
    model = nn.Sequential(bd.BernoulliDropout(nn.Linear(3, 2), p=[0.1, 0.2, 0.3]), nn.BatchNorm1d(2)).to(
        dtype
    )
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert_same(model, loaded)
    assert loaded[0].layer.weight.dtype == dtype  # type: ignore[index, union-attr]


def test_a_default_dtype_does_not_change_what_is_read(tmp_path: Path) -> None:
    model = MODELS["stochastic"][0]()
    save(model, tmp_path / "m")
    torch.set_default_dtype(torch.float64)
    try:
        loaded = load(tmp_path / "m")
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same(model, loaded)


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    save(tied(), tmp_path / "m")
    with safe_open(tmp_path / "m", framework="pt") as file:
        assert list(file.keys()) == ["0.weight"]
    loaded = load(tmp_path / "m")
    assert loaded[0].weight is loaded[1].weight  # type: ignore[index]


def test_a_module_in_two_places_is_one_module_again(tmp_path: Path) -> None:
    save(shared(), tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert isinstance(loaded, nn.Sequential)
    assert loaded[0] is loaded[2]
    assert loaded[0] is loaded[4].layer
    assert loaded[5][1] is loaded[0]
    assert loaded[1] is loaded[5][0]


def test_frozen_parameters_stay_frozen(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert [p.requires_grad for p in loaded.parameters()] == [False, False, True, True]


def test_strided_views_and_overlapping_memory_are_written_by_value(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    block = torch.randn(6, 3)
    model[0].weight.data = block[:3].t()
    model[1].weight.data = block[1:4]
    save(model, tmp_path / "m")
    assert_same(model, load(tmp_path / "m"))


def test_one_element_of_stride_zero_is_written(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    model[0].bias.data = torch.tensor(2.5).expand(1)
    assert model[0].bias.stride() == (0,)
    save(model, tmp_path / "m")
    assert_same(model, load(tmp_path / "m"))


def test_load_gives_eval_mode_and_save_leaves_the_mode(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train()
    model[1].eval()
    save(model, tmp_path / "m")
    assert [part.training for part in model.modules()] == [True, True, False]
    assert not any(part.training for part in load(tmp_path / "m").modules())


def test_neither_save_nor_load_moves_the_random_state(tmp_path: Path) -> None:
    model = MODELS["convolutions"][0]()
    before = torch.get_rng_state()
    save(model, tmp_path / "m")
    load(tmp_path / "m")
    assert torch.equal(before, torch.get_rng_state())


def test_a_loaded_model_does_not_depend_on_its_file(tmp_path: Path) -> None:
    model = nn.Linear(50, 50)
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    with (tmp_path / "m").open("r+b") as file:
        file.write(bytes(10_000))
    assert_same(model, loaded)


class Learned(layers.BernoulliDropout):
    """A layer with a rate that is learned and set by `p_init`."""

    def __init__(self, layer: nn.Module, *, p_init: Tensor | float = 0.1, length_scale: float = 0.1) -> None:
        super().__init__(layer, p=0.5, length_scale=length_scale)
        self.logit = nn.Parameter(torch.as_tensor(p_init).logit())
        del self.p

    def __getattr__(self, name: str) -> Tensor | nn.Module:
        return self.logit.sigmoid() if name == "p" else super().__getattr__(name)


def test_an_initial_value_is_read_from_the_value_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "Learned", Learned, raising=False)
    model = nn.Sequential(Learned(nn.Linear(3, 2), p_init=torch.tensor([0.2, 0.3, 0.4]), length_scale=0.7))
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert isinstance(loaded, nn.Sequential)
    assert torch.equal(loaded[0].logit, model[0].logit)
    assert loaded[0].length_scale == 0.7


# models from outside


class Users(nn.Module):
    """A model that no file can describe."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = bd.BernoulliDropout(nn.Linear(3, width), p=0.2)
        self.last = nn.Linear(width, 1)
        self.register_buffer("count", torch.tensor(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())  # type: ignore[no-any-return]


def test_a_users_model_needs_into(tmp_path: Path) -> None:
    model = Users()
    save(model, tmp_path / "m")
    with pytest.raises(
        ValueError, match=r"Users is a class from outside .* load\(path, into=build_model\(\)\)"
    ):
        load(tmp_path / "m")
    other = Users()
    assert load(tmp_path / "m", into=other) is other
    assert not other.training
    assert_same(model, other)


def test_a_users_model_inside_a_container_is_named(tmp_path: Path) -> None:
    save(nn.Sequential(nn.ReLU(), Users()), tmp_path / "m")
    with pytest.raises(ValueError, match=r"Users \(at '1'\)"):
        load(tmp_path / "m")


def test_into_that_does_not_fit_is_named_and_left_alone(tmp_path: Path) -> None:
    save(Users(), tmp_path / "m")
    other = Users(width=5)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(ValueError, match=r"last\.weight has shape \(1, 4\) in the file and \(1, 5\)"):
        load(tmp_path / "m", into=other)
    assert all(torch.equal(before[name], tensor) for name, tensor in other.state_dict().items())
    with pytest.raises(ValueError, match=r"lacks bias, weight; the model has no place for count, first"):
        load(tmp_path / "m", into=nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"last\.bias is float32 in the file and float64 in the model"):
        load(tmp_path / "m", into=Users().double())


def test_tied_weights_load_into_a_users_model(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = tied()

    model, other = Tied(), Tied()
    save(model, tmp_path / "m")
    load(tmp_path / "m", into=other)
    assert_same(model, other)
    assert other.body[0].weight is other.body[1].weight


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)),
        lambda: nn.ParameterList([torch.ones(2)]),
        lambda: _changed(nn.Linear(3, 2), out_features=9),
        lambda: _changed(
            nn.Conv2d(1, 1, 3, padding_mode="reflect"), _reversed_padding_repeated_twice=[2] * 4
        ),
        one_layer_twice,
    ],
    ids=["parametrised", "parameters", "tampered", "tampered inside", "shared inside"],
)
def test_what_cannot_be_rebuilt_exactly_is_not_described(
    make: Callable[[], nn.Module], tmp_path: Path
) -> None:
    module = make()
    save(module, tmp_path / "m")
    with pytest.raises(ValueError, match="holds weights alone"):
        load(tmp_path / "m")
    assert load(tmp_path / "m", into=module) is module


def _changed(module: nn.Module, **attributes: object) -> nn.Module:
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


# files


def test_the_file_says_what_it_is_and_has_the_users_permissions(tmp_path: Path) -> None:
    save(nn.Linear(2, 1), tmp_path / "m")
    with safe_open(tmp_path / "m", framework="pt") as file:
        metadata = file.metadata()
    assert metadata["format"] == "bayesdrop-model"
    assert metadata["format_version"] == "2"
    assert metadata["bayesdrop_version"] == bd.__version__
    options = json.loads(metadata["description"])["architecture"]["options"]
    assert options == {"in_features": 2, "out_features": 1, "bias": True}
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_saving_refuses_what_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module"):
        save({"weight": torch.ones(2)}, tmp_path / "m")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`path` must be a file"):
        save(nn.Linear(2, 1), tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        save(nn.Linear(2, 1), tmp_path / "none" / "m")
    with warnings.catch_warnings(action="ignore"):
        lazy = nn.LazyLinear(3)
    with pytest.raises(ValueError, match="Run the model once first"):
        save(lazy, tmp_path / "m")
    with pytest.raises(ValueError, match=r"a tensor with values; got .*meta"):
        save(nn.Linear(2, 1, device="meta"), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_empty_tensors_and_scalars_round_trip(tmp_path: Path) -> None:
    tensors = {"empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5), "flag": torch.tensor([True, False])}
    write_tensors(tmp_path / "t", tensors, kind="kind", header={"a": [1, float("inf")]})
    read, header = read_tensors(tmp_path / "t", kind="kind")
    assert header == {"a": [1, float("inf")]}
    assert all(
        torch.equal(read[name], value) and read[name].dtype == value.dtype for name, value in tensors.items()
    )


def test_loading_refuses_files_that_are_not_models(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file .*none"):
        load(tmp_path / "none")
    with pytest.raises(ValueError, match="`path` must be a file"):
        load(tmp_path)
    good = tmp_path / "good"
    save(nn.Linear(20, 10), good)
    whole = good.read_bytes()
    generator = torch.Generator().manual_seed(0)
    noise = bytes(torch.randint(256, (5000,), generator=generator, dtype=torch.uint8).tolist())
    for content in (whole[:-1], whole[:100], whole[:4], b"", noise):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(ValueError, match=r"load: .*bad is damaged or not a safetensors file"):
            load(tmp_path / "bad")
    save_file({"weight": torch.ones(2)}, tmp_path / "bad")
    with pytest.raises(ValueError, match=r"bad must hold a bayesdrop-model; it is not from bayesdrop"):
        load(tmp_path / "bad")
    write_tensors(tmp_path / "bad", {}, kind="bayesdrop-checkpoint", header={})
    with pytest.raises(ValueError, match="it is a bayesdrop-checkpoint"):
        load(tmp_path / "bad")


def test_loading_refuses_a_newer_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FORMAT_VERSION", 3)
    save(nn.Linear(2, 1), tmp_path / "m")
    monkeypatch.setattr(files, "FORMAT_VERSION", 2)
    with pytest.raises(ValueError, match=r"m has format version 3, .* Install a newer bayesdrop"):
        load(tmp_path / "m")


@pytest.mark.parametrize("description", ["not json", "[1]", '{"aliases": 3}', '{"aliases": {"a": "b"}}'])
def test_loading_refuses_a_damaged_description(description: str, tmp_path: Path) -> None:
    metadata = {"format": "bayesdrop-model", "format_version": "1", "description": description}
    save_file({"weight": torch.ones(2)}, tmp_path / "m", metadata=metadata)
    with pytest.raises(ValueError, match=r"the description in .*m is damaged"):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    "name",
    [
        "subprocess.Popen",
        "builtins.eval",
        "torch.nn.modules.linear.Linear",
        "torch.nn.functional.relu",
        "torch.nn.Parameter",
        "torch.nn.None",
        "bayesdrop.storage.load",
        "Linear",
    ],
)
def test_nothing_but_modules_of_the_listed_namespaces_is_built(name: str, tmp_path: Path) -> None:
    node = {"class": "torch.nn.Sequential", "children": {"0": {"class": name, "options": {"args": "true"}}}}
    write_tensors(tmp_path / "m", {}, kind="bayesdrop-model", header={"architecture": node})
    with pytest.raises(ValueError, match=r"m cannot be trusted: it names '.*', which is not a module of"):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    "node",
    [
        {"class": "torch.nn.Linear", "options": {"in_features": "x"}},
        {"class": "torch.nn.Linear", "options": {"in_features": 10**9, "out_features": 10**9}},
        {"class": "torch.nn.Sequential", "children": {"a.b": {"class": "torch.nn.ReLU"}}},
        {"class": "torch.nn.Sequential", "children": {"forward": {"class": "torch.nn.ReLU"}}},
        {"class": "torch.nn.Sequential", "children": {"0": {"shared": "7"}}},
        {"options": {}},
        [],
    ],
)
def test_an_architecture_that_makes_no_sense_is_damaged(node: object, tmp_path: Path) -> None:
    write_tensors(tmp_path / "m", {}, kind="bayesdrop-model", header={"architecture": node})
    with pytest.raises(ValueError, match=r"the architecture in .*m is damaged"):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ({"weight": torch.ones(1, 2)}, "the file lacks bias"),
        (
            {"weight": torch.ones(1, 3), "bias": torch.ones(1)},
            r"weight has shape \(1, 3\) in the file and \(1, 2\)",
        ),
        ({"weight": torch.ones(1, 2), "bias": torch.ones(1), "c": torch.ones(1)}, "has no place for c"),
        ({"weight": torch.ones(1, 2), "bias": torch.ones(1).long()}, "bias has dtype torch.int64"),
    ],
)
def test_tensors_must_fit_the_architecture(tensors: dict[str, Tensor], sentence: str, tmp_path: Path) -> None:
    node = {"class": "torch.nn.Linear", "options": {"in_features": 2, "out_features": 1}}
    write_tensors(tmp_path / "m", tensors, kind="bayesdrop-model", header={"architecture": node})
    with pytest.raises(ValueError, match=f"m does not fit its own architecture: .*{sentence}"):
        load(tmp_path / "m")


def test_threads_save_and_load_side_by_side(tmp_path: Path) -> None:
    """Constructors draw numbers and warn; no generator and no filter of warnings is left moved."""
    model = nn.Sequential(nn.LSTM(3, 4, num_layers=2, dropout=0.1), nn.Linear(4, 2))
    filters, numbers, wrong = list(warnings.filters), [], []

    def work(index: int) -> None:
        for _ in range(10):
            bd.save(model, tmp_path / f"{index}")
            loaded = bd.load(tmp_path / f"{index}")
            wrong.extend(
                k for k, v in loaded.state_dict().items() if not torch.equal(v, model.state_dict()[k])
            )
            numbers.append(float(torch.rand((), dtype=torch.float64)))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(set(numbers)) == 60
    assert warnings.filters == filters
