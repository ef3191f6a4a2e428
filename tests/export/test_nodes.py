"""Every function that can be written to an ONNX file gives there what torch gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.export.nodes import graph

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def made(*shape: int) -> Tensor:
    """Weights, made where a pass can see it."""
    return torch.linspace(-1, 1, math.prod(shape)).reshape(shape).sin()


FLAT: dict[str, Callable[[Tensor], Tensor]] = {
    # element by element
    "relu": F.relu,
    "relu6": F.relu6,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softsign": F.softsign,
    "sin": torch.sin,
    "cos": torch.cos,
    "atan": torch.atan,
    "erf": torch.erf,
    "exp": torch.exp,
    "log": lambda h: torch.log(h.abs() + 1),
    "abs": torch.abs,
    "neg": torch.neg,
    "floor": torch.floor,
    "sqrt": lambda h: h.abs().sqrt(),
    "rsqrt": lambda h: torch.rsqrt(h.abs() + 1),
    "sign": torch.sign,
    "reciprocal": lambda h: torch.reciprocal(h + 5),
    "round": torch.round,
    "ceil": torch.ceil,
    "hardtanh": F.hardtanh,
    "clamp": lambda h: h.clamp(-0.5, 0.7),
    "clamp_min": lambda h: h.clamp_min(0.1),
    "clamp_max": lambda h: h.clamp_max(0.1),
    "silu": F.silu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "elu": lambda h: F.elu(h, 0.7),
    "celu": lambda h: F.celu(h, 0.7),
    "selu": F.selu,
    "leaky_relu": lambda h: F.leaky_relu(h, 0.2),
    "threshold": lambda h: F.threshold(h, 0.1, 2),
    "gelu": F.gelu,
    "gelu, tanh": lambda h: F.gelu(h, approximate="tanh"),
    "softplus": lambda h: F.softplus(30 * h),
    "logsigmoid": lambda h: F.logsigmoid(20 * h),
    "log1p": lambda h: torch.log1p(h.abs() * 1e-4),
    "expm1": lambda h: torch.expm1(h * 1e-3),
    "log2": lambda h: torch.log2(h.abs() + 1),
    "tanhshrink": F.tanhshrink,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "square": torch.square,
    "prelu": lambda h: F.prelu(h, torch.tensor([0.3])),
    "nan_to_num": lambda h: (h / h).nan_to_num(2.0),
    "isfinite": lambda h: torch.isfinite(h / h) + h,
    "isnan": lambda h: torch.isnan(h / h) + h,
    # two values
    "add, alpha": lambda h: torch.add(h, h.flip(1), alpha=0.3),
    "sub": lambda h: 1 - h,
    "rsub": lambda h: torch.rsub(h, 2),
    "div": lambda h: 2 / (h + 9),
    "floor_divide": lambda h: h // 0.3,
    "remainder": lambda h: h % 0.3,
    "pow": lambda h: h.abs() ** 1.5,
    "rpow": lambda h: 2**h,
    "maximum": lambda h: torch.maximum(h, -h),
    "minimum": lambda h: torch.minimum(h, -h),
    "compare": lambda h: h * (h > 0.1) + (h <= 0) * 2.0 + (h != 0),
    "where": lambda h: torch.where(h > 0, h, 0.5),
    "masked_fill": lambda h: h.masked_fill(h > 0.5, -3.0),
    "logical": lambda h: ((h > 0) & ~(h > 1) | (h < -1)).float() + h,
    "xlogy": lambda h: torch.xlogy(F.relu(h), F.relu(h)),
    "lerp": lambda h: torch.lerp(h, -h, 0.3),
    "addcmul": lambda h: torch.addcmul(h, h, h, value=0.5),
    # shapes
    "view": lambda h: h.view(len(h), 2, 3).flatten(1),
    "transpose": lambda h: h.view(-1, 2, 3).transpose(1, 2).flatten(1),
    "permute": lambda h: h.reshape(-1, 2, 3).permute(0, 2, 1).flatten(1),
    "mT": lambda h: h.reshape(-1, 2, 3).mT.flatten(1),
    "movedim": lambda h: h.reshape(-1, 2, 3).movedim(-1, 1).flatten(1),
    "squeeze": lambda h: h.unsqueeze(1).squeeze(1),
    "expand": lambda h: h[:, :1].expand(-1, 5),
    "repeat": lambda h: h.repeat(1, 2),
    "stack": lambda h: torch.stack([h, -h], -1).flatten(1),
    "repeat_interleave": lambda h: h.repeat_interleave(2, 1),
    "cat": lambda h: torch.cat([h, h[:, :2]], 1),
    "chunk": lambda h: h.chunk(3, 1)[1],
    "split": lambda h: h.split([1, 2, 3], 1)[2],
    "unbind": lambda h: h.unbind(1)[2][:, None],
    "select": lambda h: h.select(1, -1)[:, None],
    "narrow": lambda h: h.narrow(1, 1, 3),
    "slice": lambda h: h[:, 1:5:2],
    "last": lambda h: h[:, -1, None],
    "ellipsis": lambda h: h[..., :-1],
    "roll": lambda h: h.roll(2, 1),
    "flip": lambda h: h.flip(1),
    "gather by constant": lambda h: h[:, torch.tensor([3, 0, 1])],
    "index_select": lambda h: h.index_select(1, torch.tensor([2, 0])),
    "rows and columns": lambda h: h[torch.arange(len(h)), torch.zeros(len(h), dtype=torch.long)][:, None] + h,
    "gather": lambda h: h.gather(1, h.argmax(1, keepdim=True)),
    "pad": lambda h: F.pad(h, (1, 2), value=0.5),
    "zeros_like": lambda h: h + torch.zeros_like(h),
    "full_like": lambda h: h + torch.full_like(h, 2),
    "new_ones": lambda h: h + h.new_ones(1),
    "one_hot": lambda h: F.one_hot(h.argmax(1), 6) * h,
    "unfold": lambda h: h.unfold(1, 3, 2).flatten(1),
    "to": lambda h: h.double().float(),
    "double": lambda h: h.double() * 2,
    # sums
    "sum": lambda h: h.sum(1, keepdim=True),
    "mean": lambda h: h - h.mean(-1, keepdim=True),
    "amax": lambda h: h.amax(1)[:, None],
    "max": lambda h: h.max(1).values[:, None],
    "min": lambda h: h.min(1, keepdim=True)[0],
    "argmax": lambda h: h.argmax(1)[:, None] + h,
    "any": lambda h: (h > 1).any(1)[:, None] + h,
    "all": lambda h: (h > -1).all(1)[:, None] + h,
    "var": lambda h: h.var(1, keepdim=True),
    "std": lambda h: h.std(1, unbiased=False)[:, None],
    "logsumexp": lambda h: h.logsumexp(1, keepdim=True),
    "norm": lambda h: h.norm(dim=1, keepdim=True),
    "normalize": lambda h: F.normalize(h + 1, dim=1),
    "cumsum": lambda h: h.cumsum(1),
    "softmax": lambda h: F.softmax(h, 1),
    "log_softmax": lambda h: F.log_softmax(h, -1),
    "softmin": lambda h: F.softmin(h, 1),
    "glu": F.glu,
    "topk": lambda h: h.topk(2, 1)[0],
    "prod": lambda h: (h + 1).prod(1)[:, None],
    # products and norms
    "linear": lambda h: F.linear(h, made(4, 6), made(4)),
    "matmul": lambda h: h @ made(4, 6).T,
    "addmm": lambda h: torch.addmm(made(4), h, made(4, 6).T),
    "bmm": lambda h: torch.bmm(h[:, :, None], h[:, None]).flatten(1),
    "einsum": lambda h: torch.einsum("ni,ji->nj", h, made(4, 6)),
    "layer_norm": lambda h: F.layer_norm(h, (6,)),
    "rms_norm": lambda h: F.rms_norm(h, (6,)),
    "group_norm": lambda h: F.group_norm(h[:, :, None], 2)[..., 0],
    "batch_norm": lambda h: F.batch_norm(
        h, torch.zeros(6), torch.ones(6), torch.full((6,), 2.0), torch.ones(6)
    ),
}
IMAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "conv2d": lambda h: F.conv2d(h, made(4, 3, 3, 3), made(4), stride=2, padding=1),
    "conv2d, same": lambda h: F.conv2d(h, made(4, 3, 3, 3), padding="same", dilation=2),
    "conv2d, groups": lambda h: F.conv2d(h, made(3, 1, 3, 3), groups=3),
    "conv1d": lambda h: F.conv1d(h.flatten(2), made(4, 3, 3), padding=1),
    "conv3d": lambda h: F.conv3d(h[:, :, None], made(4, 3, 1, 3, 3)),
    "conv_transpose2d": lambda h: F.conv_transpose2d(
        h, made(3, 4, 3, 3), stride=2, padding=1, output_padding=1
    ),
    "max_pool2d": lambda h: F.max_pool2d(h, 3, 2, 1),
    "max_pool1d": lambda h: F.max_pool1d(h.flatten(2), 2),
    "max_pool2d, ceil": lambda h: F.max_pool2d(h, 3, 2, ceil_mode=True),
    "avg_pool2d": lambda h: F.avg_pool2d(h, 2),
    "avg_pool2d, padded": lambda h: F.avg_pool2d(h, 3, 2, 1, count_include_pad=False),
    "adaptive_avg_pool2d": lambda h: F.adaptive_avg_pool2d(h, 2),
    "adaptive_max_pool2d": lambda h: F.adaptive_max_pool2d(h, (1, 2)),
    "nearest": lambda h: F.interpolate(h, scale_factor=2),
    "bilinear": lambda h: F.interpolate(h, size=(9, 10), mode="bilinear"),
    "bilinear, corners": lambda h: F.interpolate(h, scale_factor=2, mode="bilinear", align_corners=True),
    "bicubic": lambda h: F.interpolate(h, size=(12, 12), mode="bicubic"),
    "instance_norm": F.instance_norm,
    "group_norm": lambda h: F.group_norm(h, 3, torch.full((3,), 2.0), torch.ones(3)),
    "pixel_shuffle": lambda h: F.pixel_shuffle(h.repeat(1, 4, 1, 1), 2),
    "reflect": lambda h: F.pad(h, (1, 1, 2, 0), mode="reflect"),
    "replicate": lambda h: F.pad(h, (1, 1, 2, 0), mode="replicate"),
    "attention": lambda h: F.scaled_dot_product_attention(h, h, h, is_causal=True),
    "attention, mask": lambda h: F.scaled_dot_product_attention(
        h, h, h, attn_mask=torch.eye(6, dtype=torch.bool)
    ),
}


class Applied(nn.Module):
    """A function of what dropout leaves of the input."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(F.dropout(x, 0.4))


