"""grow(): networks that go on learning as a table grows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.stacked.held_out import Calibration, calibrate, calibrated, held_out
from bayesdrop.stacked.job import Job
from bayesdrop.stacked.mixture import Component, Mixture
from bayesdrop.stacked.seen import Seen
from bayesdrop.stacked.table import Table
from bayesdrop.stacked.train import train

__all__ = ["grow"]

_DRAWS = 24


def grow(
    mixture: Mixture, table: Table, known: int, *, epochs: int | None = None, processes: int = 1
) -> Mixture:
    """Go on training all networks on a table that has more rows than before.

    The encoding of columns and the scale of targets stay as they were, but for the range of the columns,
    which grows with the table; N in the objective is the new one.
    A network that held rows out goes on holding out the same rows and as large a share of the new ones,
    and its noise is set by all of these.

    Args:
        mixture: fitted to the first `known` rows.
        table: all rows, the new ones last.
        known: how many rows were there before.
        epochs: passes over the whole table; a quarter of the networks' own if None.
        processes: as in `train`.
    """
    size = len(table.x)
    if not 0 < known < size:
        raise ValueError(must("grow", "known", f"from 1 to {size - 1}: there must be new rows", known))
    seen = mixture.seen.joined(Seen.of(table.x))
    encoders = {bins: replace(encoder, seen=seen) for bins, encoder in mixture.encoders.items()}
    inputs = {bins: encoder.table_inputs(table.x) for bins, encoder in encoders.items()}
    targets = table.targets_in(mixture.target)
    source = np.random.Generator(np.random.SFC64(np.random.SeedSequence([table.seed, size])))
    jobs: list[Job] = []
    held: list[Tensor | None] = []
    for component in mixture.components:
        network = component.network
        rows = None
        apart = component.held
        if apart is not None:
            new = torch.from_numpy(np.flatnonzero(source.random(size - known) < len(apart) / known) + known)
            apart = torch.cat([apart, new])
            keep = torch.ones(size, dtype=torch.bool)
            keep[apart] = False
            rows = keep.nonzero().flatten()
        count = epochs or max(1, network.settings.epochs // 4)
        settings = replace(network.settings, epochs=count, patience=None, check_every=count)
        seed = int(source.integers(2**32))
        jobs.append(
            Job(
                inputs[component.bins],
                targets,
                settings,
                seed=seed,
                rows=rows,
                weight=table.weights,
                classes=table.classes,
                start=network,
                name=network.name,
            )
        )
        held.append(apart)
    found = train(jobs, processes=processes)
    components = []
    parts = []
    for component, network, apart in zip(mixture.components, found, held, strict=True):
        # What diverges stays as it was.
        kept = (
            component.network if network.diverged else replace(network, settings=component.network.settings)
        )
        components.append(Component(kept, component.bins, apart))
        if apart is not None and len(apart):
            x = inputs[component.bins]
            parts.append(held_out(kept, x, targets, apart, num_draws=_DRAWS, seed=kept.seed))
    change = Calibration(dof=mixture.dof)
    if parts:
        tails = math.isfinite(mixture.dof)
        change = calibrate(parts, size, given=[Calibration()] * len(parts), tails=tails)
    changed = [replace(one, network=calibrated(one.network, change)) for one in components]
    return replace(mixture, components=tuple(changed), encoders=encoders, dof=change.dof)
