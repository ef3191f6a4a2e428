"""Pictures of strangers: decoded, checked, and written anew before anything is done with them."""

from __future__ import annotations

import base64
import binascii
import warnings
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesdrop.errors import require
from bayesdrop.serve.served.base import BadRow

__all__ = ["LARGEST_SIDE", "as_pixels", "clean_png", "png_of"]

#: a longer side is scaled down to that
LARGEST_SIDE = 1024
#: kinds that are read; each by its own decoder, whatever the picture is called
_KINDS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")


def clean_png(text: str, *, grey: bool, max_pixels: int) -> str:
    """A picture as base64 of a PNG that was made here, with nothing in it but pixels.

    Args:
        text: base64 of a PNG, JPEG, WEBP, BMP or GIF; "data:image/png;base64," may stand before it.
        grey: in shades of grey.
        max_pixels: a larger one is refused before it is decoded.
    """
    image = require("PIL.Image", extra="serve", owner="bayesdrop serve")
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRow("an image must be base64 of a picture.") from error
    try:
        with warnings.catch_warnings():
            # Pillow's own limit; ours is checked below.
            warnings.simplefilter("ignore")
            with image.open(BytesIO(data), formats=_KINDS) as opened:
                if opened.width * opened.height > max_pixels:
                    got = f"{opened.width} x {opened.height}"
                    raise BadRow(f"an image must have at most {max_pixels:,} pixels; got {got}.")
                opened.load()
                picture = opened.convert("L" if grey else "RGB")
    except BadRow:
        raise
    except Exception as error:
        # Decoders raise what they like at bytes that are no picture.
        kinds = ", ".join(_KINDS)
        raise BadRow(f"an image must be a whole picture of one of the kinds {kinds}.") from error
    if max(picture.size) > LARGEST_SIDE:
        picture.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    return _encoded(picture)


def png_of(pixels: NDArray[Any]) -> str:
    """Base64 of a PNG of pixels: (H, W), (H, W, 1) or (H, W, 3), 0 to 255."""
    image = require("PIL.Image", extra="serve", owner="bayesdrop serve")
    array = np.asarray(pixels)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    fits = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)
    if not fits or not array.size or array.dtype.kind not in "iuf":
        raise BadRow("pixels must be (height, width) or (height, width, 3) numbers from 0 to 255.")
    if not ((array >= 0) & (array <= 255) & (array == np.round(array))).all():
        raise BadRow("pixels must be whole numbers from 0 to 255.")
    return _encoded(image.fromarray(np.ascontiguousarray(array, dtype=np.uint8)))


def as_pixels(text: str, size: tuple[int, int], *, grey: bool) -> NDArray[np.uint8]:
    """(C, H, W) of a result of `clean_png`, scaled to a size.

    Args:
        text: base64 of a PNG.
        size: height and width.
        grey: one channel, else three.
    """
    image = require("PIL.Image", extra="serve", owner="bayesdrop serve")
    with image.open(BytesIO(base64.b64decode(text)), formats=("PNG",)) as opened:
        picture = opened.convert("L" if grey else "RGB")
    if picture.size != (size[1], size[0]):
        picture = picture.resize((size[1], size[0]), image.Resampling.BILINEAR)
    array = np.asarray(picture, dtype=np.uint8)
    return array[None] if grey else np.ascontiguousarray(array.transpose(2, 0, 1))


def _encoded(picture: Any) -> str:
    file = BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode("ascii")
