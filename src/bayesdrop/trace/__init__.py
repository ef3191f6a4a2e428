"""Passes of a model: where it is random, its noise held, what it does written down."""

from bayesdrop.trace.draw import Draw, active_draw, recorded
from bayesdrop.trace.function import FunctionDraw, RowDraw
from bayesdrop.trace.handlers import randomness_of
from bayesdrop.trace.held import NOT_READY, Findings, HeldNoise
from bayesdrop.trace.isolate import Subject
from bayesdrop.trace.probe import in_groups, probe, script_sites, settled
from bayesdrop.trace.sites import Selection, Site, StochasticModule, Where, evaluating
from bayesdrop.trace.tape import DoesNotFit, Leaf, Op, Recorder, Ref, Tape

__all__ = [
    "NOT_READY",
    "DoesNotFit",
    "Draw",
    "Findings",
    "FunctionDraw",
    "HeldNoise",
    "Leaf",
    "Op",
    "Recorder",
    "Ref",
    "RowDraw",
    "Selection",
    "Site",
    "StochasticModule",
    "Subject",
    "Tape",
    "Where",
    "active_draw",
    "evaluating",
    "in_groups",
    "probe",
    "randomness_of",
    "recorded",
    "script_sites",
    "settled",
]
