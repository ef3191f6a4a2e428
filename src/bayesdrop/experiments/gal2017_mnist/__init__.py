"""Gal, Hron & Kendall (2017), figs 5, 6, 11: learned drop rates and accuracy on MNIST.

A fully connected network with three hidden layers and Concrete dropout before all four weight layers learns
its drop rates from 50,000 digits (fig. 5: from fewer; fig. 6: with other widths; fig. 11: with other prior
length scales). The prior length scale is l sqrt(K_in), and the N of the objective is the number of digits
that the network is trained on.

The default trains every network once, for 25 epochs, or 10 in the scans; learning rates fall along a cosine,
and that of the drop rates is ten times that of the weights. The preset "wide" trains every network three
times, and scans the length scales at the paper's width; the preset "paper" has the paper's 500 epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

from bayesdrop.data import DataNotFound
from bayesdrop.experiments.gal2017_mnist.networks import load_digits, train_network
from bayesdrop.experiments.gal2017_mnist.picture import draw, gather_arrays
from bayesdrop.experiments.gal2017_mnist.plan import Pieces, Plan
from bayesdrop.experiments.gal2017_mnist.report import make_claims, make_notes, make_rows
from bayesdrop.experiments.pieces import PieceCache, run_pieces
from bayesdrop.experiments.row import Outcome

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]


@dataclass(frozen=True)
class Config:
    """All that the numbers depend on. The accuracy has `steps`, the three scans have `scan_steps`."""

    train_sizes: tuple[int, ...] = (100, 500, 2500, 10_000, 50_000)
    widths: tuple[int, ...] = (64, 128, 256, 512)
    length_scales: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 2.0)
    width: int = 512
    length_scale_width: int = 128  #: of the networks of the length-scale scan
    length_scale: float = 1e-2
    steps: int = 9775
    scan_steps: int = 3910
    batch_size: int = 128
    num_draws: int = 200
    scan_draws: int = 25
    repeats: int = 1
    dropout_baseline: bool = True  #: also train with fixed rates, 0.2 on the inputs and 0.5 on hidden units
    p_init: float = 0.1
    temperature: float = 0.1
    lr: float = 1e-3
    rate_lr: float = 1e-2
    seed: int = 0


SMOKE = Config(
    train_sizes=(60, 120), widths=(8, 16), length_scales=(1e-2, 1.0), width=16, length_scale_width=16,
    steps=20, scan_steps=10, num_draws=3, scan_draws=2,
)  # fmt: skip
PRESETS = {
    "quick": Config(
        train_sizes=(100, 2500), widths=(64, 128), length_scales=(1e-2, 1.0), width=128,
        length_scale_width=64, steps=600, scan_steps=300, num_draws=20, scan_draws=10,
    ),
    "wide": Config(length_scale_width=512, repeats=3),
    "paper": Config(
        train_sizes=(100, 500, 2500, 10_000, 25_000, 50_000), widths=(128, 256, 512, 1024, 2048),
        length_scale_width=512, steps=500 * 391, scan_steps=500 * 391, scan_draws=200, repeats=3,
        rate_lr=1e-3,
    ),
}  # fmt: skip


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Train all networks, or find them in the cache."""
    plan = Plan.of(config)
    try:
        load_digits()
    except DataNotFound as error:
        return Outcome(make_rows(config, plan, None), notes=(error.brief,))
    made = run_pieces(plan.keys, train_network, cache=cache, progress=progress, label="Networks")
    pieces = Pieces(plan.keys, made)
    return Outcome(
        make_rows(config, plan, pieces),
        make_claims(config, plan, pieces),
        arrays=gather_arrays(config, plan, pieces),
        notes=make_notes(config),
    )
