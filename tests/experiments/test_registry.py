"""Every experiment keeps the contract, runs in small, and its results file is of what the code says now."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bayesdrop.experiments
from bayesdrop.experiments import EXPERIMENTS, PieceCache, load_experiment
from bayesdrop.experiments.record import Record, read_record, read_records
from bayesdrop.experiments.registry import experiment_title

PACKAGE = Path(bayesdrop.experiments.__file__).parent
RESULTS = Path(__file__).parents[2] / "results"
RECORDS = read_records(RESULTS)


def modules() -> list[str]:
    """Modules that hold an experiment: those with a `SMOKE`."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if re.search(r"^SMOKE\b.*=", path.read_text(), re.MULTILINE):
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            found.append(".".join(("bayesdrop.experiments", *parts)).removesuffix(".__init__"))
    return found


def test_every_experiment_is_registered() -> None:
    registered = set(EXPERIMENTS.values())
    assert len(registered) == len(EXPERIMENTS)
    for module in modules():
        # A package of several files is registered as a whole.
        assert {module, module.rpartition(".")[0]} & registered, f"{module} has no line in registry.py"


def test_a_name_is_not_another_with_a_preset() -> None:
    for name in EXPERIMENTS:
        stems = {f"{name}-{preset}" for preset in load_experiment(name).presets} | {f"{name}-custom"}
        assert not stems & set(EXPERIMENTS), "its files would be another experiment's"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_title_names_paper_and_place(name: str) -> None:
    title = experiment_title(name)
    assert title == load_experiment(name).title
    assert 20 <= len(title) <= 110
    assert any(character.isdigit() for character in title)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_configuration_can_be_set_by_name_and_written_down(name: str) -> None:
    for config in load_experiment(name).presets.values():
        assert json.dumps(dataclasses.asdict(config), allow_nan=False)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, dataclasses.fields(config)[0].name, None)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke(name: str, tmp_path: Path) -> None:
    experiment = load_experiment(name)
    cache = PieceCache(name, folder=tmp_path / "runs")
    outcome = experiment.run(experiment.config("smoke"), cache=cache)
    assert outcome.rows
    assert outcome.complete
    record = Record(name, experiment.title, "smoke", {}, {}, "", None, 0.0, outcome)
    path = bayesdrop.experiments.record.write_record(record, tmp_path)
    experiment.draw(read_record(path).outcome).savefig(tmp_path / "picture.png", dpi=30)


def test_listing_imports_no_experiment() -> None:
    program = (
        "import sys; from bayesdrop.experiments.registry import EXPERIMENTS, experiment_title as title;"
        "[title(name) for name in EXPERIMENTS];"
        "print(*set(EXPERIMENTS.values()) & set(sys.modules), *{'matplotlib', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("stem", RECORDS)
def test_results_are_of_the_registered_experiments_as_they_are_now(stem: str) -> None:
    record = RECORDS[stem]
    assert record.stem == stem
    experiment = load_experiment(record.experiment)
    config = json.loads(json.dumps(dataclasses.asdict(experiment.config(record.preset))))
    assert {**config, **record.overrides} == record.config, "run it again: its settings are others now"


@pytest.mark.parametrize("stem", RECORDS)
def test_results_have_numbers_and_name_no_place_of_a_machine(stem: str) -> None:
    outcome = RECORDS[stem].outcome
    assert any(row.ours is not None for row in outcome.rows), "it was run without its data"
    texts = [*outcome.notes, *(row.note for row in outcome.rows), *(one.measured for one in outcome.claims)]
    assert not [text for text in texts if re.search(r"(^|[\s'\"(])/[a-z]+/", text)]


@pytest.mark.parametrize("stem", RECORDS)
def test_a_picture_is_drawn_from_its_results_alone(stem: str, tmp_path: Path) -> None:
    record = RECORDS[stem]
    figure = load_experiment(record.experiment).draw(record.outcome)
    figure.savefig(tmp_path / "picture.png", dpi=30)


def test_an_unknown_name_is_refused_with_the_nearest(toy: str) -> None:
    with pytest.raises(ValueError, match=r"unknown experiment 'toy2020'. Did you mean 'toy2020-squares'\?"):
        load_experiment("toy2020")


def test_a_module_without_its_parts_is_refused(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_experiment("toy2020-squares").module
    monkeypatch.setattr(module, "SMOKE", {"numbers": (1,)})
    with pytest.raises(TypeError, match="SMOKE one of it"):
        load_experiment("toy2020-squares")
    monkeypatch.delattr(module, "draw")
    with pytest.raises(TypeError, match="an experiment has draw"):
        load_experiment("toy2020-squares")
