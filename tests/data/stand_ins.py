"""Files of invented data in the formats of the real ones: the loaders read them as they would read those.

Values are random with something to learn in them. Tables have the real number of rows, which `load_uci`
checks; collections of pictures, ratings and reviews are smaller.
"""

from __future__ import annotations

import gzip
import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bayesdrop.data import AMAZON_DOMAINS, CAMVID_CLASSES, CIFAR10_CLASSES, DATASETS, UCI

Random = np.random.Generator
# The year set is half a million rows of 90 numbers: too much to invent for a test.
LEFT_OUT = {"uci-year"}


def write_stand_ins(folder: Path) -> Path:
    """All sets of the registry but `LEFT_OUT`, into a folder for $BAYESDROP_DATA."""
    writers = {
        **{f"uci-{name}": _uci for name in UCI},
        **{f"amazon-{domain}-full": _amazon_full for domain in AMAZON_DOMAINS},
        **{f"amazon-{domain}-processed": _amazon_processed for domain in AMAZON_DOMAINS},
        "mnist": _mnist,
        "fashion-mnist": _fashion,
        "cifar10": _cifar10,
        "camvid": _camvid,
        "solar": _solar,
        "movielens-100k": _movielens_100k,
        "movielens-1m": _movielens_1m,
        "movielens-20m": _movielens_20m,
        "netflix": _netflix,
        "msd": _msd,
        "gowalla": _gowalla,
    }
    for seed, name in enumerate(DATASETS):
        if name not in LEFT_OUT:
            path = folder / DATASETS[name].stored
            path.parent.mkdir(parents=True, exist_ok=True)
            writers[name](path, np.random.default_rng(seed), name)
    return folder


def _uci(path: Path, random: Random, name: str) -> None:
    rows, features, splits, train = UCI[name.removeprefix("uci-")]
    x = random.normal(3.0, 2.0, (rows, features))
    y = 5 + x @ random.normal(size=features) + np.sin(x[:, 0]) + 0.3 * random.normal(size=rows)
    orders = np.stack([random.permutation(rows) for _ in range(splits)]).astype(np.int32)
    np.savez(path, X=x, y=y, train_idx=orders[:, :train], test_idx=orders[:, train:])


