"""Many small networks at once: splits, settings and repeats in batched products."""

import warnings
from typing import Any

from bayesdrop.stacked.encode import Encoder, Seen
from bayesdrop.stacked.fit import fit_tables, grow
from bayesdrop.stacked.held_out import Calibration, calibrated
from bayesdrop.stacked.job import Job, Trained, export, likelihood_of
from bayesdrop.stacked.mixture import Component, Mixture
from bayesdrop.stacked.recipe import PRESETS, Candidate, FitRecipe, preset_recipe
from bayesdrop.stacked.scores import Scores, draw_outputs, m_step, score
from bayesdrop.stacked.settings import Settings
from bayesdrop.stacked.table import TargetScale, TrainingTable
from bayesdrop.stacked.train import train

__all__ = [
    "PRESETS",
    "Calibration",
    "Candidate",
    "Component",
    "Encoder",
    "FitRecipe",
    "Job",
    "Mixture",
    "Scores",
    "Seen",
    "Settings",
    "TargetScale",
    "Trained",
    "TrainingTable",
    "calibrated",
    "draw_outputs",
    "export",
    "fit_tables",
    "grow",
    "likelihood_of",
    "m_step",
    "preset_recipe",
    "score",
    "train",
]

_RENAMED = {"Table": TrainingTable, "Recipe": FitRecipe}


def __getattr__(name: str) -> Any:
    """Old names, which work for one more release."""
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _RENAMED[name]
    told = f"bayesdrop.stacked.{name} is now called {new.__name__}; the old name goes in the next release."
    warnings.warn(told, FutureWarning, stacklevel=2)
    return new
