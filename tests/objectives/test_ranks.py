"""Two processes under DistributedDataParallel have the gradient of one, up to Monte Carlo error."""

from __future__ import annotations

from collections.abc import Callable

PROGRAM = """
import torch
import torch.distributed as dist
from torch import Tensor, nn

import bayesdrop as bd

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
REPEATS = 120


def moments(model, objective, x, y, seed):
    parameters = list(model.parameters())
    torch.manual_seed(seed)
    all_gradients = []
    for _ in range(REPEATS):
        model.zero_grad()
        objective(model, x, y).loss.backward()
        all_gradients.append(torch.cat([p.grad.flatten() for p in parameters]))
    gradients = torch.stack(all_gradients)
    return gradients.mean(0), gradients.std(0) / REPEATS**0.5


x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
y = torch.randint(2, (6,), generator=torch.Generator().manual_seed(1))
for kind in (bd.ConcreteDropout, bd.LearnableDropout):
    torch.manual_seed(0)
    first, second = kind(nn.Linear(3, 4), 0.3), kind(nn.Linear(4, 2), 0.4)
    model = nn.Sequential(nn.Linear(3, 3), first, nn.Tanh(), second).double()
    objective = bd.NegativeELBO(bd.Categorical(), num_data=20, length_scale=0.5)
    alone, alone_error = moments(model, objective, x, y, seed=1)
    shared = nn.parallel.DistributedDataParallel(model)
    half = slice(3 * rank, 3 * rank + 3)
    both, both_error = moments(shared, objective, x[half], y[half], seed=2 + rank)
    error = (alone_error**2 + both_error**2).sqrt()
    assert ((alone - both).abs() <= 5 * error + 1e-9).all(), (kind, alone, both, error)
    assert (both.abs() > 5 * both_error).any()
    gathered = [torch.empty_like(both) for _ in range(2)]
    dist.all_gather(gathered, both)
    assert torch.equal(gathered[0], gathered[1])
print(f"rank {rank} agrees")
"""


def test_two_processes_have_the_gradient_of_one(run_on_two_ranks: Callable[[str], str]) -> None:
    assert run_on_two_ranks(PROGRAM).count("agrees") == 2
