"""How many labels the desk's queue saves: a simulated person labels scikit-learn's digits.

    PYTHONPATH=src python benchmarks/desk_digits.py [--seeds 5] [--output found.json]

1,000 of the 1,797 digits wait at the desk, 797 are for testing. The person labels what the queue of the store
hands out; as in a refit of the server, labels of the random lane, every fourth, count but are not trained on:
they are what versions are compared on. After every 20 labels the model is trained again, and its uncertainty
orders what still waits. Beside it the same person, given the same digits in random order. The bar: with the
queue 95 % of the test digits are right after at most 60 % of the labels that random order needs.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bayesdrop as bd
from bayesdrop.serve.store import NewItem, NewRequest, Store
from bayesdrop.serve.store.ids import new_id

START, STEP, DRAWS, EPOCHS = 20, 20, 40, 60
GOAL, BAR = 0.95, 0.60


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """(1797, 64) pixels from 0 to 1, and labels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.data / 16, dtype=torch.float32), torch.tensor(found.target)


def trained(x: torch.Tensor, y: torch.Tensor, seed: int) -> Any:
    """A perceptron with dropout, trained from scratch on the labels so far."""
    torch.manual_seed(seed)
    net = bd.models.mlp(64, (128, 128), 10, p=0.2, input_p=0.0)
    objective = bd.NegativeELBO(bd.Categorical(), num_data=len(x))
    bd.fit(net, (x, y), objective, epochs=EPOCHS, lr=3e-3, batch_size=32, seed=seed, progress=False)
    return net


def said(net: Any, x: torch.Tensor) -> Any:
    """The predictive distribution."""
    return bd.predict(net, x, num_draws=DRAWS, likelihood=bd.Categorical(), seed=0)


def random_order(x: Any, y: Any, test: Any, seed: int, most: int) -> dict[int, float]:
    """Accuracy by number of labels, in random order."""
    order = torch.from_numpy(np.random.default_rng((seed, 1)).permutation(len(x)))
    found = {}
    for labels in range(START, most + 1, STEP):
        chosen = order[:labels]
        found[labels] = _accuracy(trained(x[chosen], y[chosen], seed), test)
    return found


def by_queue(x: Any, y: Any, test: Any, seed: int, most: int, *, every: int) -> dict[int, float]:
    """Accuracy by number of labels, in the order of the desk's queue."""
    source = np.random.default_rng((seed, 1))
    chosen = source.permutation(len(x))[:START].tolist()
    sketch = (x.double().numpy() @ source.normal(size=(64, 8)) / 8).round(4)
    seconds = count(1_700_000_000)
    with (
        tempfile.TemporaryDirectory() as folder,
        Store(
            f"sqlite:///{Path(folder) / 'desk.sqlite'}",
            clock=lambda: float(next(seconds)),
            random_every=every,
        ) as store,
    ):
        model = store.versions.add(
            name="digits", kind="image", task="classification", digest="0" * 64, source="origin", about={}
        )
        person, _ = store.people.add("simulated", "labeller")
        net = trained(x[chosen], y[chosen], seed)
        found, labels = {START: _accuracy(net, test)}, START
        doubt = _doubt(net, x)
        places = {}
        rows = [row for row in range(len(x)) if row not in set(chosen)]
        items = []
        for row in rows:
            item = NewItem(
                new_id(store.now()),
                {"row": row},
                {},
                float(doubt[row]),
                True,
                "",
                random=bool(source.random() < 0.1),
                sketch=tuple(sketch[row].tolist()),
                place=len(items),
            )
            places[item.id] = row
            items.append(item)
        store.add(
            [NewRequest(new_id(store.now()), "predict", model.id, DRAWS, 0, None, tuple(items), len(items))]
        )
        while labels < most:
            for _ in range(STEP):
                item = store.queue.next_item(person.id)
                assert item is not None
                labels += 1
                if not item.random:
                    chosen.append(places[item.id])
                store.queue.label(item.id, person.id, str(int(y[places[item.id]])))
            net = trained(x[chosen], y[chosen], seed)
            found[labels] = _accuracy(net, test)
            doubt = _doubt(net, x)
            _reorder(store, {name: float(doubt[row]) for name, row in places.items()})
    return found


def _reorder(store: Store, doubt: dict[str, float]) -> None:
    from sqlalchemy import bindparam, update

    from bayesdrop.serve.store.schema import items

    change = update(items).where(items.c.id == bindparam("one")).values(uncertainty=bindparam("doubt"))
    with store.database.write() as connection:
        connection.execute(change, [{"one": name, "doubt": value} for name, value in doubt.items()])


def _accuracy(net: Any, test: Any) -> float:
    return float((said(net, test[0]).label == test[1]).double().mean())


def _doubt(net: Any, x: Any) -> Any:
    """Entropy / log K, as a server has it."""
    return (said(net, x).entropy.double() / math.log(10)).clamp(0, 1).numpy()


def needed(curves: list[dict[int, float]]) -> float:
    """Labels at which the mean accuracy crosses the goal, between two steps in proportion."""
    labels = sorted(curves[0])
    mean = [float(np.mean([curve[size] for curve in curves])) for size in labels]
    for place, value in enumerate(mean):
        if value >= GOAL:
            if not place:
                return float(labels[0])
            share = (GOAL - mean[place - 1]) / (value - mean[place - 1])
            return labels[place - 1] + share * (labels[place] - labels[place - 1])
    return math.inf


def main() -> None:
    """Print both curves and the ratio of labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=500)
    parser.add_argument("--every", type=int, default=4, help="every so-many-th item is a random one")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    x, y = digits()
    curves: dict[str, list[dict[int, float]]] = {"random order": [], "queue": []}
    for seed in range(asked.seeds):
        order = torch.from_numpy(np.random.default_rng((seed, 0)).permutation(len(x)))
        pool, held = order[:1000], order[1000:]
        test = x[held], y[held]
        curves["random order"].append(random_order(x[pool], y[pool], test, seed, asked.most))
        curves["queue"].append(
            by_queue(x[pool], y[pool], test, seed, min(asked.most, 400), every=asked.every)
        )
        print(f"seed {seed} is done", flush=True)
    for name, found in curves.items():
        shown = {
            size: round(float(np.mean([curve[size] for curve in found])), 4) for size in sorted(found[0])
        }
        print(name, shown)
    labels = {name: needed(found) for name, found in curves.items()}
    ratio = labels["queue"] / labels["random order"]
    verdict = "within" if ratio <= BAR else "above"
    print(f"labels for 95 %: {labels}; ratio {ratio:.3f}, {verdict} its bar of {BAR}")
    if asked.output:
        asked.output.write_text(json.dumps({"curves": curves, "labels": labels, "ratio": ratio}))


if __name__ == "__main__":
    main()
