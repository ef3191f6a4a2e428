"""No download, a cache of the test's own, and real data where they are at hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesdrop.data import DATASETS

REAL = os.environ.get("BAYESDROP_DATA", "")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The cache folder. No data folder is set, and nothing is downloaded."""
    monkeypatch.setenv("BAYESDROP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BAYESDROP_OFFLINE", "1")
    monkeypatch.delenv("BAYESDROP_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes the real files of a data set seen; skips the test where they are absent."""

    def use(name: str) -> Path:
        path = Path(REAL) / DATASETS[name].stored
        if not REAL or not path.exists():
            pytest.skip(f"real data are absent: BAYESDROP_DATA has no {DATASETS[name].stored}")
        monkeypatch.setenv("BAYESDROP_DATA", REAL)
        return path

    return use
