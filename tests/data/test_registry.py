"""The registry: what is downloaded can be checked, and the stored files are the registered ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesdrop.data import AMAZON_DOMAINS, DATASETS, UCI
from bayesdrop.data.arrays import arrays_digest, read_npz


@pytest.mark.parametrize("name", DATASETS)
def test_a_download_has_a_checksum_and_a_home(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.name == name
    assert bool(dataset.download) == bool(dataset.sha256 or dataset.file_sha256)
    assert re.fullmatch(r"([0-9a-f]{64})?", dataset.sha256)
    assert re.fullmatch(r"([0-9a-f]{64})?", dataset.file_sha256)
    assert dataset.home.startswith("http")
    assert dataset.terms


def test_every_table_and_domain_is_registered() -> None:
    assert {f"uci-{name}" for name in UCI} <= set(DATASETS)
    for kind in ("full", "processed"):
        assert {f"amazon-{domain}-{kind}" for domain in AMAZON_DOMAINS} <= set(DATASETS)


@pytest.mark.parametrize(
    "name",
    [name for name, d in DATASETS.items() if d.sha256 and d.stored.endswith("npz") and name != "cifar10"],
)
def test_the_stored_file_has_the_registered_checksum(name: str, real: Callable[[str], Path]) -> None:
    assert arrays_digest(read_npz(real(name))) == DATASETS[name].sha256
