"""The page about other libraries shows what the last run found, and what it says of this one is true."""

from __future__ import annotations

import json
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import bayesdrop as bd

ROOT = Path(__file__).parents[1]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield import_module("peers_faults")
    for name in ("peers_faults", "peers_sites"):
        sys.modules.pop(name, None)


def test_the_page_shows_what_the_last_run_found(faults: Any) -> None:
    found = json.loads(faults.RESULTS.read_text())
    assert faults.report(found) in faults.PAGE.read_text()
    assert set(found["alone"]) == set(faults.SITES)
    assert all(set(row) == set(faults.NAMES) for row in found["alone"].values())


def test_every_site_is_random_in_our_draws_or_refused(faults: Any) -> None:
    for name, place in faults.SITES.items():
        net, x = faults.network(name, beside=False), torch.randn(4, *place.shape)
        if name in faults.NOTHING_RANDOM:
            with pytest.raises(bd.NoRandomness):
                bd.predict(net, x, num_draws=5)
        else:
            assert (bd.predict(net, x, num_draws=20).std > 0).any(), name


def test_the_usual_recipe_misses_the_encoder(faults: Any) -> None:
    net, x = faults.network("encoder", beside=False), torch.randn(4, *faults.SITES["encoder"].shape)
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.train()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draws = torch.stack([net(x) for _ in range(10)])
    assert draws.std(0).max() == 0


def test_a_page_without_markers_is_refused(faults: Any) -> None:
    with pytest.raises(ValueError, match="must hold"):
        faults.rewritten("# Peers", "table")
