"""Many small networks at once: splits, settings and repeats in batched products."""

from bayesdrop.stacked.encode import Encoder, TargetScale
from bayesdrop.stacked.export import export, likelihood_of
from bayesdrop.stacked.grow import grow
from bayesdrop.stacked.held_out import Calibration, calibrated
from bayesdrop.stacked.job import Job, Trained
from bayesdrop.stacked.mixture import Component, Mixture
from bayesdrop.stacked.noise_step import m_step
from bayesdrop.stacked.presets import PRESETS, preset_recipe
from bayesdrop.stacked.recipe import Candidate, Recipe
from bayesdrop.stacked.scores import Scores, draw_outputs, score
from bayesdrop.stacked.seen import Seen
from bayesdrop.stacked.settings import Settings
from bayesdrop.stacked.table import Table
from bayesdrop.stacked.tables import fit_tables
from bayesdrop.stacked.train import train

__all__ = [
    "PRESETS",
    "Calibration",
    "Candidate",
    "Component",
    "Encoder",
    "Job",
    "Mixture",
    "Recipe",
    "Scores",
    "Seen",
    "Settings",
    "Table",
    "TargetScale",
    "Trained",
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
