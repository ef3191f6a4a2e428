"""Random numbers of one's own: the same as torch's, and nobody else's are moved."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesdrop.randomness import Stream, Turns, global_states_kept, random_state_kept

X = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0))
LSTM = nn.LSTM(5, 3, num_layers=2, dropout=0.5, batch_first=True)


def layers() -> nn.Module:
    """Layers whose constructors draw in every way that torch knows."""
    made = nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.LSTM(3, 4),
        nn.Embedding(3, 4),
        nn.MultiheadAttention(4, 2),
        nn.Bilinear(2, 2, 2),
    )
    for fill in (nn.init.xavier_normal_, nn.init.trunc_normal_, nn.init.orthogonal_, nn.init.kaiming_normal_):
        made.append(nn.Linear(4, 3))
        fill(made[-1].weight)
    return made


CALLS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: torch.rand(3, 4),
    "randn": lambda: torch.randn(3, dtype=torch.float64),
    "randint": lambda: torch.randint(7, (5,)),
    "randperm": lambda: torch.randperm(6),
    "rand_like": lambda: torch.rand_like(X),
    "randint_like": lambda: torch.randint_like(X, 9),
    "bernoulli": lambda: torch.bernoulli(X.sigmoid()),
    "normal": lambda: torch.normal(X, 1.0),
    "multinomial": lambda: torch.multinomial(X[0].sigmoid(), 2),
    "poisson": lambda: torch.poisson(X.exp()),
    "uniform_": lambda: torch.empty(5).uniform_(),
    "random_": lambda: torch.empty(3, dtype=torch.int64).random_(),
    "geometric_": lambda: torch.empty(5).geometric_(0.3),
    "an operator": lambda: torch.ops.aten.rand([4]),
    "F.dropout": lambda: F.dropout(X, 0.3),
    "F.dropout in place": lambda: F.dropout(X.clone(), 0.3, inplace=True),
    "F.dropout1d": lambda: F.dropout1d(X, 0.3),
    "F.dropout2d": lambda: F.dropout2d(X.unsqueeze(-1), 0.3),
    "F.alpha_dropout": lambda: F.alpha_dropout(X, 0.3, training=True),
    "F.feature_alpha_dropout": lambda: F.feature_alpha_dropout(X, 0.3, training=True),
    "torch.dropout": lambda: torch.dropout(X, 0.3, True),
    "nn.Dropout": lambda: nn.Dropout(0.7)(X),
    "F.rrelu": lambda: F.rrelu(X, training=True),
    "F.gumbel_softmax": lambda: F.gumbel_softmax(X),
    "fractional pooling": lambda: F.fractional_max_pool2d(X.unsqueeze(0), 2, output_size=(3, 3)),
    "attention": lambda: F.scaled_dot_product_attention(X, X, X, dropout_p=0.4),
    "nn.LSTM": lambda: LSTM(X)[0].detach().clone(),
    "native_dropout": lambda: torch.native_dropout(X, 0.4, True)[0],
    "first weights": lambda: 1 * nn.Linear(5, 4).weight.detach(),
    "first weights of many kinds": lambda: torch.cat([p.flatten() for p in layers().parameters()]).detach(),
    "vmap": lambda: torch.vmap(lambda x: F.dropout(x, 0.5), randomness="different")(X),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_stream_gives_torchs_numbers_and_leaves_its_generator_alone(name: str) -> None:
    torch.manual_seed(11)
    torch.rand(3)
    before = torch.get_rng_state()
    expected = [CALLS[name](), CALLS[name](), torch.rand(2)]
    torch.set_rng_state(before)
    with Stream():
        found = [CALLS[name](), CALLS[name](), torch.rand(2)]
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_stream_goes_on_inside_another() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with Stream():
        first = torch.rand(2)
        with Stream():
            inner = torch.rand(2)
        again = torch.rand(2)
    assert torch.equal(torch.cat([first, inner]), expected)
    assert torch.equal(again, inner)


@pytest.mark.parametrize("seed", [3, 4])
def test_code_that_seeds_gets_what_it_asked_for(seed: int) -> None:
    torch.manual_seed(3)
    torch.rand(1)
    before = torch.get_rng_state()
    with random_state_kept():
        torch.manual_seed(seed)
        found = torch.cat([torch.rand(2), torch.rand(2)])
    assert torch.equal(found, torch.rand(4, generator=torch.Generator().manual_seed(seed)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", CALLS)
def test_code_that_seeds_draws_first_weights_and_all_else_from_that_seed(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = [CALLS[name](), torch.rand(2)]
    with random_state_kept():
        torch.manual_seed(5)
        found = [CALLS[name](), torch.rand(2)]
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_a_generator_that_is_handed_in_is_used() -> None:
    generator = torch.Generator().manual_seed(5)
    with Stream():
        found = torch.rand(3, generator=generator)
    assert torch.equal(found, torch.rand(3, generator=torch.Generator().manual_seed(5)))


def test_numpy_and_python_are_put_back_after_an_exception_too() -> None:
    before = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002

    @global_states_kept()
    def fail() -> None:
        np.random.rand()  # noqa: NPY002
        random.random()
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert np.array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert random.getstate() == before[1]


def test_numbers_of_another_thread_do_not_come_twice() -> None:
    seen: list[Any] = []

    def draw() -> None:
        seen.extend((*torch.rand(2).tolist(), random.random(), float(np.random.rand())))  # noqa: NPY002

    go_on = threading.Event()
    other = threading.Thread(target=go_on.wait)
    other.start()
    try:
        for _ in range(20):
            with random_state_kept():
                worker = threading.Thread(target=draw)
                worker.start()
                worker.join()
    finally:
        go_on.set()
        other.join()
    assert len(set(seen)) == len(seen)


def test_runs_that_take_turns_have_the_numbers_of_a_run_alone() -> None:
    def numbers(seed: int) -> list[float]:
        turns, found = Turns(seed), []
        for _ in range(50):
            with turns.lent():
                found += [float(torch.rand(())), float(F.dropout(torch.ones(3), 0.5).sum())]
        return found

    state = torch.get_rng_state()
    alone = {seed: numbers(seed) for seed in range(4)}
    together: dict[int, list[float]] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: together.update({seed: numbers(seed)})) for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone
    assert torch.equal(torch.get_rng_state(), state)


def test_items_are_fetched_with_the_numbers_of_a_run() -> None:
    turns = Turns(7)
    found = torch.stack(list(turns.each(torch.rand(2) for _ in range(3))))
    assert torch.equal(found.flatten(), torch.rand(6, generator=torch.Generator().manual_seed(7)))
    with turns.copy():
        ahead = torch.rand(2)
    with turns.lent():
        assert torch.equal(torch.rand(2), ahead)
