"""Steps a CPU second of the eye world, one world and many at once, on one thread.

    python benchmarks/worlds.py [--ticks 5000]

Random actions, observations included. `SyncVectorEnv` is what Gymnasium makes of single worlds.
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import numpy as np

import bayesdrop.control  # noqa: F401  (registers the worlds)


def steps_a_second(worlds: gymnasium.vector.VectorEnv, ticks: int) -> float:
    """World steps a second of processor time, after a hundred ticks that are not counted."""
    count = worlds.num_envs
    actions = np.random.default_rng(0).integers(0, 5, (ticks + 100, count))
    worlds.reset(seed=0)
    start = 0.0
    for tick, chosen in enumerate(actions):
        if tick == 100:
            start = time.process_time()
        worlds.step(chosen)
    return count * ticks / (time.process_time() - start)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ticks", type=int, default=5000)
    ticks = parser.parse_args().ticks
    print("| worlds | steps a CPU second, many at once | SyncVectorEnv | ratio |\n|---|---|---|---|")
    for count in (1, 5, 20, 100):
        rates = []
        for mode in ("vector_entry_point", "sync"):
            worlds = gymnasium.make_vec("bayesdrop/EyeWorld-v0", count, vectorization_mode=mode)
            rates.append(steps_a_second(worlds, max(1000, ticks // count)))
        print(f"| {count} | {rates[0]:,.0f} | {rates[1]:,.0f} | {rates[0] / rates[1]:.1f}x |")


if __name__ == "__main__":
    main()
