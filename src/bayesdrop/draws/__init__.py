"""Held noise: what makes a draw a function."""

from bayesdrop.draws.flags import evaluating
from bayesdrop.draws.held import FunctionDraw, HeldNoise, RowDraw, active_draw
from bayesdrop.draws.noises import NOT_READY
from bayesdrop.draws.pixels import PixelSource
from bayesdrop.draws.sites import HeldFlag, Selection, Site, StochasticModule, Where
from bayesdrop.draws.source import NoiseSource, Sampler

__all__ = [
    "NOT_READY",
    "FunctionDraw",
    "HeldFlag",
    "HeldNoise",
    "NoiseSource",
    "PixelSource",
    "RowDraw",
    "Sampler",
    "Selection",
    "Site",
    "StochasticModule",
    "Where",
    "active_draw",
    "evaluating",
]
