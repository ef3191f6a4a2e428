"""Two processes that train together are one with the whole minibatch, for every kind of layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import bayesdrop as bd

START = """
import math
import sys
from pathlib import Path
import torch
import torch.distributed as dist
from torch import nn

import bayesdrop as bd
from bayesdrop.fit.ranks import seed_of_rank
from bayesdrop.layers.kinds import KINDS

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
numbers = torch.Generator().manual_seed(0)
x = torch.randn(22, 3, generator=numbers, dtype=torch.float64)
y = torch.randn(22, 1, generator=numbers, dtype=torch.float64)
labels = (y[:, 0] > 0).long()


def network(kind, outputs=1):
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, outputs))
    net = bd.convert(net, kind, where="weights").double()
    return net


def everything(*modules):
    tensors = [t for m in modules for t in (*m.parameters(), *m.buffers())]
    return torch.cat([t.detach().double().flatten() for t in tensors])
"""

# The reference: every minibatch whole, in the order that fit has; noise of the rows of each process from its
# own stream; one step with the gradient of the mean over all rows plus the divergence, once.
EQUAL = """
import numpy as np


def by_hand(net, objective, batch_size, epochs):
    groups = bd.fit.__globals__["parameter_groups"](net, objective, lr=0.02, rate_lr=0.2, weight_decay=0.0)
    optimizer = torch.optim.Adam(groups)
    states = [torch.Generator().manual_seed(seed_of_rank(3, r)).get_state() for r in range(2)]
    for epoch in range(1, epochs + 1):
        order = torch.from_numpy(np.random.default_rng((3, epoch)).permutation(22))
        for chosen in order.split(batch_size):
            optimizer.zero_grad()
            total, loss = len(chosen), 0.0
            halves = [chosen[total * r // 2 : total * (r + 1) // 2] for r in range(2)]
            for r, rows in enumerate(halves):
                torch.set_rng_state(states[r])
                terms = objective(net, x[rows], y[rows])
                # The mean over all rows, and the divergence apart from it.
                (terms.nll * len(rows) / total).backward(retain_graph=True)
                states[r] = torch.get_rng_state()
            (bd.total_kl(net, 0.5) / 22).backward()
            optimizer.step()


for kind in KINDS:
    made = [network(kind), network(kind)]
    for net in made:
        net.train()
    noises = [bd.Gaussian(noise_std=0.5, noise="learned").double() for _ in made]
    objectives = [bd.NegativeELBO(noise, num_data=22, length_scale=0.5) for noise in noises]
    before = everything(made[0], objectives[0])
    if rank == 1:
        with torch.no_grad():  # all begin with the weights of the first process
            for parameter in made[0].parameters():
                parameter.add_(1.0)
    history = bd.fit(
        made[0], (x, y), objectives[0], epochs=3, batch_size=8, lr=0.02, seed=3, share="rows", progress=False
    )
    by_hand(made[1], objectives[1], 8, 3)
    one, other = everything(made[0], objectives[0]), everything(made[1], objectives[1])
    assert (one - before).abs().max() > 0.01, kind
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=lambda said: f"{kind}: {said}")
    gathered = [torch.empty_like(one) for _ in range(2)]
    dist.all_gather(gathered, one)
    assert torch.equal(gathered[0], gathered[1]), kind
    losses = [None, None]
    dist.all_gather_object(losses, history.loss)
    assert losses[0] == losses[1]
print(f"rank {rank} agrees")
"""

RESUMED = """
folder = Path(sys.argv[1])


def options(path):
    return {"batch_size": 8, "lr": 0.02, "share": "rows", "checkpoint": path, "progress": False}


def trained(path, *stops):
    net = network("concrete", 2)
    net.insert(1, nn.BatchNorm1d(6).double())
    for epochs in stops:
        net = network("concrete", 2)
        net.insert(1, nn.BatchNorm1d(6).double())
        objective = bd.NegativeELBO(bd.Categorical(), num_data=22)
        bd.fit(net, (x, labels), objective, epochs=epochs, validation=(x, labels), **options(path))
    return everything(net)


straight, resumed = trained(folder / "one", 4), trained(folder / "two", 2, 4)
assert torch.equal(straight, resumed)
gathered = [torch.empty_like(straight) for _ in range(2)]
dist.all_gather(gathered, straight)
assert torch.equal(gathered[0], gathered[1])
files = sorted(path.name for path in folder.iterdir() if not path.name.endswith(".py"))
assert files == ["one", "two"], files

# What is not finite on one process stops both.
net = network("bernoulli")
calls = []


def objective(model, own_x, own_y):
    calls.append(1)
    loss = (model(own_x) - own_y).square().mean()
    return loss * math.inf if rank == 1 and len(calls) == 3 else loss


try:
    bd.fit(net, (x, y), objective, epochs=2, batch_size=8, share="rows", progress=False)
except bd.Diverged as error:
    print(f"rank {rank} stopped at step {error.step}")
"""


# FSDP2 shards one module that holds the model and the objective: inside of its forward the parameters are
# whole, so that the divergence is of all of them. Parameters of a single number stay whole.
SHARDED = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (2,))


class Step(nn.Module):
    def __init__(self, model, objective):
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, x, y):
        return self.objective(self.model, x, y).loss


for kind in KINDS:
    noises = [bd.Gaussian(noise_std=0.5, noise="learned").double() for _ in range(2)]
    whole, sharded = (Step(network(kind), bd.NegativeELBO(noise, num_data=22)) for noise in noises)
    halves = [slice(0, 11), slice(11, 22)]
    for place, half in enumerate(halves):
        torch.manual_seed(100 + place)
        (whole(x[half], y[half]) / 2).backward()
    numbers = [p for p in sharded.parameters() if p.dim() == 0]
    fully_shard(sharded, mesh=mesh, ignored_params=set(numbers))
    torch.manual_seed(100 + rank)
    sharded(x[halves[rank]], y[halves[rank]]).backward()
    for parameter in numbers:
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    for (name, one), other in zip(whole.named_parameters(), sharded.parameters(), strict=True):
        grad = other.grad.full_tensor() if hasattr(other.grad, "full_tensor") else other.grad
        torch.testing.assert_close(grad, one.grad, rtol=1e-9, atol=1e-9, msg=lambda m: f"{kind} {name}: {m}")
    torch.optim.Adam(sharded.parameters(), foreach=False).step()
print(f"rank {rank} agrees")
"""


def test_sharded_parameters_have_the_gradient_of_one_process(run_on_two_ranks: Callable[[str], str]) -> None:
    pytest.importorskip("torch.distributed.fsdp", reason="this torch has no FSDP2")
    assert run_on_two_ranks(START + SHARDED).count("agrees") == 2


def test_two_processes_are_one_with_the_whole_minibatch(run_on_two_ranks: Callable[[str], str]) -> None:
    assert run_on_two_ranks(START + EQUAL).count("agrees") == 2


def test_a_shared_run_resumes_bit_for_bit_and_stops_together(
    run_on_two_ranks: Callable[..., str], tmp_path: object
) -> None:
    said = run_on_two_ranks((START + RESUMED).replace("sys.argv[1]", repr(str(tmp_path))))
    assert said.count("stopped at step 3") == 2


def test_sharing_needs_processes_and_rows_that_can_be_split() -> None:
    net = nn.Sequential(bd.BernoulliDropout(nn.Linear(3, 1), p=0.1))
    data = (torch.ones(4, 3), torch.ones(4, 1))
    objective = bd.NegativeELBO(bd.Gaussian(1.0), num_data=4)
    with pytest.raises(ValueError, match=r"`share` must be None outside torch\.distributed"):
        bd.fit(net, data, objective, epochs=1, share="rows")
    with pytest.raises(ValueError, match="`share` must be 'rows' or None; got 'draws'"):
        bd.fit(net, data, objective, epochs=1, share="draws")  # type: ignore[arg-type]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data))
    with pytest.raises(TypeError, match="whose rows can be split"):
        bd.fit(net, loader, objective, epochs=1, share="rows")
    with pytest.raises(ValueError, match="`generator` must be None with share='rows'"):
        bd.fit(net, data, objective, epochs=1, share="rows", generator=torch.Generator())
