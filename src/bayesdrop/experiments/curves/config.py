"""Settings that both experiments have, and how these differ from the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bayesdrop.experiments.curves.alike import MEANS, SPREADS

__all__ = ["NETWORK_FIELDS", "CurveConfig", "common_notes"]


#: what a trained network depends on
NETWORK_FIELDS = ("width", "steps", "solver", "lr", "head_start", "num_draws", "few_draws", "num_paths")


@dataclass(frozen=True)
class CurveConfig:
    """All that the numbers depend on, except for the networks."""

    width: int = 256
    steps: int = 2500
    solver: str = "adam"  #: "sgd" is the authors', with the learning rates of the networks
    lr: float = 1e-3  #: of Adam, at first; it falls to a hundredth along a cosine
    head_start: bool = True  #: see `give_head_start`
    num_draws: int = 1000
    few_draws: int = 10
    num_paths: int = 5  #: draws in the picture
    num_grid: int = 681
    restarts: int = 3  #: further starts of the search for the process's parameters
    seed: int = 0


def common_notes(config: CurveConfig, own: Sequence[str], head_start: str) -> list[str]:
    """What differs from the paper.

    Args:
        config: of the run.
        own: sentences on the data.
        head_start: what the head start is.
    """
    notes = [
        f"Two models are said to be the same where their means are less than {MEANS:g} standard deviation "
        f"apart, root mean square over rows, and their spreads differ by less than a factor of {SPREADS:g}. "
        "That was fixed after the default had been seen, and before any network 1024 wide was trained; so "
        "was that a spread counts as larger from that factor on.",
        "Standard deviations are of the functions drawn. The paper adds the noise of the model, 1 / tau, "
        "which at its weight decay is too small to be seen.",
        f"Errors of {config.few_draws} draws are over all sets of as many among {config.num_draws:,} others; "
        "those of a single set, which an earlier version took, are a matter of chance.",
        *own,
        "The paper does not give the parameters of its Gaussian process; ours maximise the evidence.",
    ]
    if config.solver == "adam":
        notes.append(
            f"{config.steps:,} steps of Adam at {config.lr:g}, falling to a hundredth of it along a cosine; "
            "the paper has 1,000,000 of gradient descent with momentum."
        )
    if config.width != 1024:
        notes.append(f"Hidden layers of {config.width} units instead of 1024.")
    if config.head_start:
        notes.append(head_start)
    return notes
