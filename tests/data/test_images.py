"""MNIST, Fashion-MNIST, CIFAR-10 and CamVid: original files and stored ones give the same images."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bayesdrop.data import (
    CAMVID_CLASSES,
    CAMVID_VOID,
    DataNotFound,
    load_camvid,
    load_cifar10,
    load_fashion_mnist,
    load_mnist,
)
from bayesdrop.data import cifar as cifar_module
from bayesdrop.data import mnist as mnist_module
from bayesdrop.data.idx import read_idx


def idx(array: np.ndarray) -> bytes:
    """The IDX file of unsigned bytes."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes() + array.tobytes()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_idx_files_are_read_packed_or_not(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    array = np.random.default_rng(0).integers(0, 256, size=(3, 4, 5), dtype=np.uint8)
    (tmp_path / "file").write_bytes(pack(idx(array)))
    assert np.array_equal(read_idx(tmp_path / "file"), array)


@pytest.mark.parametrize(
    "change", [lambda c: c[:-1], lambda c: c + b"0", lambda c: b"\x00\x00\x0d" + c[3:], lambda c: b""]
)
def test_a_damaged_idx_file_is_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    (tmp_path / "file").write_bytes(change(idx(np.zeros((2, 2), dtype=np.uint8))))
    with pytest.raises(ValueError, match="read_idx"):
        read_idx(tmp_path / "file")


def test_mnist_is_made_of_its_four_files(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, size=(2, 28, 28), dtype=np.uint8)
    asked = {}

    def fetch(file: str, sha256: str) -> Path:
        asked[file] = sha256
        (tmp_path / file).write_bytes(gzip.compress(idx(images if "images" in file else images[:, 0, 0])))
        return tmp_path / file

    arrays = mnist_module._converted(mnist_module._MNIST_FILES, fetch)
    assert list(arrays) == ["x_train", "y_train", "x_test", "y_test"]
    assert np.array_equal(arrays["x_test"], images)
    assert all(len(sha256) == 64 for sha256 in asked.values())
    assert len(asked) == 4


def test_mnist_is_the_well_known_one(real: Callable[[str], Path]) -> None:
    real("mnist")
    data = load_mnist()
    checksums = {
        "x_train": "6bbc9ace898e44ae57da46a324031adb",
        "y_train": "a25bea736e30d166cdddb491f175f624",
        "x_test": "2646ac647ad5339dbf082846283269ea",
        "y_test": "27ae3e4e09519cfbb04c329615203637",
    }
    for name, md5 in checksums.items():
        array = getattr(data, name).to(torch.uint8).numpy()
        assert hashlib.md5(idx(array)).hexdigest() == md5
    assert data.x_train.dtype == torch.uint8
    assert data.y_train.dtype == torch.int64


def test_fashion_mnist_has_a_thousand_of_each_kind(real: Callable[[str], Path]) -> None:
    real("fashion-mnist")
    data = load_fashion_mnist()
    assert data.x_test.shape == (10000, 28, 28)
    assert data.y_test.bincount().tolist() == [1000] * 10


def test_a_mosaic_and_a_binary_batch_hold_the_same_images() -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, size=(6, 3, 32, 32), dtype=np.uint8)
    labels = generator.integers(0, 10, size=6, dtype=np.uint8)
    rows = [images[start : start + 3].transpose(0, 2, 3, 1) for start in (0, 3)]
    mosaic = np.concatenate([np.concatenate(list(row), axis=1) for row in rows], axis=0)
    assert mosaic.shape == (64, 96, 3)
    assert np.array_equal(cifar_module.mosaic_batch(mosaic), images)
    binary = b"".join(bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True))
    found, kinds = cifar_module.binary_batch(binary)
    assert np.array_equal(found, images)
    assert np.array_equal(kinds, labels)


def test_the_archive_of_cifar_is_read_batch_by_batch(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for number, name in enumerate((*cifar_module._TRAIN, *cifar_module._TEST)):
            content = bytes([number]) + bytes(3072)
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    arrays = cifar_module._from_home(lambda file, sha256: path)
    assert arrays["y_train"].tolist() == [0, 1, 2, 3, 4]
    assert arrays["y_test"].tolist() == [5]
    assert arrays["x_train"].shape == (5, 3, 32, 32)


def test_a_stored_batch_is_the_original_binary_one(real: Callable[[str], Path]) -> None:
    real("cifar10")
    data = load_cifar10(num_batches=1)
    assert data.x_test.shape == (10000, 3, 32, 32)
    records = torch.cat([data.y_train.to(torch.uint8)[:, None], data.x_train.flatten(1)], dim=1)
    # of data_batch_1.bin in the archive of the set's home
    known = "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"
    assert hashlib.sha256(records.numpy().tobytes()).hexdigest() == known


@pytest.mark.parametrize("number", [0, 6])
def test_cifar_has_five_batches(number: int) -> None:
    with pytest.raises(ValueError, match="`num_batches` must be from 1 to 5"):
        load_cifar10(num_batches=number)


@pytest.mark.parametrize("ending", ["webp", "png"])
def test_frames_of_camvid_are_found_by_their_names(cache: Path, ending: str) -> None:
    folder = cache / "data" / "camvid"
    (folder / "val").mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, size=(2, 6, 8, 3), dtype=np.uint8)
    for name, image in zip(("b", "a"), images, strict=True):
        Image.fromarray(image).save(folder / "val" / f"{name}.{ending}", lossless=True)
    labels = np.full((2, 6, 8), CAMVID_VOID, dtype=np.uint8)
    for part in ("train", "val"):
        np.savez(folder / f"labels_{part}.npz", labels=labels, names=np.array(["b", "a"]))
    found = load_camvid("val")
    assert found.names == ("b", "a")
    assert torch.equal(found.x, torch.from_numpy(images).permute(0, 3, 1, 2))
    assert torch.equal(found.y, torch.from_numpy(labels))


def test_camvid_has_eleven_classes_and_void(real: Callable[[str], Path]) -> None:
    real("camvid")
    data = load_camvid("val")
    assert data.x.shape == (101, 3, 360, 480)
    assert data.y.unique().tolist() == [*range(len(CAMVID_CLASSES)), CAMVID_VOID]


def test_what_is_absent_is_said_to_be() -> None:
    for load in (load_mnist, load_fashion_mnist, load_cifar10):
        with pytest.raises(DataNotFound, match="BAYESDROP_OFFLINE is set"):
            load()
    with pytest.raises(DataNotFound, match=r"labels_train\.npz"):
        load_camvid("test")
    with pytest.raises(ValueError, match="'train', 'val' or 'test'"):
        load_camvid("validation")