def _pictures(random: Random, labels: NDArray[np.uint8], side: int, channels: int) -> NDArray[np.uint8]:
    """(n, side, side, channels): the coarse pattern of a class, shifted a little, with noise."""
    coarse = random.integers(0, 2, (10, side // 4, side // 4, channels), dtype=np.uint8)
    block = np.ones((1, 4, 4, 1), dtype=np.uint8)
    patterns = 200 * np.kron(coarse, block)
    shifted = np.stack([np.roll(patterns, shift, axis=2) for shift in (-1, 0, 1)])
    noise = np.kron(random.integers(0, 56, (64, side // 4, side // 4, channels), dtype=np.uint8), block)
    count = len(labels)
    return shifted[random.integers(3, size=count), labels] + noise[random.integers(64, size=count)]


def _grey(random: Random, rows: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    labels = random.integers(10, size=rows, dtype=np.uint8)
    return _pictures(random, labels, 28, 1)[..., 0], labels


def _mnist(path: Path, random: Random, _: str) -> None:
    x, y = _grey(random, 8000)
    np.savez(path, x_train=x[:6000], y_train=y[:6000], x_test=x[6000:], y_test=y[6000:])


def _fashion(path: Path, random: Random, _: str) -> None:
    x, y = _grey(random, 1000)
    np.savez(path, x_test=x, y_test=y)


def _cifar10(path: Path, random: Random, _: str) -> None:
    """Every batch one picture of 100 x 100 tiles, without loss; the same six times."""
    labels = random.integers(10, size=10_000, dtype=np.uint8)
    np.savez(path, train=np.tile(labels, 5), test=labels, class_names=np.array(CIFAR10_CLASSES))
    tiles = _pictures(random, labels, 32, 3).reshape(100, 100, 32, 32, 3)
    mosaic = Image.fromarray(tiles.transpose(0, 2, 1, 3, 4).reshape(3200, 3200, 3))
    mosaic.save(path.with_name("test_batch.webp"), lossless=True, quality=0, method=0)
    for number in range(1, 6):
        shutil.copy(path.with_name("test_batch.webp"), path.with_name(f"data_batch_{number}.webp"))


def _camvid(path: Path, random: Random, _: str) -> None:
    """Streets of stripes: a class a stripe, some of it void."""
    colours = random.integers(0, 200, (len(CAMVID_CLASSES) + 1, 3), dtype=np.uint8)
    for part, frames in (("train", 12), ("val", 6), ("test", 6)):
        (path.parent / part).mkdir()
        stripes = random.integers(len(colours), size=(frames, 12, 16), dtype=np.uint8)
        labels = np.kron(stripes, np.ones((1, 30, 30), dtype=np.uint8))
        names = np.array([f"0001TP_{number:06d}" for number in range(frames)])
        np.savez(path.with_name(f"labels_{part}.npz"), names=names, labels=labels)
        noise = random.integers(0, 56, (360, 480, 3), dtype=np.uint8)
        for name, label in zip(names, labels, strict=True):
            picture = Image.fromarray(colours[label] + noise)
            picture.save(path.parent / part / f"{name}.webp", lossless=True, quality=0, method=0)


def _solar(path: Path, random: Random, _: str) -> None:
    lines = ["year,tsi_11yr_cycle,tsi_11yr_cycle_plus_background"]
    for year in range(1610, 2001):
        cycle = 1365.8 + 0.5 * np.sin(year * 2 * np.pi / 11) + 0.05 * random.normal()
        lines.append(f"{year + 0.5:.4f},{cycle:.4f},{cycle - 1 + (year - 1610) / 500:.4f}")
    path.write_text("\n".join(lines) + "\n")


def _counts(random: Random, rows: int, columns: int, index: type) -> dict[str, NDArray[np.generic]]:
    """Sparse counts of words, of which the first fifty tell the verdict, mostly."""
    y = np.repeat(np.array([1, -1], dtype=np.int8), rows // 2)
    told = np.where(random.random(rows) < 0.15, -y, y)
    telling = np.sort(np.argsort(random.random((rows, 25)), axis=1)[:, :8]) + 25 * (told[:, None] > 0)
    step = (columns - 50) // 40
    others = 50 + step * np.arange(40) + random.integers(step, size=(rows, 40))
    return {
        "data": random.integers(1, 4, 48 * rows, dtype=np.uint8),
        "indices": np.concatenate([telling, others], axis=1).flatten().astype(index),
        "indptr": np.arange(0, 48 * rows + 1, 48, dtype=np.int32),
        "shape": np.array([rows, columns], dtype=np.int32),
        "y": y,
    }


def _amazon_full(path: Path, random: Random, _: str) -> None:
    np.savez(path, **_counts(random, 2000, 20_000, np.int32))


def _amazon_processed(path: Path, random: Random, _: str) -> None:
    parts = {
        "labeled_": _counts(random, 2000, 5000, np.int16),
        "unlabeled_": _counts(random, 600, 5000, np.int16),
    }
    np.savez(path, **{prefix + key: array for prefix, part in parts.items() for key, array in part.items()})


def _likes(random: Random, users: int, items: int, each: int) -> NDArray[np.int64]:
    """(n, 2) pairs of users and items: every user has one of four tastes."""
    pairs = []
    for user in range(users):
        chance = np.where(np.arange(items) % 4 == user % 4, 4.0, 1.0)
        picked = random.choice(
            items, size=random.integers(each // 2, each * 2), replace=False, p=chance / chance.sum()
        )
        pairs += [(user, item) for item in np.sort(picked)]
    return np.array(pairs)


def _ratings(random: Random, users: int, items: int, each: int) -> NDArray[np.int64]:
    """(n, 4) user and item from 1, 1 to 5 stars, seconds, in no order."""
    pairs = _likes(random, users, items, each)
    stars = np.clip(
        np.where(pairs[:, 1] % 4 == pairs[:, 0] % 4, 4, 3) + random.integers(-1, 2, len(pairs)), 1, 5
    )
    table = np.column_stack([pairs + 1, stars, random.integers(874_724_710, 893_286_638, len(pairs))])
    return random.permutation(table)


def _movielens_100k(path: Path, random: Random, _: str) -> None:
    lines = io.StringIO()
    np.savetxt(
        lines,
        _ratings(random, 600, 500, 60),
        fmt="%d",
        delimiter=",",
        header="user,item,rating,timestamp",
        comments="",
    )
    path.write_bytes(gzip.compress(lines.getvalue().encode()))


def _movielens_1m(path: Path, random: Random, _: str) -> None:
    """Users are numbered through the parts; of a held-out user every fifth item is held."""
    pairs = _likes(random, 300, 200, 30).astype(np.int32)
    held = np.arange(len(pairs)) % 5 == 0
    arrays = {"train": pairs[pairs[:, 0] < 200]}
    for part, first in (("validation", 200), ("test", 250)):
        inside = (pairs[:, 0] >= first) & (pairs[:, 0] < first + 50)
        arrays |= {f"{part}_tr": pairs[inside & ~held], f"{part}_te": pairs[inside & held]}
    ids = {
        "uid_to_user_id": np.arange(300, dtype=np.int32) + 1,
        "sid_to_item_id": np.arange(200, dtype=np.int32) + 1,
    }
    np.savez(path, **arrays, **ids, n_items=np.int32(200))


def _movielens_20m(path: Path, random: Random, _: str) -> None:
    lines = ["userId,movieId,rating,timestamp"]
    lines += [f"{u},{i},{r - 0.5},{t}" for u, i, r, t in _ratings(random, 100, 80, 10)]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-20m/ratings.csv", "\n".join(lines) + "\n")


def _netflix(path: Path, random: Random, _: str) -> None:
    path.mkdir()
    table = _ratings(random, 100, 80, 10)
    for film in range(1, 81):
        rows = [f"{user},{stars},2005-09-06" for user, item, stars, _ in table if item == film]
        (path / f"mv_{film:07d}.txt").write_text("\n".join([f"{film}:", *rows]) + "\n")


def _msd(path: Path, random: Random, _: str) -> None:
    pairs = _likes(random, 300, 40, 15)
    lines = [f"user{user}\tSO{item}\t{random.integers(1, 9)}\n" for user, item in pairs]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train_triplets.txt", "".join(lines))


def _gowalla(path: Path, random: Random, _: str) -> None:
    pairs = _likes(random, 300, 200, 30).astype(np.int32)
    held = np.arange(len(pairs)) % 5 == 0
    np.savez(path, train=pairs[~held], test=pairs[held], n_users=np.int64(300), n_items=np.int64(200))
