"""ServedImages: a classifier of images: a folder with the model, a small JSON and maybe its images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bayesdrop.calibration import conformal_quantile
from bayesdrop.errors import must, must_be_module, real_number, whole_number
from bayesdrop.likelihoods import Categorical
from bayesdrop.predict import predict
from bayesdrop.serve.served.answers import Answers, Ask
from bayesdrop.serve.served.base import BadRow, ServedModel, TensorSpec
from bayesdrop.serve.served.network import ServedNetwork
from bayesdrop.serve.served.outputs import answers_of
from bayesdrop.serve.served.pictures import as_pixels, clean_png, png_of
from bayesdrop.storage import from_json, load, read_tensors, save, to_json, whole_folder, write_tensors

__all__ = ["ImageModel", "ServedImages", "is_image_model", "load_image_model", "save_image_model"]

_FORMAT, _VERSION = "bayesdrop-image-model", 1
_ABOUT, _WEIGHTS, _ROWS = "image.json", "model.safetensors", "images.safetensors"


@dataclass(frozen=True, eq=False)
class ImageModel:
    """A classifier of images with all that is needed to ask it.

    Attributes:
        model: from (N, C, H, W) to logits (N, K), with dropout in it.
        classes: names of the K classes.
        size: height and width.
        channels: 1 for grey, 3 for colour.
        mean: of each channel, in pixels from 0 to 1; taken away.
        std: of each channel; divided by.
        num_draws: T.
        defer_above: entropy in nats above which an image goes to a person; None for none.
        recipe: how it was trained, for a refit: epochs, lr, batch_size, length_scale, seed.
        images: (n, C, H, W) bytes that it was trained and tried on; None where they are not kept.
        labels: (n,) places of their classes.
        held: (n,) which of them the training did not see.
        about: facts for a person.
    """

    model: nn.Module
    classes: tuple[str, ...]
    size: tuple[int, int]
    channels: int = 1
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    num_draws: int = 50
    defer_above: float | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    images: Tensor | None = None
    labels: Tensor | None = None
    held: Tensor | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        must_be_module("ImageModel", "model", self.model)
        texts = all(isinstance(name, str) and name for name in self.classes)
        if len(self.classes) < 2 or not texts or len(set(self.classes)) != len(self.classes):
            raise ValueError(must("ImageModel", "classes", "at least two different texts", self.classes))
        if len(self.size) != 2:
            raise ValueError(must("ImageModel", "size", "height and width", self.size))
        for side in self.size:
            whole_number("ImageModel", "size", side, at_least=1, at_most=4096)
        if self.channels not in (1, 3):
            raise ValueError(must("ImageModel", "channels", "1 or 3", self.channels))
        if len(self.mean) != self.channels or len(self.std) != self.channels:
            raise ValueError(must("ImageModel", "mean", "as many numbers as channels, as std", self.mean))
        for value in self.std:
            real_number("ImageModel", "std", value, "positive", above=0)
        for value in self.mean:
            real_number("ImageModel", "mean", value, "a number")
        whole_number("ImageModel", "num_draws", self.num_draws, at_least=2)
        if self.defer_above is not None:
            real_number("ImageModel", "defer_above", self.defer_above, "at least 0", at_least=0)
        given = [part for part in (self.images, self.labels, self.held) if part is not None]
        if given and (len(given) != 3 or len({len(part) for part in given}) != 1):
            raise ValueError(must("ImageModel", "images", "given with as many labels and held", len(given)))
        if self.images is not None and self.images.shape[1:] != (self.channels, *self.size):
            want = f"(n, {self.channels}, {self.size[0]}, {self.size[1]})"
            raise ValueError(must("ImageModel", "images", want, tuple(self.images.shape)))

    def normalised(self, pixels: Tensor) -> Tensor:
        """What the model takes: (N, C, H, W) floats of bytes."""
        mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return (pixels.float() / 255 - mean) / std

    def threshold(self, share: float) -> float | None:
        """The entropy above which at most a share of images lies, by the held-out ones; None without any."""
        if self.images is None or self.held is None or not bool(self.held.any()):
            return None
        x = self.normalised(self.images[self.held])
        found = predict(self.model, x, num_draws=self.num_draws, likelihood=Categorical(), batch_size=256)
        limit = float(conformal_quantile(found.entropy.double(), 1 - share))
        return limit if np.isfinite(limit) else None


def save_image_model(model: ImageModel, path: str | os.PathLike[str]) -> None:
    """Write the folder that `bayesdrop serve` takes; one that is there is replaced in one step.

    Args:
        model: what to write.
        path: the folder.
    """
    with whole_folder(path, owner="save_image_model") as draft:
        save(model.model, draft / _WEIGHTS)
        files = [_WEIGHTS]
        if model.images is not None and model.labels is not None and model.held is not None:
            tensors = {"images": model.images, "labels": model.labels, "held": model.held}
            write_tensors(draft / _ROWS, tensors, kind="bayesdrop-images", header={})
            files.append(_ROWS)
        left = {"model", "images", "labels", "held"}
        facts = {name: getattr(model, name) for name in ImageModel.__dataclass_fields__ if name not in left}
        facts["recipe"] = dict(model.recipe)
        digests = {name: _digest(draft / name) for name in files}
        head = {"format": _FORMAT, "format_version": _VERSION, "sha256": digests}
        (draft / _ABOUT).write_bytes(to_json(head | facts))


def load_image_model(path: str | os.PathLike[str], into: nn.Module | None = None) -> ImageModel:
    """Read a folder; every file is checked against what was written.

    Args:
        path: the folder.
        into: a model of the same shape, where the file holds weights alone.
    """
    path = Path(path)
    try:
        about, sealed = from_json((path / _ABOUT).read_bytes())
        if about.pop("format") != _FORMAT or about.pop("format_version") != _VERSION or not sealed:
            raise ValueError(f"{_ABOUT} is of another kind, or was changed")
        digests = about.pop("sha256")
        rows = (path / _ROWS).is_file() and _ROWS in digests
        for name in (_WEIGHTS, _ROWS) if rows else (_WEIGHTS,):
            if _digest(path / name) != digests[name]:
                raise ValueError(f"{name} is not as it was written")
        for name in ("classes", "size", "mean", "std"):
            about[name] = tuple(about[name])
        if rows:
            about |= read_tensors(path / _ROWS, kind="bayesdrop-images", owner="load_image_model")[0]
        return ImageModel(model=load(path / _WEIGHTS, into), **about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = str(error).removesuffix(".")
        raise ValueError(f"{path} cannot be read as an image model: {said}.") from error


def is_image_model(path: Path) -> bool:
    """Whether a folder is one of `save_image_model`."""
    return (path / _ABOUT).is_file()


class ServedImages(ServedModel):
    """A classifier of images. A row is {"image": base64}; uncertainty is entropy / log K.

    Args:
        folder: of `save_image_model`.
        num_draws: T unless asked otherwise; the model's own if None.
        max_pixels: of a picture that is sent.
        defer_above: entropy above which images go to a person; the model's own if None.
    """

    kind, task, level = "image", "classification", None

    def __init__(
        self,
        folder: Path,
        *,
        num_draws: int | None = None,
        max_pixels: int = 50_000_000,
        defer_above: float | None = None,
    ) -> None:
        self.model = load_image_model(folder)
        self.digest = sha256((folder / _ABOUT).read_bytes()).hexdigest()
        self.classes = self.model.classes
        self.num_draws = num_draws or self.model.num_draws
        self.about = dict(self.model.about)
        self.inputs = (TensorSpec("image", "BYTES", (-1,)),)
        self._defer_above = self.model.defer_above if defer_above is None else defer_above
        self._max_pixels = max_pixels
        self._grey = self.model.channels == 1
        self._network = ServedNetwork(self.model.model, Categorical())
        one = torch.zeros(1, self.model.channels, *self.model.size, dtype=torch.uint8)
        ask = Ask(self.num_draws, 0, None)
        found = self._network(self.model.normalised(one), ask, at_once=True)
        if found.probs.shape[1:] != (len(self.classes),):
            got = f"{tuple(found.probs.shape[1:])} probabilities for {len(self.classes)} classes"
            raise ValueError(f"{folder}: the model must give a probability for each class; got {got}.")

    def row(self, given: Any) -> dict[str, Any]:
        """See `ServedModel`."""
        if isinstance(given, str):
            given = {"image": given}
        if not isinstance(given, dict) or not isinstance(given.get("image"), str):
            raise BadRow('a row must be {"image": base64 of a picture}.')
        return {"image": given["image"]}

    def rows_of(self, tensors: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows from a tensor of base64 texts, or from one of bytes: (N, H, W) or (N, H, W, C)."""
        if len(tensors) != 1:
            raise BadRow("there must be one input, the images.")
        values = np.asarray(next(iter(tensors.values())))
        if values.dtype.kind in "iuf":
            return [{"image": png_of(pixels)} for pixels in values]
        return [self.row(value) for value in values.reshape(-1).tolist()]

    def canonical(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """See `ServedModel`."""
        return [
            {"image": clean_png(row["image"], grey=self._grey, max_pixels=self._max_pixels)} for row in rows
        ]

    def check(self, rows: Sequence[dict[str, Any]]) -> None:
        """See `ServedModel`."""
        self.canonical(rows)

    def pixels(self, rows: Sequence[dict[str, Any]]) -> Tensor:
        """(N, C, H, W) bytes of canonical rows."""
        return torch.from_numpy(
            np.stack([as_pixels(row["image"], self.model.size, grey=self._grey) for row in rows])
        )

    def predict(self, rows: Sequence[dict[str, Any]], ask: Ask) -> Answers:
        """See `ServedModel`."""
        pixels = self.pixels(rows)
        found = self._network(self.model.normalised(pixels), ask)
        return answers_of(
            found,
            classes=self.classes,
            level=None,
            defer_above=self._defer_above,
            scale=1.0,
            sketch=_sketch(pixels),
        )


def _sketch(pixels: Tensor) -> NDArray[np.float64]:
    """(N, 16) mean brightness of the 4 x 4 parts of an image."""
    grey = pixels.float().mean(1, keepdim=True) / 255
    parts = torch.nn.functional.adaptive_avg_pool2d(grey, 4)
    rounded: NDArray[np.float64] = np.round(parts.flatten(1).double().numpy(), 4)
    return rounded


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
