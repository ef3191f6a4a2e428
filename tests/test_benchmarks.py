"""The speed benchmark runs, its contenders do the same work, and its page shows what it found."""

from __future__ import annotations

import ast
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import bayesdrop as bd

ROOT = Path(__file__).parents[1]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield import_module("engine")
    for name in ("engine", "networks"):
        sys.modules.pop(name, None)


def test_a_quick_run_writes_a_row_for_every_contender(
    engine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peak = {"few": 2, "many": 4, "bar": 1.1}
    both = {"bayesdrop": 1.0, "kept draws": 2.0}
    peak |= {"ratio": both, "mebibytes": {way: [1, 2] for way in both}}
    monkeypatch.setattr(engine, "memory", lambda quick: peak)
    output = tmp_path / "engine.json"
    engine.main(["--quick", "--no-peers", "--cases", "regression", "--output", str(output)])
    found = json.loads(output.read_text())
    case = found["cases"]["regression"]
    assert set(case["contenders"]) == {*engine.OWN, *engine.PEER_NAMES}
    assert all(case["contenders"][way]["ratio"] > 0 for way in engine.OWN)
    assert all("--no-peers" in case["contenders"][peer]["not_run"] for peer in engine.PEER_NAMES)
    assert found["torch"] == torch.__version__
    assert engine.report(found) in capsys.readouterr().out


def test_a_run_of_some_cases_keeps_the_others(engine: Any, tmp_path: Path) -> None:
    output = tmp_path / "engine.json"
    assert engine._earlier_cases(output) == {}
    output.write_text(json.dumps({"cases": {"lenet": {"title": "earlier"}}}))
    assert engine._earlier_cases(output) == {"lenet": {"title": "earlier"}}


def test_the_hand_written_ways_have_the_moments_of_predict(engine: Any) -> None:
    net, x = engine.perceptron(3, 6, 1, p=0.3).eval(), torch.randn(4, 3)
    num_draws = 4000
    ours = bd.predict(net, x, num_draws=num_draws)
    fourth = (ours.draws - ours.mean).pow(4).mean(0)
    # of a difference of two sample variances, each with variance (m4 - variance^2) / T
    error_of_variance = (2 * (fourth - ours.epistemic.square()) / num_draws).sqrt()
    noisy = engine.with_dropout_on(net)
    for way in (engine.hand_written_loop, engine.repeated_batch):
        mean, variance = way(noisy, x, num_draws)
        standard_error = ((variance + ours.epistemic) / num_draws).sqrt()
        assert ((mean - ours.mean).abs() <= 5 * standard_error).all()
        assert ((variance - ours.epistemic).abs() <= 5 * error_of_variance).all()


def test_the_networks_need_nothing_but_torch() -> None:
    tree = ast.parse((ROOT / "benchmarks" / "networks.py").read_text())
    names = {
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    roots = {name.partition(".")[0] for name in names}
    assert roots - {"torch"} <= sys.stdlib_module_names


def test_the_page_shows_what_the_last_run_found(engine: Any) -> None:
    found = json.loads(engine.RESULTS.read_text())
    page = engine.PAGE.read_text()
    assert not found["quick"]
    assert set(found["cases"]) == set(engine.CASES)
    assert engine.rewritten(page, engine.report(found)) == page


def test_a_page_without_markers_is_refused(engine: Any) -> None:
    with pytest.raises(ValueError, match="must hold"):
        engine.rewritten("# Speed", "table")


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield import_module("images")
    for name in ("images", "networks"):
        sys.modules.pop(name, None)


def test_a_quick_run_of_images_writes_every_case(
    images: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(images, "memory", lambda name, quick: {"mebibytes": [1, 1], "ratio": 1.0})
    output = tmp_path / "images.json"
    images.main(["--quick", "--output", str(output)])
    found = json.loads(output.read_text())
    assert set(found["cases"]) == set(images.CASES)
    assert all(row["ratio"].keys() == images.WAYS.keys() for row in found["cases"].values())


def test_the_page_of_images_shows_what_the_last_run_found(images: Any) -> None:
    found = json.loads(images.RESULTS.read_text())
    page = images.PAGE.read_text()
    assert not found["quick"]
    assert images.rewritten(page, images.report(found)) == page


@pytest.fixture
def engine_jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield import_module("engine_jax")
    for name in ("engine_jax", "networks"):
        sys.modules.pop(name, None)


def test_the_table_of_jax_shows_what_the_last_run_found(engine_jax: Any) -> None:
    found = json.loads(engine_jax.RESULTS.read_text())
    page = engine_jax.PAGE.read_text()
    assert not found["quick"]
    assert set(found["cases"]) == set(engine_jax.CASES)
    assert engine_jax.rewritten(page, engine_jax.report(found)) == page
    assert all(case["standard_errors"] <= 5 for case in found["cases"].values())


def test_the_weights_that_jax_gets_are_the_networks(engine_jax: Any) -> None:
    """A residual network again, from the folded kernels alone."""
    net, x = engine_jax.made(engine_jax.CASES["residual-blocks"])
    for part in net.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            for values in (part.running_mean, part.running_var, part.weight, part.bias):
                torch.nn.init.uniform_(values, 0.5, 1.5)
    weights = {name: torch.from_numpy(values) for name, values in engine_jax.residual_weights(net).items()}
    conv, relu = torch.nn.functional.conv2d, torch.relu
    h = conv(x[:2], weights["stem"], weights["stem_bias"], padding=1)
    for block in range(4):
        first = relu(conv(h, weights[f"k{block}0"], weights[f"s{block}0"], padding=1))
        h = relu(h + conv(first, weights[f"k{block}1"], weights[f"s{block}1"], padding=1))
    torch.testing.assert_close(
        h.mean((2, 3)) @ weights["w"].T + weights["b"], net(x[:2]), rtol=1e-4, atol=1e-4
    )


def test_every_network_has_a_form_in_jax(engine_jax: Any) -> None:
    for name, case in engine_jax.CASES.items():
        kind, p, arrays = engine_jax.exported(name)
        assert 0 < p < 1
        assert arrays["x"].shape == case.shape
        assert f'"{kind}": ' in (ROOT / "benchmarks" / "peers_jax.py").read_text()


def test_without_its_environment_jax_is_refused(engine_jax: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="`make bench` makes an environment for JAX"):
        engine_jax.main(["--quick", "--python", str(tmp_path / "python")])
