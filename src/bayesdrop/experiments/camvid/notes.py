"""What differs from both papers on CamVid, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesdrop.experiments.camvid.scale import Scale

__all__ = ["shared_notes"]


def shared_notes(config: Scale, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Sentences on the network, the resolution, the shared weights, and what a run cost."""
    height, width = 360 // config.shrink, 480 // config.shrink
    network = f"FC-DenseNet-{config.depth}"
    if config.depth is None:
        levels = "-".join(map(str, config.blocks))
        network = f"an FC-DenseNet of {levels} layers a level, {config.middle} in the middle, "
        network += f"growth {config.growth}"
    seeds = "One seed" if config.seeds == 1 else f"{config.seeds} seeds"
    crops = "" if config.crop is None else f", on crops of {config.crop[0]} x {config.crop[1]}"
    minutes = max(piece["seconds"] for pieces in found.values() for piece in pieces) / 60
    return [
        f"The paper's network is FC-DenseNet-103 at 360 x 480; here {network}, at {height} x {width}: pixels "
        "are averaged, labels are the commonest of a square, and tests are at that resolution. Printed "
        "numbers show the order, not the level.",
        f"{seeds}. All methods of a seed share {config.warm_epochs} epochs without dropout{crops}, and have "
        f"{config.epochs} of their own, on whole frames. The statistics of BatchNorm stand still in the "
        "latter, for all methods (the original takes them from the minibatch, in tests too): rows do not "
        "meet, and learned rates get the gradient of each frame's own loss.",
        f"A run, the shared epochs counted in full, took at most {minutes:.1f} CPU minutes of training. The "
        "claims' thresholds were fixed before the run.",
    ]
