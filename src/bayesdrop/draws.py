"""Moved: draws are in `bayesdrop.trace`, and the noise that they are made of in `bayesdrop.noise`."""

from __future__ import annotations

from typing import Any

__all__: list[str] = []

_TRACE = {"FunctionDraw", "HeldNoise", "RowDraw", "Selection", "Site", "StochasticModule", "Where"}
_TRACE |= {"NOT_READY", "active_draw", "evaluating"}
_MOVED = dict.fromkeys(_TRACE, "trace") | dict.fromkeys(("NoiseSource", "PixelSource", "Sampler"), "noise")


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(name)
    raise ImportError(f"bayesdrop.draws has moved: import {name} from bayesdrop.{_MOVED[name]}.")
