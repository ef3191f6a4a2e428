"""Sequences are what they are said to be, networks differ in noise alone, and absent data are not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bayesdrop import rates
from bayesdrop.data import DataNotFound
from bayesdrop.experiments import PieceCache, load_experiment
from bayesdrop.experiments import adversarial_mnist as attacks
from bayesdrop.experiments import gal2016_sequences as sequences
from bayesdrop.experiments.gal2016_sequences.networks import (
    FRESH,
    LEARNED,
    NONE,
    OUTER,
    SHARED,
    VARIANTS,
    SequenceNet,
)
from bayesdrop.experiments.gal2016_sequences.problems import ALPHABET, Sizes, load_problem

SIZES = Sizes(text=20, images=10, test=8)


def absent(*_: Any) -> Any:
    raise DataNotFound("the images are not at hand. They were looked for here.")


def read(codes: torch.Tensor) -> str:
    return "".join(ALPHABET[code] for code in codes)


def test_a_text_is_followed_by_its_next_character() -> None:
    problem = load_problem("text", SIZES, 0)
    assert problem.x.shape == problem.y.shape == (20, 50)
    assert torch.equal(problem.x[:, 1:], problem.y[:, :-1])
    assert torch.equal(problem.x[1:, 0], problem.y[:-1, -1])
    assert torch.equal(problem.x_new[:, 1:], problem.y_new[:, :-1])
    trained, held_out = read(problem.x.flatten()), read(problem.x_new.flatten())
    assert not any(held_out[start : start + 50] in trained for start in range(0, 350, 50))
    assert not torch.equal(problem.x, load_problem("text", SIZES, 1).x)


def test_what_is_outside_differs_in_one_thing() -> None:
    problem = load_problem("text", SIZES, 0)
    x, outside = problem.x_new, problem.outside
    assert read(outside["backwards"][0]) == read(x[0])[::-1]
    assert torch.equal(outside["shuffled"].sort(1).values, x.sort(1).values)
    assert not torch.equal(outside["shuffled"], x)
    a, n = ALPHABET.index("a"), ALPHABET.index("n")
    assert torch.equal(outside["rot13"] == n, x == a)
    series = load_problem("CO2", SIZES, 0)
    assert torch.equal(series.outside["backwards"], series.x_new.flip(1))
    assert torch.equal(series.outside["twice as fast"][0, :4, 0], torch.cat([series.x_new[0, 0:8:2, 0]]))


def test_a_series_is_split_by_time() -> None:
    problem = load_problem("CO2", SIZES, 0)
    assert problem.x.shape[1:] == (24, 1)
    assert torch.equal(problem.x[1:, -1], problem.y[:-1])
    # Standardised by what was trained on: windows overlap, so that their first values are nearly all of it.
    assert float(problem.x[:, 0].mean().abs()) < 0.1
    assert float(problem.x[:, 0].std()) == pytest.approx(1, abs=0.1)


def network(variant: str, cell: str = "GRU", kind: str = "text") -> SequenceNet:
    torch.manual_seed(0)
    return SequenceNet(
        kind, cell, variant, features=6, outputs=4, hidden=5, p=0.25, p_init=0.1, length_scale=1e-2
    )


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_networks_differ_in_their_noise_alone(cell: str) -> None:
    nets = {variant: network(variant, cell).eval() for variant in VARIANTS}
    x = torch.randint(len(ALPHABET), (3, 7), generator=torch.Generator().manual_seed(0))
    outputs = {variant: net(x) for variant, net in nets.items()}
    assert all(torch.equal(output, outputs[NONE]) for output in outputs.values())
    found = {variant: [round(float(p), 4) for p in rates(net).values()] for variant, net in nets.items()}
    assert found == {
        NONE: [0, 0, 0],
        FRESH: [0.25] * 3,
        OUTER: [0.25, 0, 0.25],
        SHARED: [0.25] * 3,
        LEARNED: [0.1] * 3,
    }


def test_what_is_no_text_has_one_output_after_the_last_step() -> None:
    net = network(SHARED, kind="number").eval()
    x = torch.randn(3, 7, 6, generator=torch.Generator().manual_seed(0))
    assert net(x).shape == (3, 4)
    other = x.clone()
    other[:, -1] += 1
    assert not torch.allclose(net(x), net(other))


@pytest.mark.parametrize(
    ("name", "module"), [("adversarial-mnist", attacks), ("gal2016-sequences", sequences)]
)
def test_absent_data_are_not_run(
    name: str, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "load_images" if module is attacks else "load_problem", absent)
    experiment = load_experiment(name)
    outcome = experiment.run(experiment.config("smoke"), cache=PieceCache(name, folder=tmp_path))
    assert outcome.rows
    assert all(row.ours is None for row in outcome.rows)
    assert not outcome.claims
    assert outcome.notes[-1] == "the images are not at hand"
    experiment.draw(outcome).savefig(tmp_path / "picture.png", dpi=20)
