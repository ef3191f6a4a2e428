"""Threads that predict, run, draw and train on shared models at the same time: every answer is that of one
thread.

    python tests/adversary/threads.py SEED COUNT
"""

from __future__ import annotations

import random
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesdrop as bd

THREADS = 8


class Own(nn.Module):
    def __init__(self, generator: random.Random) -> None:
        super().__init__()
        width = generator.choice([5, 8, 16])
        self.first, self.last = nn.Linear(6, width), nn.Linear(width, 2)
        self.p, self.kept, self.seen = generator.uniform(0.1, 0.6), None, []
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.kept = F.dropout(self.first(x).relu(), self.p if self.training else 0.0, self.training)
        self.seen.append(self.kept.shape)
        return self.last(F.dropout(self.kept, 0.2, self.training))


class Recurrent(nn.Module):
    def __init__(self, generator: random.Random) -> None:
        super().__init__()
        kind = generator.choice([nn.LSTM, nn.GRU])
        self.inner = kind(6, 8, num_layers=2, dropout=generator.uniform(0.1, 0.6), batch_first=True)
        self.last = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(x.unsqueeze(1).expand(-1, 4, -1))[0][:, -1])


class Attention(nn.Module):
    def __init__(self, generator: random.Random) -> None:
        super().__init__()
        p = generator.uniform(0.1, 0.6)
        self.encoder = nn.TransformerEncoderLayer(6, 2, 12, dropout=p, batch_first=True)
        self.last = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.encoder(x.unsqueeze(1) * torch.linspace(0, 1, 4).view(1, 4, 1)).mean(1))


class Masks(nn.Module):
    """Makes its masks itself."""

    def __init__(self, generator: random.Random) -> None:
        super().__init__()
        self.last, self.p = nn.Linear(6, 2), generator.uniform(0.2, 0.6)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x * (torch.rand_like(x) > self.p))


class Closure(nn.Module):
    """No copy can stand for it."""

    def __init__(self, generator: random.Random) -> None:
        super().__init__()
        self.drop, self.last = nn.Dropout(generator.uniform(0.2, 0.6)), nn.Linear(6, 2)
        drop, last = self.drop, self.last
        self.function = lambda x: last(drop(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def sequential(generator: random.Random) -> nn.Module:
    width = generator.choice([4, 9, 32])
    net = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Dropout(0.4), nn.Linear(width, 2))
    if generator.random() < 0.5:
        net.insert(1, nn.BatchNorm1d(width))
    kind = generator.choice([None, "bernoulli", "concrete", "learnable", "gaussian", "dropconnect"])
    return net if kind is None else bd.convert(net, kind)


KINDS: tuple[Callable[[random.Random], nn.Module], ...] = (
    sequential, Own, Recurrent, Attention, Masks, Closure,
)  # fmt: skip
#: models whose plain pass keeps nothing: only those may be run by another thread meanwhile
_STATELESS = (nn.Sequential, Recurrent, Attention)


class Round:
    """One shared model, what one thread gets of it, and what many threads get."""

    def __init__(self, seed: int) -> None:
        self.generator = random.Random(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = self.generator.choice(KINDS)(self.generator).train(self.generator.random() < 0.3)
            self.x = torch.randn(self.generator.choice([1, 2, 5]), 6)
        self.num_draws = self.generator.choice([1, 3, 8])
        self.actions = [self.predicted, self.predicted, self.drawn]
        if isinstance(self.model, _STATELESS) and not self.model.training:
            self.actions.append(self.plain)
        self.expected = {(action, seed): action(seed) for action in self.actions for seed in range(3)}

    def predicted(self, seed: int) -> Tensor:
        prediction = bd.predict(self.model, self.x, num_draws=self.num_draws, seed=seed)
        return prediction.draws

    def drawn(self, seed: int) -> Tensor:
        with torch.no_grad(), bd.FunctionDraw(self.model, seed=seed, index=1):
            output: Tensor = self.model(self.x)
            return output.clone()

    def plain(self, seed: int) -> Tensor:
        with torch.no_grad():
            output: Tensor = self.model.eval()(self.x)
            return output

    def state(self) -> Any:
        model = self.model
        flags = [(type(part.training), part.training, len(part._forward_hooks)) for part in model.modules()]
        return flags, {name: value.clone() for name, value in model.state_dict().items() if name != "calls"}

    def attack(self, calls: int) -> list[str]:
        """Outcomes of so many calls, in threads; a sentence for each that is wrong."""
        before, found, numbers = self.state(), [], []
        share = -(-calls // THREADS)
        plans = [[(self.generator.choice(self.actions), self.generator.randrange(3)) for _ in range(share)]
                 for _ in range(THREADS)]  # fmt: skip

        def work(plan: list[Any]) -> None:
            for action, seed in plan:
                try:
                    answer = action(seed)
                    close = torch.allclose(answer, self.expected[action, seed], atol=1e-5, rtol=1e-4)
                    found.append("right" if close else f"{action.__name__} of {self.name} is another answer")
                    numbers.append(float(torch.rand((), dtype=torch.float64)))
                except RuntimeError as error:
                    # Another thread has called eval() in the middle of a draw by hand, which says so.
                    own = str(error).startswith("FunctionDraw: the training flags of the model were changed")
                    found.append("refused" if own else f"{action.__name__} of {self.name}: {error}")
                except Exception:
                    found.append(f"{action.__name__} of {self.name}: {traceback.format_exc(limit=-2)}")

        threads = [threading.Thread(target=work, args=(plan,)) for plan in plans]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = self.state()
        same = all(torch.equal(after[1][name], before[1][name]) for name in before[1])
        if after[0] != before[0] or not same:
            found.append(f"{self.name} is left changed")
        if len(set(numbers)) != len(numbers):
            found.append(f"random numbers of a thread came twice beside {self.name}")
        return found

    @property
    def name(self) -> str:
        return type(self.model).__name__


@contextmanager
def _switching_often() -> Iterator[None]:
    before, threads = sys.getswitchinterval(), torch.get_num_threads()
    sys.setswitchinterval(1e-5)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
        torch.set_num_threads(threads)


def outcomes(seed: int, count: int) -> Counter[str]:
    """Right and wrong answers of about `count` calls in threads."""
    total: Counter[str] = Counter()
    with _switching_often():
        while total.total() < count:
            for outcome in Round(seed * 100_003 + total.total()).attack(min(96, count)):
                known = outcome in ("right", "refused")
                total[outcome if known else "wrong"] += 1
                if not known:
                    print(outcome, file=sys.stderr)
    return total


if __name__ == "__main__":
    print(dict(outcomes(*map(int, sys.argv[1:3]))))
