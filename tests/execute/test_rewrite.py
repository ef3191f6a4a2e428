"""Tapes that are rewritten give what the model gives, and leave alone what is not theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.execute.rewrite import fold_norms, in_place
from bayesdrop.trace import Subject, Tape, probe, recorded


class Net(nn.Module):
    """Noise, a layer, a norm, and whatever comes after."""

    def __init__(self, layer: nn.Module, norm: nn.Module, after: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.norm, self.after = layer, norm, after
        for name, buffer in norm.named_buffers():
            if "running" in name:
                buffer.uniform_(0.5, 2.0)
        for parameter in norm.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(x, 0.3)
        return self.after(self.norm(self.layer(h)), x)


def same(h: Tensor, x: Tensor) -> Tensor:
    return h


def residual(h: Tensor, x: Tensor) -> Tensor:
    return F.relu(h + h.mean()) + 1 + x.mean()


def twice(h: Tensor, x: Tensor) -> Tensor:
    rectified = F.relu(h, inplace=False)
    return rectified + h


def wider(h: Tensor, x: Tensor) -> Tensor:
    return F.relu(h) + torch.ones(2, *h.shape, dtype=torch.float64).sum(0)


LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 6), lambda: nn.BatchNorm1d(6), (5, 4)),
    "no bias": (lambda: nn.Linear(4, 6, bias=False), lambda: nn.BatchNorm1d(6, affine=False), (5, 4)),
    "conv": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), lambda: nn.BatchNorm2d(6), (5, 4, 8, 8)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, groups=2), lambda: nn.BatchNorm2d(6, eps=0.1), (5, 4, 8, 8)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, dilation=2), lambda: nn.BatchNorm1d(6), (5, 4, 8)),
    "conv3d": (lambda: nn.Conv3d(4, 6, 2), lambda: nn.BatchNorm3d(6), (2, 4, 4, 4, 4)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3), lambda: nn.BatchNorm2d(6), (5, 4, 8, 8)),
    "rows and positions": (lambda: nn.Linear(4, 6), lambda: nn.BatchNorm1d(3), (5, 3, 4)),
}  # fmt: skip


def tape_of(model: nn.Module, x: Tensor) -> tuple[Tape, Tensor, list[Tensor]]:
    subject, inputs = Subject(model), ((x,), {})
    with torch.no_grad():
        draw, recorder, output = recorded(subject, inputs, findings=probe(subject, inputs))
    tape = recorder.tape(output)
    assert tape is not None
    noise = [
        draw.noise._held[leaf.key, leaf.shape, getattr(leaf.sample, "start", None)] for leaf in tape.leaves
    ]
    return tape, output, noise


@pytest.mark.parametrize("after", [same, residual, twice, wider])
@pytest.mark.parametrize("name", LAYERS)
def test_rewritten_tapes_give_what_the_model_gives(
    name: str, after: Callable[[Tensor, Tensor], Tensor]
) -> None:
    layer, norm, shape = LAYERS[name]
    torch.manual_seed(0)
    model, x = Net(layer(), norm(), after).eval(), torch.randn(shape)
    tape, output, noise = tape_of(model, x)
    constants = {id(a): a for op in tape.ops for a in op.args if isinstance(a, Tensor)}
    before = {key: value.clone() for key, value in constants.items()}
    joined = fold_norms(tape)
    rewritten = in_place(joined)
    with torch.no_grad():
        for _ in range(2):  # nothing that was kept is written over
            torch.testing.assert_close(rewritten.run(*noise), output, rtol=1e-4, atol=1e-5)
        stacked = torch.vmap(rewritten.run)(*(torch.stack([z, z]) for z in noise))
    torch.testing.assert_close(stacked[1], output, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(value, before[key]) for key, value in constants.items())
    folds = name not in ("transposed", "rows and positions")
    assert len(joined.ops) == len(tape.ops) - folds


def test_a_value_that_is_used_again_is_not_written_over() -> None:
    model, x = Net(nn.Linear(4, 4), nn.Identity(), twice), torch.randn(3, 4)
    tape, output, noise = tape_of(model, x)
    rewritten = in_place(tape)
    names = [op.name for op in rewritten.ops]
    assert "relu_" not in names  # h is added afterwards
    assert "_added" in names
    torch.testing.assert_close(rewritten.run(*noise), output)


def test_a_norm_whose_input_is_used_elsewhere_stays() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)

        def forward(self, x: Tensor) -> Tensor:
            h = self.layer(F.dropout(x, 0.5))
            return h + self.norm(h)  # type: ignore[no-any-return]

    model, x = Both().eval(), torch.randn(5, 4)
    model.norm.running_mean += 3  # type: ignore[operator]
    tape, output, noise = tape_of(model, x)
    assert len(fold_norms(tape).ops) == len(tape.ops)
    torch.testing.assert_close(in_place(fold_norms(tape)).run(*noise), output)


def test_whole_networks_give_the_same_draws() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout2d(0.4),
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 9, 4),
    ).eval()  # fmt: skip
    for module in net:
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            module.running_var.uniform_(0.3, 3)  # type: ignore[union-attr]
    x = torch.randn(6, 3, 8, 8)
    whole = bd.predict(net, x, num_draws=6, plan="whole model", keep_draws=True).draws
    for plan in (None, "stacked", "loop"):
        found = bd.predict(net, x, num_draws=6, plan=plan, keep_draws=True).draws  # type: ignore[arg-type]
        torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5)