def exports(function: Callable[[Tensor], Tensor], x: Tensor, path: Path) -> None:
    """An export compares its file with `predict`, for several numbers of rows."""
    done = bd.export(Applied(function), x, path, num_draws=3, outputs=("draws",))
    assert done.largest_error <= 1e-5


@pytest.mark.parametrize("name", FLAT)
def test_a_function_of_rows_is_the_same_in_a_file(name: str, tmp_path: Path) -> None:
    exports(FLAT[name], torch.randn(3, 6), tmp_path / "net.onnx")


@pytest.mark.parametrize("name", IMAGES)
def test_a_function_of_images_is_the_same_in_a_file(name: str, tmp_path: Path) -> None:
    exports(IMAGES[name], torch.randn(2, 3, 6, 6), tmp_path / "net.onnx")


REFUSED: dict[str, Any] = {
    "boolean mask": lambda h: h * 0 + h[h > -100].sum(),
    "area": lambda h: F.interpolate(h[:, None], size=3, mode="area").flatten(1),
    "uneven windows": lambda h: F.adaptive_avg_pool1d(h[:, None], 4).flatten(1),
    "circular": lambda h: F.pad(h[:, None], (1, 1), mode="circular").flatten(1),
    "whole numbers": lambda h: (h.argmax(1) | 1)[:, None] + h,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_file_cannot_say_is_refused_with_its_name(name: str, tmp_path: Path) -> None:
    with pytest.raises((bd.CannotExport, ValueError), match="export:"):
        bd.export(Applied(REFUSED[name]), torch.randn(3, 6), tmp_path / "net.onnx", num_draws=3)
    assert not list(tmp_path.iterdir())


def test_the_table_has_no_name_twice_under_other_spellings() -> None:
    """A function is found by its canonical name: none of the table's may be one that is never asked for."""
    assert all(not name.endswith("_") or name.startswith("_") for name in graph._WRITERS)
