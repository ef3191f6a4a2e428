"""LeNet on MNIST, trained once and shared by the experiments on digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bayesdrop.data.mnist import MNIST, load_mnist
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.models.lenet import lenet
from bayesdrop.progress import progress_bar
from bayesdrop.randomness import random_state_kept

__all__ = ["Recipe", "as_inputs", "trained_lenet"]


@dataclass(frozen=True)
class Recipe:
    """How LeNet is trained: Caffe's solver, but for a learning rate that falls to 0 on a straight line."""

    where: Literal["last", "all"] = "last"  #: of dropout
    p: float = 0.5
    epochs: int = 8
    batch_size: int = 64
    lr: float = 0.02  #: at first; biases have twice as much
    momentum: float = 0.9
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
    shared = PieceCache("mnist-lenet", folder=cache.folder.parent, fresh=cache.fresh)
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
    x, y = as_inputs(data.x_train[: recipe.num_train]), data.y_train[: recipe.num_train]
    with random_state_kept(), progress_bar("LeNet", recipe.epochs, show=progress) as advance:
        torch.manual_seed(recipe.seed)
        net = _network(recipe).train()
        sgd(net, x, y, recipe, advance)
    return {name: value.numpy() for name, value in net.state_dict().items()}


def sgd(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    advance: Callable[[int, str], None] = lambda steps, note: None,
) -> None:
    """Train in place: stochastic gradient descent with momentum on the cross-entropy.

    Args:
        net: in train mode.
        x: (N, 1, 28, 28).
        y: (N,) labels.
        recipe: its `epochs`, `batch_size`, `lr`, `momentum` and `weight_decay` count.
        advance: told of every epoch.
    """
    steps = recipe.epochs * ((len(x) - 1) // recipe.batch_size + 1)
    biases = [value for name, value in net.named_parameters() if name.endswith("bias")]
    weights = [value for name, value in net.named_parameters() if not name.endswith("bias")]
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": biases, "lr": 2 * recipe.lr}]
    optimizer = torch.optim.SGD(
        groups,
        lr=recipe.lr,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(recipe.epochs):
        total = 0.0
        for rows in _batches(len(x), recipe.batch_size):
            optimizer.zero_grad()
            loss = cross_entropy(net(x[rows]), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        advance(1, f"loss {total / len(x):.4f}")


def _batches(size: int, batch_size: int) -> Iterator[Tensor]:
    yield from torch.randperm(size).split(batch_size)  # type: ignore[no-untyped-call]
