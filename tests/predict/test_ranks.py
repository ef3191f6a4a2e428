"""Two processes share a prediction and get the numbers of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from bayesdrop import predict

PROGRAM = """
import torch
import torch.distributed as dist
from torch import nn

import bayesdrop as bd

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
first = bd.BernoulliDropout(nn.Linear(4, 16), p=0.2)
net = nn.Sequential(first, nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 3)).double()
x = torch.randn(7, 4, dtype=torch.float64)
y, labels = torch.randn(7, 3, dtype=torch.float64), torch.randint(3, (7,))
for likelihood, targets in ((None, None), (bd.Gaussian(0.5), y), (bd.Categorical(), labels)):
    for keep in (True, False):
        options = {"num_draws": 21, "likelihood": likelihood, "targets": targets, "keep_draws": keep}
        options["covariance"] = not keep
        alone = bd.predict(net, x, **options)
        for share in ("draws", "rows"):
            for batch_size in (None, 2):
                shared = bd.predict(net, x, share=share, batch_size=batch_size, **options)
                names = ["mean", "epistemic", "aleatoric", "standard_error", "draws_used"]
                names += ["covariance", "epistemic_covariance"]
                if targets is labels:
                    names += ["entropy", "expected_entropy", "mutual_information", "variation_ratio"]
                for name in names:
                    torch.testing.assert_close(getattr(shared, name), getattr(alone, name))
                if targets is not None:
                    torch.testing.assert_close(shared.log_prob(targets), alone.log_prob(targets))
                    torch.testing.assert_close(shared.joint_log_prob(targets), alone.joint_log_prob(targets))
                if keep:
                    torch.testing.assert_close(shared.draws, alone.draws)
own = bd.predict(net, x, num_draws=21, draws="independent", share="draws")
torch.testing.assert_close(own.draws, bd.predict(net, x, num_draws=21, draws="independent").draws)
print(f"rank {dist.get_rank()} agrees")
"""


def test_two_processes_give_the_numbers_of_one(run_on_two_ranks: Callable[[str], str]) -> None:
    assert run_on_two_ranks(PROGRAM).count("agrees") == 2


def test_sharing_needs_other_processes() -> None:
    net, x = nn.Sequential(nn.Dropout(0.5)), torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"`share` must be None outside torch\.distributed"):
        predict(net, x, share="draws")
    with pytest.raises(ValueError, match="`share` must be 'draws', 'rows' or None"):
        predict(net, x, share="both")
