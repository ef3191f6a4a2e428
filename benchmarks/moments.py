"""How close moments without draws come to 10,000 draws, and their cost: the table of docs/moments.md.

Networks are trained on scikit-learn's diabetes data (ten inputs) or 8 x 8 digits, but for the first three.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.predict.moments import FOLLOWED, moments_of_tape
from bayesdrop.trace import Subject, Tape, probe, recorded

NUM_DRAWS = 10_000


def perceptron(inputs: int, p: float, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """inputs-50-50-1 with dropout before every layer."""
    parts: list[nn.Module] = []
    for wide, narrow in ((inputs, 50), (50, 50), (50, 1)):
        parts += [nn.Dropout(p), nn.Linear(wide, narrow), activation()]
    return nn.Sequential(*parts[:-1])


def lenet(*, everywhere: bool) -> nn.Sequential:
    """Two convolutions and two dense layers; dropout before the last, or before all but the first."""
    p = 0.5 if everywhere else 0.0
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(p) if p else nn.Identity(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(p) if p else nn.Identity(), nn.Linear(128, 64), nn.ReLU(),
        nn.Dropout(0.5), nn.Linear(64, 10),
    )  # fmt: skip


class Block(nn.Module):
    """x + conv(dropout(relu(conv(x)))), batch norm after each convolution."""

    def __init__(self, channels: int, dropout: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Shapes as x."""
        h = self.dropout(F.relu(self.norms[0](self.first(x))))
        return F.relu(x + self.norms[1](self.second(h)))


def residual(dropout: Callable[[float], nn.Module]) -> nn.Sequential:
    """Three residual blocks of 16 channels, then a mean over positions."""
    blocks = [Block(16, dropout(0.2)) for _ in range(3)]
    stem = nn.Conv2d(1, 16, 3, padding=1)
    return nn.Sequential(stem, nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def diabetes() -> tuple[Tensor, Tensor]:
    """Standardised inputs and targets."""
    from sklearn.datasets import load_diabetes

    x, y = (torch.as_tensor(part, dtype=torch.float32) for part in load_diabetes(return_X_y=True))
    y = y.unsqueeze(1)
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def digits() -> tuple[Tensor, Tensor]:
    """Images (N, 1, 8, 8) in [0, 1], and labels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return torch.as_tensor(x, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.as_tensor(y)


def trained(model: nn.Module, data: tuple[Tensor, Tensor], epochs: int) -> nn.Module:
    """The model after some epochs of Adam."""
    loss = F.cross_entropy if data[1].dim() == 1 else F.mse_loss
    bd.fit(
        model, data, lambda net, x, y: loss(net(x), y), epochs=epochs, batch_size=64, lr=3e-3, progress=False
    )
    return model.eval()


def tape_of(model: nn.Module, x: Tensor) -> Tape:
    """The recorded pass."""
    subject, inputs = Subject(model), ((x,), {})
    with torch.no_grad():
        _, recorder, output = recorded(subject, inputs, findings=probe(subject, inputs))
    tape = recorder.tape(output)
    assert tape is not None, recorder.broken
    return tape


def compare(name: str, model: nn.Module, x: Tensor) -> None:
    """Print rows of the table."""
    model.eval()
    start = time.perf_counter()
    drawn = bd.predict(model, x, num_draws=NUM_DRAWS, keep_draws=False)
    one_draw = (time.perf_counter() - start) / NUM_DRAWS
    std = drawn.epistemic.sqrt()
    tape = tape_of(model, x)
    cells = []
    for followed in (FOLLOWED, 0):
        try:
            moments_of_tape(tape, followed=followed, strict=followed > 0)
        except ValueError:
            cells += ["not possible", "", ""]
            continue
        cost = math.inf
        for _ in range(3):
            start = time.perf_counter()
            mean, variance = moments_of_tape(tape, followed=followed, strict=False)
            cost = min(cost, (time.perf_counter() - start) / one_draw)
        mean_error = ((mean - drawn.mean) / std).square().mean().sqrt()
        ratio = variance.sqrt() / std
        error, bias = (ratio - 1).square().mean().sqrt(), ratio.mean() - 1
        cells += [f"{mean_error:.3f}", f"{error:.1%} ({bias:+.1%})", f"{cost:.0f}"]
    print(f"| {name} | {' | '.join(cells[:3])} | {cells[4]} |", flush=True)


def main() -> None:
    """All networks."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| network, p | mean, in std | std | cost, in draws | std, nothing followed |")
    print("|---|---|---|---|---|")
    x = torch.randn(30, 13)
    for p in (0.05, 0.2, 0.5):
        compare(f"MLP 13-50-50-1, untrained, {p}", perceptron(13, p), x)
    table = diabetes()
    for p in (0.05, 0.2, 0.5):
        compare(f"MLP 10-50-50-1, {p}", trained(perceptron(10, p), table, 40), table[0][:30])
    tanh = trained(perceptron(10, 0.2, nn.Tanh), table, 40)
    compare("the same with tanh, 0.2", tanh, table[0][:30])
    images = digits()
    few = images[0][:4]
    compare("CNN, dropout before the last layer, 0.5", trained(lenet(everywhere=False), images, 5), few)
    compare("CNN, dropout everywhere, 0.5", trained(lenet(everywhere=True), images, 5), few)
    compare("residual CNN, `Dropout2d`, 0.2", trained(residual(nn.Dropout2d), images, 3), few)
    compare("the same with `Dropout`, 0.2", trained(residual(nn.Dropout), images, 3), few)


if __name__ == "__main__":
    main()
