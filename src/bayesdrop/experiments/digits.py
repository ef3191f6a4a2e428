"""LeNet on MNIST, trained once and shared by several experiments."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from bayesdrop.data.mnist import MNIST, load_mnist
from bayesdrop.experiments.caffe import MOMENTUM, cross_entropy, descent
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.fit import fit
from bayesdrop.models.lenet import lenet

__all__ = ["Recipe", "as_inputs", "trained_lenet"]

#: raised when networks from before must not be used: the first weights of revision 1 did not follow the seed
REVISION = 2


@dataclass(frozen=True)
class Recipe:
    """How LeNet is trained: as in Caffe, except that the learning rate falls to 0 on a straight line."""

    where: Literal["last", "all"] = "last"  #: of dropout
    p: float = 0.5
    epochs: int = 8
    batch_size: int = 64
    lr: float = 0.02  #: at first; biases have twice as much
    momentum: float = MOMENTUM
    weight_decay: float = 5e-4  #: lambda of (lambda / 2) |W|^2
    num_train: int = 60_000
    seed: int = 0


def as_inputs(images: Tensor) -> Tensor:
    """Images (N, 28, 28) of bytes as inputs (N, 1, 28, 28) in [0, 1)."""
    # Channels last, a third faster in convolutions on a CPU.
    return (images.float() / 256).unsqueeze(1).contiguous(memory_format=torch.channels_last)


def trained_lenet(recipe: Recipe, cache: PieceCache, *, progress: bool = False) -> nn.Sequential:
    """LeNet trained on MNIST, in eval mode: from the cache that all experiments share, or anew.

    Args:
        recipe: how it is trained.
        cache: of the experiment that asks; the network is kept beside it.
        progress: show a bar.
    """
    shared = PieceCache("mnist-lenet", folder=cache.folder.parent, revision=REVISION, fresh=cache.fresh)
    state = shared.get(asdict(recipe), lambda: _trained(recipe, load_mnist(), progress))
    net = _network(recipe)
    net.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    return net.eval()


def _network(recipe: Recipe) -> nn.Sequential:
    net = lenet(p=recipe.p, where=recipe.where)
    for value in net.parameters():
        if value.dim() == 4:
            value.data = value.data.contiguous(memory_format=torch.channels_last)
    return net


def _trained(recipe: Recipe, data: MNIST, progress: bool) -> dict[str, Any]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        net = _network(recipe)
        # Random numbers of the training follow those of the first weights.
        generator = torch.Generator().set_state(torch.get_rng_state())
    train(
        net, data.x_train[: recipe.num_train], data.y_train[: recipe.num_train], recipe, generator, progress
    )
    return {name: value.numpy() for name, value in net.state_dict().items()}


def train(
    net: nn.Module,
    images: Tensor,
    y: Tensor,
    recipe: Recipe,
    generator: torch.Generator,
    progress: bool = False,
) -> None:
    """Train in place: stochastic gradient descent with momentum on the cross-entropy.

    Args:
        net: a classifier of `as_inputs`.
        images: (N, 28, 28) bytes.
        y: (N,) labels.
        recipe: of which `epochs`, `batch_size`, `lr`, `momentum` and `weight_decay` are used.
        generator: of the order of the images and of the noise.
        progress: show a bar.
    """
    steps = recipe.epochs * -(-len(y) // recipe.batch_size)
    fit(
        net,
        (as_inputs(images), y),
        cross_entropy,
        epochs=recipe.epochs,
        batches=lambda epoch: torch.randperm(len(y)).split(recipe.batch_size),  # type: ignore[no-untyped-call]
        lr=recipe.lr,
        optimizer=lambda groups: descent(net, recipe.lr, recipe.weight_decay, recipe.momentum),
        scheduler=lambda made: LambdaLR(made, lambda step: 1 - step / steps),
        generator=generator,
        progress=progress,
    )
