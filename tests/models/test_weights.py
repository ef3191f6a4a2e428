"""Weights from other people's files: found by name, refused by shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.models import load_weights, vgg

safetensors_torch = pytest.importorskip("safetensors.torch")
SMALL: dict[str, Any] = {"channels": (4, 8), "head": (6, 6), "input_size": 8}


@pytest.fixture
def theirs() -> nn.Module:
    torch.manual_seed(3)
    return vgg(num_classes=7, batch_norm=True, **SMALL).eval()


@pytest.fixture
def file(theirs: nn.Module, tmp_path: Path) -> Path:
    path = tmp_path / "vgg.safetensors"
    safetensors_torch.save_file(theirs.state_dict(), path)
    return path


@pytest.mark.parametrize("kind", ["plain", "layer", "noise", "converted", "double", "frozen"])
def test_a_network_with_noise_takes_the_weights_of_one_without(
    kind: str, theirs: nn.Module, file: Path
) -> None:
    options: dict[str, Any] = {
        "layer": {"layer": bd.ConcreteDropout},
        "noise": {"noise": bd.layers.LearnableNoise},
    }
    net: nn.Module = vgg(num_classes=7, batch_norm=True, **SMALL, **options.get(kind, {}))
    if kind == "converted":
        net = bd.convert(net, "bernoulli", where="weights", p=0.2)
    if kind == "double":
        net = net.double()
    if kind == "frozen":
        net = bd.layers.freeze_batch_norm(net)
    assert load_weights(net, file) is net
    x = torch.randn(2, 3, 8, 8)
    dtype = next(net.parameters()).dtype
    torch.testing.assert_close(net.eval()(x.to(dtype)), theirs(x), check_dtype=False)


def test_names_are_mapped(theirs: nn.Module, tmp_path: Path) -> None:
    other = {
        f"net.{name}".replace("classifier", "head"): value for name, value in theirs.state_dict().items()
    }
    path = tmp_path / "other.safetensors"
    safetensors_torch.save_file({**other, "epoch": torch.zeros(())}, path)
    x = torch.randn(2, 3, 8, 8)
    names: list[Any] = [
        {"net": "", "net.head": "classifier", "epoch": None},
        lambda name: None if name == "epoch" else name.removeprefix("net.").replace("head", "classifier"),
    ]
    for mapped in names:
        net = load_weights(vgg(num_classes=7, batch_norm=True, **SMALL), path, names=mapped)
        assert torch.equal(net.eval()(x), theirs(x))


def unchanged(net: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_file_that_does_not_fit_is_refused_as_a_whole(file: Path) -> None:
    net = vgg(num_classes=10, batch_norm=True, **SMALL)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    words = r"'classifier.6.bias' is .*; 'classifier.6.weight' is \(7, 6\) in the file and \(10, 6\) in the"
    with pytest.raises(ValueError, match=words):
        load_weights(net, file)
    with pytest.raises(ValueError, match=r"has nothing for 'classifier.6.weight', 'classifier.6.bias'"):
        load_weights(net, file, names={"classifier.6": None})
    with pytest.raises(ValueError, match=r"the model has no place for 'features.1.bias', .* and 6 more"):
        load_weights(vgg(num_classes=7, **SMALL), file)
    with pytest.raises(ValueError, match=r"are both meant for 'features.0.weight'"):
        load_weights(net, file, names=lambda name: "features.0.weight")
    with pytest.raises(ValueError, match=r"`names` must be names or paths that the file has; got 'head'"):
        load_weights(net, file, names={"head": "classifier", "classifier.6": None}, partial=True)
    assert unchanged(net, before)
    load_weights(net, file, names={"classifier.6": None}, partial=True)
    assert not unchanged(net, before)
    assert torch.equal(net.classifier[6].weight, before["classifier.6.weight"])


def test_what_is_no_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(nn.Linear(2, 2).state_dict(), path)
    with pytest.raises(ValueError, match="is damaged or not a safetensors file"):
        load_weights(nn.Linear(2, 2), path)
    with pytest.raises(FileNotFoundError, match="load_weights: there is no file"):
        load_weights(nn.Linear(2, 2), tmp_path / "none")
    safetensors_torch.save_file(
        {"weight": torch.zeros(2, 2, dtype=torch.int64), "bias": torch.zeros(2)}, path
    )
    with pytest.raises(ValueError, match=r"'weight' holds torch.int64 and the model's torch.float32"):
        load_weights(nn.Linear(2, 2), path)


def test_files_of_our_own_are_read_too(theirs: nn.Module, tmp_path: Path) -> None:
    bd.save(theirs, tmp_path / "ours.safetensors")
    net = load_weights(vgg(num_classes=7, batch_norm=True, **SMALL), tmp_path / "ours.safetensors")
    assert torch.equal(net.features[0].weight, theirs.features[0].weight)  # type: ignore[union-attr, index]
