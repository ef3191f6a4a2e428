"""The invented files that experiments are tried on: every loader reads them, as it reads the real ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.data.stand_ins import LEFT_OUT, write_stand_ins

from bayesdrop.data import (
    AMAZON_DOMAINS,
    DATASETS,
    UCI,
    load_amazon,
    load_camvid,
    load_cifar10,
    load_fashion_mnist,
    load_gowalla,
    load_mnist,
    load_movielens_1m,
    load_movielens_20m,
    load_movielens_100k,
    load_msd,
    load_netflix,
    load_solar,
    load_uci,
)

LOADERS: dict[str, Callable[[], Any]] = {
    **{f"uci-{name}": lambda name=name: load_uci(name) for name in UCI},
    **{
        f"amazon-{domain}-full": lambda domain=domain: load_amazon(domain, "full")
        for domain in AMAZON_DOMAINS
    },
    **{
        f"amazon-{domain}-processed": lambda domain=domain: load_amazon(domain, "processed")
        for domain in AMAZON_DOMAINS
    },
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": lambda: load_cifar10(num_batches=1),
    "camvid": lambda: load_camvid("val"),
    "solar": load_solar,
    "movielens-100k": load_movielens_100k,
    "movielens-1m": load_movielens_1m,
    "movielens-20m": load_movielens_20m,
    "netflix": load_netflix,
    "msd": load_msd,
    "gowalla": load_gowalla,
}
# Where the real files are at hand: one of each family, and none that takes minutes.
COMPARED = [
    "uci-boston", "amazon-kitchen-full", "amazon-kitchen-processed", "mnist", "fashion-mnist", "cifar10",
    "camvid", "solar", "movielens-100k", "movielens-1m", "gowalla",
]  # fmt: skip


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stand_ins(tmp_path_factory.mktemp("stand_ins"))


def form(value: Any) -> Any:
    """Types of everything and the shape of a row: what code that uses a set may rely on."""
    if isinstance(value, tuple):
        return form(value[0])
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        sparse = hasattr(value, "indptr")
        return (type(value).__name__, str(value.dtype), () if sparse else tuple(value.shape[1:]))
    return type(value).__name__


def forms(loaded: Any) -> dict[str, Any]:
    return {field.name: form(getattr(loaded, field.name)) for field in dataclasses.fields(loaded)}


def test_every_loader_reads_its_invented_files(stand_ins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESDROP_DATA", str(stand_ins))
    assert set(LOADERS) == set(DATASETS), "a new data set has a line here and in stand_ins.py"
    for name in set(LOADERS) - LEFT_OUT:
        assert forms(LOADERS[name]())


@pytest.mark.parametrize("name", COMPARED)
def test_invented_files_have_the_form_of_the_real_ones(
    name: str, real: Callable[[str], Path], stand_ins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real(name)
    found = forms(LOADERS[name]())
    monkeypatch.setenv("BAYESDROP_DATA", str(stand_ins))
    assert forms(LOADERS[name]()) == found
