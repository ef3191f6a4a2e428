"""CamVid: frames of a drive through Cambridge, every pixel labelled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdrop.data.arrays import Arrays, load_arrays, read_npz
from bayesdrop.errors import is_one_of, must, require

__all__ = ["CAMVID_CLASSES", "CAMVID_VOID", "CamVid", "load_camvid"]

CAMVID_CLASSES = (
    "sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "bicyclist",
)  # fmt: skip
#: the label of pixels that belong to no class and are to be left out
CAMVID_VOID = 11


@dataclass(frozen=True, eq=False)
class CamVid:
    """The frames and labels of one part of CamVid."""

    x: Tensor  #: (N, 3, 360, 480) uint8, red, green, blue
    y: Tensor  #: (N, 360, 480) uint8, an index of `CAMVID_CLASSES`, or `CAMVID_VOID`
    names: tuple[str, ...]  #: of the frames


def load_camvid(part: Literal["train", "val", "test"] = "train") -> CamVid:
    """A part of CamVid (Brostow et al., 2009) in the 11 classes of SegNet: 367, 101 and 233 frames.

    It is not downloaded. `DataNotFound` says where it is looked for: a folder `camvid` with
    `labels_<part>.npz` (labels, names) and `<part>/<name>.webp` or `.png`.

    Args:
        part: "train", "val" or "test".
    """
    if not is_one_of(part, ("train", "val", "test")):
        raise ValueError(must("load_camvid", "part", "'train', 'val' or 'test'", part))
    arrays = load_arrays("camvid", lambda path: _read(path.with_name(f"labels_{part}.npz"), part))
    return CamVid(
        x=torch.from_numpy(arrays["images"]),
        y=torch.from_numpy(arrays["labels"]),
        names=tuple(arrays["names"].tolist()),
    )


def _read(path: Path, part: str) -> Arrays:
    labels = read_npz(path)
    images = np.stack([_image(path.parent / part, name) for name in labels["names"].tolist()])
    return {"images": images, "labels": labels["labels"], "names": labels["names"]}


def _image(folder: Path, name: str) -> NDArray[Any]:
    module = require("PIL.Image", extra="data", owner="load_camvid")
    path = folder / f"{name}.webp"
    with module.open(path if path.exists() else path.with_suffix(".png")) as picture:
        return np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
