"""Boluki et al. (2020), fig. 1: bias and variance of gradient estimates for drop rates, on a toy network.

    f(x; z) = sum_k v_k z_k relu(w_k x),   y = sum_k v_k w_k x,   L(a) = mean_i E_z (y_i - f(x_i; z_i))^2

Two hidden units with fixed random weights are dropped by masks z_k that keep with chance sigmoid(a_k). The
four masks can be enumerated, so that L and its gradient in a are known exactly. ARM, DisARM, leave-one-out
(LOO) and plain REINFORCE, all through `arm_loss` and `LearnableDropout`, and the relaxation of
`ConcreteDropout` at two temperatures estimate that gradient on a grid of keep chances, and along exact
gradient descent.

One estimate uses one mask (REINFORCE, Concrete) or two (ARM, DisARM, LOO) for each of the 3,000 points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesdrop.experiments.boluki2020_toy_gradients.picture import draw
from bayesdrop.experiments.boluki2020_toy_gradients.report import make_claims, make_rows
from bayesdrop.experiments.boluki2020_toy_gradients.survey import compute_piece
from bayesdrop.experiments.boluki2020_toy_gradients.toy import ESTIMATORS
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Outcome

__all__ = ["SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on. The first network is the figure's; the others show what is general."""

    num_data: int = 3000
    keeps: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    num_estimates: int = 200
    networks: int = 8
    other_keeps: tuple[float, ...] = (0.25, 0.75)  #: the grid of the further networks
    trace_steps: int = 60  #: of exact gradient descent
    trace_every: int = 3  #: steps from one estimate along the descent to the next
    trace_estimates: int = 50
    trace_lr: float = 0.1
    seed: int = 0


SMOKE = Config(
    num_data=50, keeps=(0.3, 0.7), num_estimates=20, networks=2, other_keeps=(0.5,), trace_steps=4,
    trace_estimates=5,
)  # fmt: skip

NOTES = (
    "The paper prints no numbers in this figure, nor the inputs' distribution, biases and temperature: here "
    "x and the weights are standard normal, there are no biases, and Concrete has two temperatures.",
    "Masks are raw, not divided by the chance of keeping, as in the paper's equations.",
    "Rows are root mean squares over the grid and both units, divided by that of the exact gradient. What "
    "the sampling error adds to the square of a bias is taken off.",
)


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Survey the first network's grid and descent, then the other networks."""
    trace = {
        "kind": "trace",
        "num_data": config.num_data,
        "seed": config.seed,
        "steps": config.trace_steps,
        "every": config.trace_every,
        "count": config.trace_estimates,
        "lr": config.trace_lr,
    }
    grids = [
        {
            "kind": "grid",
            "num_data": config.num_data,
            "seed": config.seed + network,
            "keeps": config.other_keeps if network else config.keeps,
            "count": config.num_estimates,
        }
        for network in range(config.networks)
    ]
    descent, first, *others = run_pieces(
        [trace, *grids], compute_piece, cache=cache, progress=progress, label="Networks"
    )
    arrays = {name: first[name] for name in ("bias", "std", "mse", "exact", "samples", "sampled_at")}
    arrays |= {f"trace_{name}": values for name, values in descent.items()}
    arrays |= {"keeps": np.array(config.keeps), "estimators": list(ESTIMATORS)}
    claims = make_claims([first, *others], descent, config.num_estimates, config.trace_estimates)
    rows = make_rows(first, config.num_estimates)
    return Outcome(rows, claims, arrays=arrays, notes=NOTES)
