"""Safe exploration, named in Gal, Hron & Kendall (2017): plans that pay for what their model does not know.

A cart on a plain has the wind behind it, the more so the nearer it comes to a cliff. Whoever collected the
data kept away from the edge: y is between -2 and 0, the edge at 0.7. A network with dropout learns how the
cart moves, and the cart is driven by planning (MPC) in draws of it: as far as it can in 15 steps. The model
knows nothing of the cliff, but extrapolates that there is more wind over there. A plan is judged by the mean
of its returns over draws, less kappa times their standard deviation: kappa 0 takes the extrapolation at its
word. A cart that is beyond the edge has fallen, and moves no more. The paper names the use and prints no
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayesdrop.control import MPC, DynamicsModel, Transitions, fit_dynamics
from bayesdrop.control.functions import HeldFunctions
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Claim, Outcome, Row, listed, mean_and_error
from bayesdrop.experiments.settings import all_but
from bayesdrop.plots import finish_axes, new_figure
from bayesdrop.randomness import random_state_kept

__all__ = ["PRESETS", "SMOKE", "Config", "draw", "run"]

#: the first weights of revision 1 did not follow the seed
REVISION = 2
#: the cart falls above it
EDGE = 0.7
#: largest step of the cart itself, either way
LIMIT = 0.3
#: where data were collected: x and y between these
_LOW, _HIGH = (-3.0, -2.0), (6.0, 0.0)
#: the caution that the claims are about
_CAREFUL = 3.0


@dataclass(frozen=True)
class Config:
    """The world's data, the model and the planner."""

    num_data: int = 400
    hidden: tuple[int, ...] = (64, 64)
    p: float = 0.1
    train_steps: int = 1000
    steps: int = 15  #: of an episode
    horizon: int = 8
    particles: int = 10
    samples: int = 40
    episodes: int = 6
    cautions: tuple[float, ...] = (0.0, 1.0, 3.0, 10.0)  #: kappa
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


SMOKE = Config(
    num_data=60, hidden=(8,), train_steps=20, steps=3, horizon=3, particles=3, samples=8, episodes=1,
    cautions=(0.0, 3.0), seeds=(0, 1),
)  # fmt: skip
PRESETS = {"quick": replace(Config(), episodes=3, cautions=(0.0, 3.0), seeds=(0, 1, 2))}


def moved(state: Tensor, action: Tensor) -> Tensor:
    """Where the cart goes: its own step, and wind that is stronger towards the edge; no step once it fell.

    Args:
        state: (N, 2) x and y.
        action: (N, 2).

    Returns: the next state, (N, 2).
    """
    wind = 0.1 + 0.05 * (state[:, 1:] + 2)
    gone = state + action + torch.cat([wind, torch.zeros_like(wind)], 1)
    return torch.where(state[:, 1:] > EDGE, state, gone)


def _data(config: Config, seed: int) -> Transitions:
    """Steps from anywhere on the known ground, with a little noise."""
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.tensor(_LOW), torch.tensor(_HIGH)
    states = low + (high - low) * torch.rand(config.num_data, 2, generator=generator)
    actions = LIMIT * (2 * torch.rand(config.num_data, 2, generator=generator) - 1)
    noise = 0.01 * torch.randn(config.num_data, 2, generator=generator)
    return Transitions(states, actions, moved(states, actions) + noise)


