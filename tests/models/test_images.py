"""VGG, FC-DenseNet and U-Net: their published sizes, their shapes, and where their noise is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.layers import ConcreteNoise, LearnableNoise
from bayesdrop.models import DenseBlock, UShape, fc_densenet, unet, vgg


def size(net: nn.Module) -> int:
    return sum(value.numel() for value in net.parameters())


@pytest.mark.parametrize(
    ("depth", "plain", "normed"),
    [
        (11, 132_863_336, 132_868_840),
        (13, 133_047_848, 133_053_736),
        (16, 138_357_544, 138_365_992),
        (19, 143_667_240, 143_678_248),
    ],
)
def test_vgg_has_torchvisions_parameters_and_names(depth: Any, plain: int, normed: int) -> None:
    with torch.device("meta"):
        net = vgg(depth, 1000)
        assert size(net) == plain
        assert size(vgg(depth, 1000, batch_norm=True)) == normed
    assert list(net.state_dict())[:2] == ["features.0.weight", "features.0.bias"]
    shapes = {name: tuple(value.shape) for name, value in net.state_dict().items() if "weight" in name}
    assert shapes["classifier.0.weight"] == (4096, 512 * 7 * 7)
    assert shapes["classifier.3.weight"] == (4096, 4096)
    assert shapes["classifier.6.weight"] == (1000, 4096)
    dropouts = [name for name, part in net.named_modules() if isinstance(part, nn.Dropout)]
    assert dropouts == ["classifier.2", "classifier.5"]


def test_vgg_takes_plans_widths_and_sizes() -> None:
    flat = vgg(channels=(16, 32, 32, 64, 64, 128, 128), head=(256, 256), input_size=32)
    nested = vgg(channels=((16,), (32, 32), (64, 64), (128, 128)), head=(256, 256), input_size=32)
    assert repr(flat) == repr(nested)
    assert flat(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert sum(isinstance(part, nn.MaxPool2d) for part in flat.modules()) == 4
    assert flat.classifier[0].in_features == 128 * 2 * 2
    quarter: Any = vgg(16, width=0.25, input_size=32, batch_norm=True)
    convolutions = [part.out_channels for part in quarter.modules() if isinstance(part, nn.Conv2d)]
    assert convolutions == [16] * 2 + [32] * 2 + [64] * 3 + [128] * 6
    assert quarter.classifier[0].weight.shape == (1024, 128)
    wide: Any = vgg(channels=(4, 8), head=5, input_size=(64, 20))
    assert wide.classifier[0].weight.shape == (5, 8 * 7 * 5)


@pytest.mark.parametrize("kind", ["nn", "layer", "noise"])
def test_vgg_has_the_noise_that_is_asked_for(kind: str) -> None:
    options: dict[str, Any] = {
        "nn": {},
        "layer": {"layer": bd.ConcreteDropout, "length_scale": 0.1},
        "noise": {"noise": LearnableNoise, "per": "layer"},
    }[kind]
    net = vgg(channels=(4, 8), head=(6, 6), input_size=8, p=0.3, **options).eval()
    x = torch.randn(3, 3, 8, 8)
    found = bd.audit(net, x)
    random = [site.path for site in found.sites if site.random]
    places = (3, 6) if kind == "layer" else (2, 5)
    assert random == [f"classifier.{place}" for place in places]
    assert sum(isinstance(part, nn.Dropout) for part in net.modules()) == (2 if kind == "nn" else 0)
    assert bool((bd.predict(net, x, num_draws=5).epistemic > 0).any())
    none = vgg(channels=(4,), head=(6,), input_size=8, p=0)
    assert not any(isinstance(part, nn.Dropout) for part in none.modules())


@pytest.mark.parametrize(("depth", "millions"), [(103, 9.4), (67, 3.5), (56, 1.4)])
def test_fc_densenet_has_its_published_size(depth: Any, millions: float) -> None:
    """With the means and variances of BatchNorm, as the publication counts; it prints 1.5 for the 56."""
    with torch.device("meta"):
        net = fc_densenet(depth)
    counted = size(net) + sum(value.numel() for name, value in net.named_buffers() if "running" in name)
    assert round(counted / 1e6, 1) == millions
    layers = sum(isinstance(part, nn.Conv2d | nn.ConvTranspose2d) for part in net.modules())
    assert layers == depth


def test_the_stacks_of_the_103_are_as_wide_as_published() -> None:
    with torch.device("meta"):
        net = fc_densenet(103)
    stacks = []

    def note(block: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        new = output.shape[1]
        stacks.append(new if block.keep_input else args[0].shape[1] + new)

    for block in net.modules():
        if isinstance(block, DenseBlock):
            block.register_forward_hook(note)
    net.eval()(torch.zeros(1, 3, 64, 64, device="meta"))
    assert stacks == [112, 192, 304, 464, 656, 896, 1088, 816, 576, 384, 256]


def test_only_new_features_are_taken_up() -> None:
    with torch.device("meta"):
        net = fc_densenet(103)
    assert [part.in_channels for part in net.grow] == [240, 192, 160, 112, 80]


NETS: dict[str, Any] = {
    "fc_densenet": lambda **options: fc_densenet(
        None, 3, blocks=(1, 2), middle=2, growth=4, first=8, **options
    ),
    "unet": lambda **options: unet(3, channels=(4, 6, 8), **options),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("shape", [(8, 8), (9, 14), (23, 5)])
def test_outputs_are_as_large_as_images_of_any_size(name: str, shape: tuple[int, int]) -> None:
    assert NETS[name]()(torch.zeros(1, 3, *shape)).shape == (1, 3, *shape)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("where", ["all", "middle"])
@pytest.mark.parametrize("kind", ["nn", "nn elementwise", "layer", "noise"])
def test_noise_is_everywhere_or_in_the_middle(name: str, where: str, kind: str) -> None:
    options: dict[str, Any] = {
        "nn": {},
        "nn elementwise": {"elementwise": True},
        "layer": {"layer": bd.ConcreteDropout},
        "noise": {"noise": ConcreteNoise, "temperature": 0.3},
    }[kind]
    net = NETS[name](where=where, **options).eval()
    x = torch.randn(2, 3, 8, 8)
    random = [site.path for site in bd.audit(net, x).sites if site.random]
    counts = {"fc_densenet": {"all": 2 * 3 + 2 + 2, "middle": 2}, "unet": {"all": 5, "middle": 1}}
    assert len(random) == counts[name][where]
    assert where == "all" or all(path.startswith("middle") for path in random)
    kinds = {type(part) for part in net.modules()}
    assert (nn.Dropout2d in kinds, nn.Dropout in kinds) == (kind == "nn", kind == "nn elementwise")


@pytest.mark.parametrize("name", NETS)
def test_files_hold_the_network(name: str, tmp_path: Path) -> None:
    net = NETS[name](noise=ConcreteNoise).eval()
    bd.save(net, tmp_path / "net.safetensors")
    loaded = bd.load(tmp_path / "net.safetensors")
    assert isinstance(loaded, UShape)
    x = torch.randn(1, 3, 9, 8)
    assert torch.equal(loaded(x), net(x))
    assert repr(loaded) == repr(net)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ValueError, match=r"vgg: `depth` must be one of 11, 13, 16, 19; got 12"):
        vgg(12)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"vgg: `depth` must be one of .*, or None with `channels`"):
        vgg(16, channels=(3,))
    with pytest.raises(ValueError, match=r"vgg: `input_size` must be .*; got 16\. Each of the 5 stages"):
        vgg(16, input_size=16)
    with pytest.raises(ValueError, match=r"fc_densenet: `depth` must be one of 56, 67, 103; got 57"):
        fc_densenet(57)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"fc_densenet: `noise` must be None where there is a `layer`"):
        fc_densenet(56, noise=ConcreteNoise, layer=bd.ConcreteDropout)
    with pytest.raises(ValueError, match=r"unet: `options` must be none without `layer` or `noise`"):
        unet(2, temperature=0.1)
    with pytest.raises(ValueError, match=r"unet: `channels` must be those of at least two levels"):
        unet(2, channels=(4,))
    with pytest.raises(TypeError, match=r"vgg: `layer` must be a function or a class that makes modules"):
        vgg(11, layer=nn.Linear(2, 2))


@pytest.mark.parametrize("make", [unet, fc_densenet])
def test_noise_of_every_pixel_is_asked_of_noise_modules_too(make: Callable[..., nn.Module]) -> None:
    small = {"channels": (4, 6)} if make is unet else {"blocks": (1, 1), "growth": 4, "first": 4}
    net = make(num_classes=2, noise=ConcreteNoise, elementwise=True, p=0.2, **small)
    noises = [part for part in net.modules() if isinstance(part, ConcreteNoise)]
    assert noises
    assert all(part.elementwise for part in noises)
