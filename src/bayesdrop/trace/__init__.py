"""Passes of a model: its sites of randomness, the noise held for them, and tapes of what was done with it."""

from bayesdrop.trace.draw import Draw, active_draw, recorded
from bayesdrop.trace.function import FunctionDraw, RowDraw
from bayesdrop.trace.handlers import randomness_of
from bayesdrop.trace.held import NOT_READY, HeldNoise, ModelFindings
from bayesdrop.trace.isolate import Subject
from bayesdrop.trace.probe import first_look, in_groups, leaves_doubts, probe, script_sites, settled
from bayesdrop.trace.sites import Selection, Site, StochasticModule, Where, evaluating
from bayesdrop.trace.tape import DoesNotFit, Leaf, Op, Recorder, Ref, Tape

__all__ = [
    "NOT_READY",
    "DoesNotFit",
    "Draw",
    "FunctionDraw",
    "HeldNoise",
    "Leaf",
    "ModelFindings",
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
    "first_look",
    "in_groups",
    "leaves_doubts",
    "probe",
    "randomness_of",
    "recorded",
    "script_sites",
    "settled",
]
