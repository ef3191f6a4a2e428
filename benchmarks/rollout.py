"""What a held draw costs in a rollout with gradients, against masks that are multiplied by hand.

A network 6-200-200-8 with Concrete dropout before every layer is stepped 25 times from ten states by a small
policy, and the sum of its costs is differentiated. Ways are run in turn, and the best of several runs counts.

    PYTHONPATH=src python benchmarks/rollout.py

The bar is 1.5 for every row.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bayesdrop import ConcreteDropout, FunctionDraw

HORIZON, PARTICLES, BAR = 25, 10, 1.5
Network = Callable[[Tensor], Tensor]


def network() -> nn.Sequential:
    """The dynamics of docs and tests: 6-200-200-8."""
    sizes = ((6, 200), (200, 200), (200, 8))
    first, second, third = (ConcreteDropout(nn.Linear(*size)) for size in sizes)
    return nn.Sequential(first, nn.SiLU(), second, nn.SiLU(), third)


def by_hand(model: nn.Sequential, functions: int, *, learned: bool) -> Network:
    """The same network with a mask for each group of particles, each with a gradient in the rate or not."""
    layers = [part for part in model if isinstance(part, ConcreteDropout)]
    masks = []
    for layer in layers:
        mask = (torch.rand(functions, layer.layer.in_features) > 0.1).float() / 0.9
        masks.append(mask.repeat_interleave(PARTICLES // functions, 0) if functions > 1 else mask)

    def run(x: Tensor) -> Tensor:
        for at, (layer, mask) in enumerate(zip(layers, masks, strict=True)):
            scaled = mask * (0.9 / torch.sigmoid(-layer.logit_p)) if learned else mask
            x = layer.layer(x * scaled)
            x = nn.functional.silu(x) if at < 2 else x
        return x

    return run


def rollout(step: Network, policy: nn.Module) -> None:
    """One rollout and its gradient."""
    state, cost = torch.zeros(PARTICLES, 4), torch.zeros(())
    for _ in range(HORIZON):
        action = policy(state)
        state = state + 0.1 * step(torch.cat([state, action, action], 1))[:, :4]
        cost = cost + state.square().mean()
    cost.backward()


def seconds(ways: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """The best processor time of each way, run in turn: it does not count what other programs take."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.process_time()
            way()
            best[name] = min(best[name], time.process_time() - start)
    return best


def main(repeats: int = 60) -> list[float]:
    """Print the ratios: held draw / masks by hand."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 1), nn.Tanh())
    ratios = []
    print(f"{'setting':44} {'by hand':>9} {'held':>9} {'ratio':>6}")
    for functions in (1, 5, 10):
        for trained in ("policy", "policy and weights", "policy, weights and rates"):
            model = network()
            for name, parameter in model.named_parameters():
                parameter.requires_grad_("weights" in trained and ("rates" in trained or "logit" not in name))
            hand = by_hand(model, functions, learned="rates" in trained)
            index = 3 if functions == 1 else list(range(functions))

            def held(model: nn.Module = model, index: int | list[int] = index) -> None:
                with FunctionDraw(model, seed=0, index=index):
                    rollout(model, policy)

            found = seconds({"held": held, "hand": lambda hand=hand: rollout(hand, policy)}, repeats)
            ratios.append(found["held"] / found["hand"])
            setting = f"{functions} function{'s' * (functions > 1)}, training {trained}"
            print(
                f"{setting:44} {1e3 * found['hand']:6.2f} ms {1e3 * found['held']:6.2f} ms {ratios[-1]:6.2f}"
            )
    verdict = "holds" if max(ratios) <= BAR else "does not hold"
    print(f"worst {max(ratios):.2f}: the bar of {BAR} {verdict}")
    return ratios


if __name__ == "__main__":
    main()
