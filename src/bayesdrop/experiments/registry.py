"""The list of experiments: strings, so that listing them imports none."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from bayesdrop.experiments.row import Outcome

__all__ = ["EXPERIMENTS", "Experiment", "experiment_text", "experiment_title", "load_experiment", "unknown"]

EXPERIMENTS: dict[str, str] = {
    "active-learning-cifar": "bayesdrop.experiments.active_learning_cifar",
    "active-learning-mnist": "bayesdrop.experiments.active_learning_mnist",
    "adversarial-mnist": "bayesdrop.experiments.adversarial_mnist",
    "boluki2020-camvid": "bayesdrop.experiments.boluki2020_camvid",
    "boluki2020-cifar": "bayesdrop.experiments.boluki2020_cifar",
    "boluki2020-recommender": "bayesdrop.experiments.boluki2020_recommender",
    "boluki2020-toy-gradients": "bayesdrop.experiments.boluki2020_toy_gradients",
    "cascade-cifar": "bayesdrop.experiments.cascade_cifar",
    "cascade-mnist": "bayesdrop.experiments.cascade_mnist",
    "critics": "bayesdrop.experiments.critics",
    "deep-sea": "bayesdrop.experiments.deep_sea",
    "gal2015-insights": "bayesdrop.experiments.gal2015_insights",
    "gal2016-co2": "bayesdrop.experiments.gal2016_co2",
    "gal2016-cosine": "bayesdrop.experiments.gal2016_cosine",
    "gal2016-mnist-rotation": "bayesdrop.experiments.gal2016_mnist_rotation",
    "gal2016-sequences": "bayesdrop.experiments.gal2016_sequences",
    "gal2016-softmax": "bayesdrop.experiments.gal2016_softmax",
    "gal2016-thompson": "bayesdrop.experiments.gal2016_thompson",
    "gal2016-uci-table1": "bayesdrop.experiments.gal2016_uci_table1",
    "gal2016-solar": "bayesdrop.experiments.gal2016_solar",
    "gal2017-camvid": "bayesdrop.experiments.gal2017_camvid",
    "gal2017-cartpole": "bayesdrop.experiments.gal2017_cartpole",
    "gal2017-mnist": "bayesdrop.experiments.gal2017_mnist",
    "gal2017-start": "bayesdrop.experiments.gal2017_start",
    "gal2017-synthetic": "bayesdrop.experiments.gal2017_synthetic",
    "gal2017-uci": "bayesdrop.experiments.gal2017_uci",
    "gal2017-weights": "bayesdrop.experiments.gal2017_weights",
    "herlau2022-amazon": "bayesdrop.experiments.herlau2022_amazon",
    "herlau2022-naive": "bayesdrop.experiments.herlau2022_naive",
    "herlau2022-qspr": "bayesdrop.experiments.herlau2022_qspr",
    "herlau2022-simulation": "bayesdrop.experiments.herlau2022_simulation",
    "injected": "bayesdrop.experiments.injected",
    "ood-images": "bayesdrop.experiments.ood_images",
    "recommend-uncertainty": "bayesdrop.experiments.recommend_uncertainty",
    "safe-exploration": "bayesdrop.experiments.safe_exploration",
    "tables": "bayesdrop.experiments.tables",
    "thompson-bandits": "bayesdrop.experiments.thompson_bandits",
    "vae-mnist": "bayesdrop.experiments.vae_mnist",
    "which-dropout": "bayesdrop.experiments.which_dropout",
}


@dataclass(frozen=True)
class Experiment:
    """A module that keeps the contract of `bayesdrop.experiments`."""

    name: str
    module: ModuleType

    @property
    def title(self) -> str:
        """The first line of the module's docstring."""
        return _first_line(self.module.__doc__)

    @property
    def presets(self) -> dict[str, Any]:
        """Configurations by name: "default" (the reproduction), "smoke", and the module's own."""
        own: Mapping[str, Any] = getattr(self.module, "PRESETS", {})
        return {"default": self.module.Config(), "smoke": self.module.SMOKE, **own}

    @property
    def revision(self) -> int:
        """Raised by its module when pieces from before must not be used."""
        return int(getattr(self.module, "REVISION", 1))

    @property
    def takes_earlier(self) -> bool:
        """Whether it uses the numbers of an earlier results file."""
        return bool(getattr(self.module, "TAKES_EARLIER", False))

    def config(self, preset: str = "default") -> Any:
        """The configuration that a preset names."""
        presets = self.presets
        if preset not in presets:
            raise ValueError(unknown(f"preset of {self.name}", preset, presets))
        return presets[preset]

    def run(self, config: Any, *, cache: Any, progress: bool = False) -> Outcome:
        """What the module's `run` finds."""
        outcome = self.module.run(config, cache=cache, progress=progress)
        if not isinstance(outcome, Outcome):
            raise TypeError(f"{self.module.__name__}: run() must return an Outcome; got {outcome!r:.100}.")
        return outcome

    def draw(self, outcome: Outcome) -> Any:
        """The picture of an outcome, a matplotlib Figure."""
        return self.module.draw(outcome)


def load_experiment(name: str) -> Experiment:
    """Import an experiment and see that it keeps the contract.

    Args:
        name: one of `EXPERIMENTS`.
    """
    module = importlib.import_module(_module_name(name))
    for part in ("Config", "SMOKE", "run", "draw"):
        if not hasattr(module, part):
            raise TypeError(f"{module.__name__}: an experiment has {part}; see bayesdrop.experiments.")
    config: Any = module.Config
    if not is_dataclass(config) or type(module.SMOKE) is not config:
        raise TypeError(f"{module.__name__}: Config must be a dataclass, and SMOKE one of it.")
    return Experiment(name, module)


def experiment_text(name: str) -> str:
    """An experiment's docstring, read from its source: nothing is imported."""
    spec = importlib.util.find_spec(_module_name(name))
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"experiment {name!r}: there is no module {_module_name(name)}.")
    return ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""


def experiment_title(name: str) -> str:
    """The first line of an experiment's docstring; nothing is imported."""
    return _first_line(experiment_text(name))


def unknown(what: str, name: str, known: Mapping[str, Any]) -> str:
    """The message for a name that is not known.

    >>> unknown("experiment", "gal2016-uci-tabel1", {"gal2016-uci-table1": ""})
    "unknown experiment 'gal2016-uci-tabel1'. Did you mean 'gal2016-uci-table1'?"
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(sorted(known)) or 'none'}."
    return f"unknown {what} {name!r}. {hint}"


def _module_name(name: str) -> str:
    if name not in EXPERIMENTS:
        raise ValueError(unknown("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]


def _first_line(docstring: str | None) -> str:
    return (docstring or "").strip().partition("\n")[0].strip()