def _reward(states: Tensor) -> Tensor:
    """The reward of a state: how far the cart has come."""
    return states[..., 0]


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Every caution with every seed; a seed has one model and the same starts for all."""
    settings = all_but(config) | {"seeds": (), "cautions": ()}
    groups = {
        kappa: [{"seed": seed, "caution": kappa, **settings} for seed in config.seeds]
        for kappa in config.cautions
    }
    found = run_groups(groups, partial(_piece, config), cache=cache, progress=progress)

    def by_seed(kappa: float, what: str) -> np.ndarray[Any, Any]:
        return np.array([float(np.mean(piece[what])) for piece in found[kappa]])

    rows = []
    arrays: dict[str, Any] = {"cautions": list(config.cautions)}
    for kappa in config.cautions:
        fallen, distance = by_seed(kappa, "fallen"), by_seed(kappa, "distance")
        rows += [
            Row.of_runs(f"kappa = {kappa:g}", "episodes that fall (%)", 100 * fallen),
            Row.of_runs(f"kappa = {kappa:g}", "distance", distance),
            Row.of_runs(f"kappa = {kappa:g}", "largest y", by_seed(kappa, "highest")),
        ]
        arrays[f"fallen {kappa:g}"] = 100 * fallen
        arrays[f"distance {kappa:g}"] = distance
        arrays[f"paths {kappa:g}"] = np.asarray(found[kappa][0]["paths"])
    first = found[config.cautions[0]]
    arrays["heights"] = np.asarray(first[0]["heights"])
    arrays["spread"] = np.stack([np.asarray(piece["spread"]) for piece in first])
    notes = (
        "Claims were written before any of these numbers was seen. Errors are standard errors over seeds; "
        "all cautions of a seed have the same data, model and starts.",
    )
    return Outcome(rows, _claims(by_seed, arrays, config), arrays, notes)


def _model(config: Config, seed: int) -> DynamicsModel:
    with random_state_kept():
        torch.manual_seed(seed)
        model = DynamicsModel(
            2, 2, state_scale=[3.0, 1.0], action_scale=LIMIT, output_scale=[0.3, 0.2], hidden=config.hidden,
            dropout="fixed", p=config.p, input_p=0.0, activation=nn.ReLU,
        )  # fmt: skip
    fit_dynamics(model, _data(config, seed), steps=config.train_steps, seed=seed)
    return model


def _piece(config: Config, key: Mapping[str, Any]) -> dict[str, Any]:
    """All episodes of one caution and one seed."""
    seed, kappa = int(key["seed"]), float(key["caution"])
    model = _model(config, seed)
    control = MPC(
        model, _reward, horizon=config.horizon, limit=LIMIT, particles=config.particles,
        samples=config.samples, elites=max(2, config.samples // 8), iterations=3, first_iterations=10,
        restarts=1, std=LIMIT, caution=kappa, seed=seed,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1000 + seed)
    paths = []
    for episode in range(config.episodes):
        state = torch.tensor([-2.0, -1.0]) + 0.3 * torch.randn(2, generator=generator)
        control.reset(100 * seed + episode)
        path = [state]
        for step in range(config.steps):
            action = control.act(state, steps_left=config.steps - step)
            state = moved(state.unsqueeze(0), action.unsqueeze(0))[0]
            path.append(state)
        paths.append(torch.stack(path))
    walked = torch.stack(paths)
    heights, spread = _spread(model, seed)
    return {
        "fallen": (walked[:, -1, 1] > EDGE).double().numpy(),
        "distance": (walked[:, -1, 0] - walked[:, 0, 0]).double().numpy(),
        "highest": walked[..., 1].amax(1).double().numpy(),
        "paths": walked.numpy(),
        "heights": heights.numpy(),
        "spread": spread.numpy(),
    }


@torch.no_grad()
def _spread(model: DynamicsModel, seed: int, num_draws: int = 50) -> tuple[Tensor, Tensor]:
    """(41,) heights y; (41,) std over draws of where a cart at (0, y) is after a step without an action."""
    heights = torch.linspace(-2, 2, 41)
    states = torch.stack([torch.zeros_like(heights), heights], 1)
    functions = HeldFunctions(model, seed=seed, index=range(num_draws), means_only=True)
    many = states.repeat(num_draws, 1)
    gone = model.next_state(many, functions(many, torch.zeros_like(many))).view(num_draws, 41, 2)
    return heights, gone.var(0).sum(-1).sqrt()


def _claims(by_seed: Any, arrays: Mapping[str, Any], config: Config) -> tuple[Claim, ...]:
    heights, spread = arrays["heights"], arrays["spread"]
    known, beyond = spread[:, heights <= 0].mean(1), spread[:, heights > EDGE].mean(1)
    bold, careful = 100 * by_seed(0.0, "fallen"), 100 * by_seed(_CAREFUL, "fallen")
    far, near = by_seed(0.0, "distance"), by_seed(_CAREFUL, "distance")
    gain, error = mean_and_error(near - far)
    return (
        Claim(
            "The model knows what it does not know: beyond the edge its draws lie more than twice as far "
            "apart as where there are data, for every seed.",
            f"standard deviation of a step, by seed: {_listed(beyond)} and {_listed(known)}.",
            bool((beyond > 2 * known).all()),
        ),
        Claim(
            "Without a penalty most episodes go over the edge.",
            f"{bold.mean():.0f} % of episodes fall.",
            float(bold.mean()) > 50,
        ),
        Claim(
            f"With kappa = {_CAREFUL:g} at most half as many fall, and for no seed more.",
            f"{careful.mean():.0f} % against {bold.mean():.0f} %; by seed {_listed(careful)} and "
            f"{_listed(bold)}.",
            float(careful.mean()) <= 0.5 * float(bold.mean()) and bool((careful <= bold).all()),
        ),
        Claim(
            "Caution pays: a cart that does not fall comes further.",
            f"distance {near.mean():.2f} against {far.mean():.2f}; by seed {gain:+.2f} ± {error or 0:.2f}.",
            error is not None and gain > 2 * error,
        ),
    )


def _listed(values: np.ndarray[Any, Any]) -> str:
    return listed(values, ".3g")


def draw(outcome: Outcome) -> Any:
    """Paths of one seed, what the model does not know, and falls against distance."""
    arrays = outcome.arrays
    figure = new_figure(11, 4)
    axes = figure.subplots(1, 3, width_ratios=[1.5, 0.8, 1.1])
    ground = axes[0]
    ground.axhspan(_LOW[1], _HIGH[1], color="0.92")
    ground.annotate("data", (0.02, _LOW[1]), xycoords=("axes fraction", "data"), va="bottom")
    ground.axhline(EDGE, color="k", linewidth=1)
    ground.annotate("edge", (0.02, EDGE), xycoords=("axes fraction", "data"), va="bottom")
    cautions = [float(one) for one in arrays["cautions"]]
    for place, kappa in enumerate(cautions):
        for number, path in enumerate(np.asarray(arrays[f"paths {kappa:g}"], dtype=float)):
            label = {"label": f"kappa {kappa:g}"} if number == 0 else {}
            ground.plot(path[:, 0], path[:, 1], color=f"C{place}", linewidth=1, alpha=0.8, **label)
    finish_axes(ground, "paths of one seed", legend="lower right", xlabel="x", ylabel="y")
    spread = np.asarray(arrays["spread"], dtype=float)
    axes[1].plot(spread.T, np.asarray(arrays["heights"], dtype=float), color="C3", alpha=0.6)
    axes[1].axhline(EDGE, color="k", linewidth=1)
    axes[1].axhspan(_LOW[1], _HIGH[1], color="0.92")
    finish_axes(axes[1], "what is not known", xlabel="std of a step over draws", ylabel="y")
    for place, kappa in enumerate(cautions):
        axes[2].plot(
            arrays[f"distance {kappa:g}"], arrays[f"fallen {kappa:g}"], "o", color=f"C{place}",
            label=f"kappa {kappa:g}", alpha=0.8,
        )  # fmt: skip
    names = {"xlabel": "distance", "ylabel": "episodes that fall (%)", "ylim": (-5, 105)}
    finish_axes(axes[2], "each seed", legend=True, **names)
    return figure
