"""A small file from a stranger takes little memory and few steps before it is refused, and never hangs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayesdrop as bd
from bayesdrop.storage import load, read_tensors, save, write_tensors
from bayesdrop.storage.weightless import TooLarge, Weightless

LINEAR = {"class": "torch.nn.Linear", "options": {"in_features": 26_000, "out_features": 26_000}}
IDENTITY = {"class": "torch.nn.Identity"}


def encoder(layer: dict[str, Any], count: int) -> dict[str, Any]:
    options = {"encoder_layer": {"module": layer, "place": "layers.0"}, "num_layers": count}
    return {"class": "torch.nn.TransformerEncoder", "options": options}


def wrapped(kind: str, **options: Any) -> dict[str, Any]:
    layer = {"class": "torch.nn.Linear", "options": {"in_features": 3 * 10**8, "out_features": 1}}
    return {
        "class": f"bayesdrop.layers.{kind}",
        "options": {"layer": {"module": layer, "place": "layer"}, **options},
    }


def doubling(count: int) -> dict[str, Any]:
    children: dict[str, Any] = {"0": IDENTITY}
    for place in range(1, count):
        pair = {name: {"shared": f"{place - 1}"} for name in ("a", "b")}
        children[f"{place}"] = {"class": "torch.nn.Sequential", "children": pair}
    return {"class": "torch.nn.Sequential", "children": children}


def deep(count: int) -> dict[str, Any]:
    node: dict[str, Any] = IDENTITY
    for _ in range(count):
        node = {"class": "torch.nn.Sequential", "children": {"0": node}}
    return node


#: each describes far more than its file holds, or has no end
HOSTILE: dict[str, dict[str, Any]] = {
    "2.7 GB of weights": LINEAR,
    "many of one layer": encoder(LINEAR, 10**9),
    "layers without tensors": encoder(IDENTITY, 10**9),
    "layers of layers": encoder(encoder(encoder(IDENTITY, 900), 900), 900),
    "steps of an LSTM": {
        "class": "torch.nn.LSTM",
        "options": {"input_size": 1, "hidden_size": 1, "num_layers": 10**9},
    },
    "a transformer": {"class": "torch.nn.Transformer", "options": {"num_encoder_layers": 10**9}},
    "rates of a wide layer": wrapped("LearnableDropout"),
    "a rate for every weight": wrapped("VariationalGaussianDropout", per="weight"),
    "a width for every weight": wrapped("MeanFieldGaussian"),
    "paths that double": doubling(60),
    "a module in itself": {"class": "torch.nn.Sequential", "children": {"0": {"shared": ""}}},
    "a module in itself, deeper": {
        "class": "torch.nn.Sequential",
        "children": {"0": {"class": "torch.nn.Sequential", "children": {"x": {"shared": "0"}}}},
    },
    "too deep": deep(5000),
    "a lazy layer": {"class": "torch.nn.LazyLinear", "options": {"out_features": 2}},
    "NaN": wrapped("BernoulliDropout", p={"tensor": [float("nan")]}),
    "an integer beyond all": {
        "class": "torch.nn.Linear",
        "options": {"in_features": 10**400, "out_features": 1},
    },
}


def peak() -> int:
    """Kilobytes, the most since the last reset."""
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("with_tensors", [False, True])
def test_a_small_hostile_file_is_refused_before_it_takes_memory(
    name: str, with_tensors: bool, tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    tensors = {"weight": torch.ones(2, 2), "bias": torch.ones(2)} if with_tensors else {}
    if name == "too deep":
        text = (
            '{"class":"torch.nn.Sequential","children":{"0":' * 5000
            + '{"class":"torch.nn.ReLU"}'
            + "}}" * 5000
        )
        metadata = {
            "format": "bayesdrop-model",
            "format_version": "1",
            "description": f'{{"architecture":{text}}}',
        }
        from safetensors.torch import save_file

        save_file(tensors, path, metadata=metadata)
    else:
        write_tensors(path, tensors, kind="bayesdrop-model", header={"architecture": HOSTILE[name]})
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")
        before = peak()
    with pytest.raises(ValueError, match=r"load: .*m\.safetensors"):
        load(path)
    if reset.exists():
        assert peak() - before < 80_000


def test_weightless_construction_counts_what_it_does_not_take() -> None:
    with Weightless(most_bytes=10**12, most_steps=100) as mode:
        layer = nn.Linear(10**4, 10**4)
        small = torch.tensor([0.25, 0.5])
        assert bool((small < 1).all())
        spread = small[0].expand(10**6).clone()
        widened = torch.ones(3).double()
    assert layer.weight.is_meta
    assert spread.is_meta
    assert not small.is_meta
    assert not widened.is_meta
    assert 10**12 - mode.bytes_left >= 4 * 10**8
    with pytest.raises(TooLarge, match="far larger"), Weightless(most_bytes=10**6, most_steps=100):
        nn.Linear(10**4, 10**4)
    with pytest.raises(TooLarge, match="far more steps"), Weightless(most_bytes=10**6, most_steps=10):
        nn.LSTM(1, 1, num_layers=100)


def test_large_models_and_deep_ones_are_no_hostile_ones(tmp_path: Path) -> None:
    wide = nn.Sequential(
        bd.LearnableDropout(nn.Linear(3000, 50)),
        bd.BernoulliDropout(nn.Linear(50, 3), p=torch.linspace(0.1, 0.2, 50)),
        bd.BernoulliDropout(nn.Linear(3000, 2), p=torch.linspace(0.1, 0.2, 3000)),
    ).half()
    nested: nn.Module = nn.Linear(2, 2)
    for _ in range(60):
        nested = nn.Sequential(nested)
    layers = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 1, 4, bias=False), 40, enable_nested_tensor=False
    )
    many = nn.Sequential(*(nn.Identity() for _ in range(3000)))
    for model in (wide, nested, layers, many):
        save(model, tmp_path / "m")
        loaded = load(tmp_path / "m")
        assert f"{loaded}" == f"{model}"
        assert loaded.state_dict().keys() == model.state_dict().keys()


def test_a_model_that_is_too_deep_for_a_description_is_saved_as_weights(tmp_path: Path) -> None:
    def make() -> nn.Module:
        nested: nn.Module = nn.Linear(2, 2)
        for _ in range(150):
            nested = nn.Sequential(nested)
        return nested

    save(make(), tmp_path / "m")
    with pytest.raises(ValueError, match=r"holds weights alone: .*nested more than"):
        load(tmp_path / "m")
    load(tmp_path / "m", into=make())


@pytest.mark.parametrize(
    "header",
    [
        {"aliases": {"x": ["weight"]}},
        {"aliases": {"weight": "weight"}},
        {"aliases": {"forward": "weight"}},
        {"aliases": {"bias": "weight"}},
        {"frozen": "weight"},
        {"frozen": [1]},
        {"frozen": ["other"]},
        {"architecture": {"class": 3}},
        {"architecture": {"shared": 3}},
        {"architecture": {"shared": "0"}},
        {"architecture": {"class": "torch.nn.Linear", "options": []}},
        {"architecture": {"class": "torch.nn.Linear", "children": [1]}},
        {
            "architecture": {
                "class": "torch.nn.Linear",
                "options": {"in_features": {"module": 3, "place": ""}},
            }
        },
        {"architecture": {"class": "torch.nn.Linear", "options": {"in_features": {"module": IDENTITY}}}},
        {"architecture": {"class": "torch.nn.Linear", "options": {"in_features": {"tensor": ["x"]}}}},
        {"architecture": {"class": "torch.nn.Linear", "options": {"in_features": {"tuple": 3}}}},
        {"architecture": {"class": "torch.nn.Linear", "options": {"in_features": {"dict": []}}}},
        {"architecture": {"class": "torch.nn.Linear", "options": {"in_features": {}}}},
    ],
)
def test_descriptions_of_wrong_types_are_refused_by_name(header: dict[str, Any], tmp_path: Path) -> None:
    node = {"class": "torch.nn.Linear", "options": {"in_features": 2, "out_features": 2}}
    tensors = {"weight": torch.ones(2, 2), "bias": torch.ones(2)}
    write_tensors(tmp_path / "m", tensors, kind="bayesdrop-model", header={"architecture": node, **header})
    with pytest.raises(ValueError, match=r"load: .*/m"):
        load(tmp_path / "m")


def test_a_count_that_multiplies_a_list_takes_no_memory(tmp_path: Path) -> None:
    """A dilation that is a list of a pair, times a kernel's size less one, was 16 GB."""
    path = tmp_path / "m"
    save(nn.Sequential(nn.Conv2d(1, 2, 3)), path)
    tensors, header = read_tensors(path, kind="bayesdrop-model")
    options = header["architecture"]["children"]["0"]["options"]
    options |= {"kernel_size": 10**9, "padding": "same", "dilation": [{"tuple": [1, 1]}]}
    write_tensors(path, tensors, kind="bayesdrop-model", header=header)
    with pytest.raises(ValueError, match=r"a count of 1e\+09 is far larger than its tensors are"):
        load(path)
