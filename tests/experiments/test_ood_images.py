"""A folder of images is measured as it is now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bayesdrop.experiments import PieceCache, ood_images


def write_image(path: Path, grey: int) -> None:
    Image.fromarray(np.full((28, 28), grey, dtype=np.uint8)).save(path)


def test_a_folder_that_has_changed_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, times = ood_images.measured, []

    def counted(*arguments: Any) -> dict[str, Any]:
        times.append(1)
        return measured(*arguments)

    monkeypatch.setattr(ood_images, "measured", counted)
    folder = tmp_path / "images"
    folder.mkdir()
    write_image(folder / "first.png", 0)
    config = ood_images.Config(
        variants=("LeNet",), num_images=40, splits=1, epochs=1, num_train=64, folder=str(folder)
    )
    cache = PieceCache("ood-images", folder=tmp_path / "pieces")
    for _ in range(2):
        ood_images.run(config, cache=cache, progress=False)
    assert len(times) == 1
    write_image(folder / "second.png", 255)
    ood_images.run(config, cache=cache, progress=False)
    assert len(times) == 2
