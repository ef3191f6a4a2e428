"""What MC dropout does to a model, to the random state and to memory, for `peers_faults.py`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine import _peak_bytes
from networks import segmentation
from peers_doors import DOORS, Draws

__all__ = ["HABITS", "lost_spread", "memory", "overwritten_input", "print_peak"]

Door = Callable[[nn.Module, int, int], Draws]
DRAWS = 50
FEW, MANY = 10, 100


def plain() -> tuple[nn.Module, Tensor]:
    """A perceptron with `nn.Dropout`, which every library knows, and eight rows."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3)).eval()
    return net, torch.randn(8, 4)


def normed() -> tuple[nn.Module, Tensor]:
    """The same with BatchNorm, whose statistics one training pass has moved."""
    torch.manual_seed(0)
    parts = [nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3)]
    net, x = nn.Sequential(*parts), torch.randn(8, 4)
    with torch.no_grad():
        net.train()(3 * torch.randn(64, 4))
    return net.eval(), x


def rows_of_a_batch_share_a_function(door: Door) -> bool:
    """Two equal rows of one batch are equal in every draw."""
    net, x = plain()
    draws = door(net, DRAWS, 0)(x[:1].repeat(2, 1))
    return bool(torch.allclose(draws[:, 0], draws[:, 1], atol=1e-6))


def batches_share_a_function(door: Door) -> bool:
    """The same batch, given twice in one session, has the same draws."""
    net, x = plain()
    predict = door(net, DRAWS, 0)
    return bool(torch.allclose(predict(x), predict(x), atol=1e-6))


def same_seed_again(door: Door) -> bool:
    """A new session with the same seed has the same draws."""
    first, again = (door(net, DRAWS, 0)(x) for net, x in (plain(), plain()))
    return bool(torch.allclose(first, again, atol=1e-6))


def any_batch_size(door: Door) -> bool:
    """Eight rows at once and four by four, with the same seed, have the same draws."""
    whole = door(plain()[0], DRAWS, 0)(plain()[1])
    predict = door(plain()[0], DRAWS, 0)
    parts = torch.cat([predict(rows) for rows in plain()[1].split(4)], 1)
    return bool(torch.allclose(whole, parts, atol=1e-6))


def random_state_is_left(door: Door) -> bool:
    """The global random state after a prediction is the one before it."""
    net, x = plain()
    predict = door(net, DRAWS, 0)
    before = torch.get_rng_state()
    predict(x)
    return torch.equal(before, torch.get_rng_state())


def statistics_are_left(door: Door) -> bool:
    """BatchNorm's running statistics after a prediction are those before it."""
    net, x = normed()
    before = [buffer.clone() for buffer in net.buffers()]
    door(net, DRAWS, 0)(x)
    return all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))


def one_row_with_batch_norm(door: Door) -> bool:
    """A batch of one row has the moments that it has among others (BatchNorm in eval mode)."""
    means = [door(normed()[0], 4000, 0)(normed()[1][:rows])[:, 0] for rows in (8, 1)]
    error = (means[0].var(0) / 4000 + means[1].var(0) / 4000).sqrt()
    return bool(((means[0].mean(0) - means[1].mean(0)).abs() <= 5 * error + 1e-6).all())


def flags_are_left(door: Door) -> bool:
    """A model given in eval mode, called after the prediction as it is, is still without noise."""
    net, x = plain()
    with torch.no_grad():
        before = net(x)
        door(net, DRAWS, 0)(x)
        return torch.equal(before, net(x))


def eval_still_means_eval(door: Door) -> bool:
    """The same after `model.eval()`."""
    net, x = plain()
    with torch.no_grad():
        before = net(x)
        door(net, DRAWS, 0)(x)
        return torch.equal(before, net.eval()(x))


HABITS: dict[str, tuple[str, Callable[[Door], bool]]] = {
    "rows": ("two equal rows of a batch are equal in every draw", rows_of_a_batch_share_a_function),
    "batches": ("a batch given twice has the same draws", batches_share_a_function),
    "seed": ("the same seed gives the same draws", same_seed_again),
    "batch-size": ("also with another batch size", any_batch_size),
    "state": ("the global random state is left as it was", random_state_is_left),
    "statistics": ("BatchNorm's statistics are left as they were", statistics_are_left),
    "one-row": ("BatchNorm: one row alone has the mean it has among others", one_row_with_batch_norm),
    "flags": ("the model given is afterwards without noise, as before", flags_are_left),
    "eval": ("the same after `model.eval()`", eval_still_means_eval),
}


def lost_spread() -> dict[str, float]:
    """The epistemic std of predictions near 2000 (years) with a spread of 0.1, and what libraries report.

    lightning-uq-box, with a mean and a log-variance as outputs, takes the difference of two mean squares.
    """
    from lightning_uq_box.uq_methods import MCDropoutRegression

    import bayesdrop as bd

    torch.manual_seed(0)
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 2)).eval()
    with torch.no_grad():
        net[1].weight *= 0.1 / net[1].weight[0].norm()
        net[1].bias.copy_(torch.tensor([2000.0, -9.0]))
    x = torch.ones(100, 64)
    theirs = MCDropoutRegression(net, 4000, nn.MSELoss()).predict_step(x)["epistemic_uct"]
    ours = bd.predict(net.eval(), x, num_draws=4000, likelihood=bd.HeteroscedasticGaussian())
    return {
        "true": 0.1,
        "bayesdrop": float(ours.epistemic.sqrt().mean()),
        "lightning-uq-box, smallest": float(theirs.nan_to_num(0).min()),
        "lightning-uq-box, largest": float(theirs.nan_to_num(0).max()),
        "lightning-uq-box, share NaN": float(theirs.isnan().float().mean()),
    }


def overwritten_input() -> bool:
    """`concretedropout` writes into the batch that it is given."""
    from concretedropout.pytorch import ConcreteLinearDropout

    torch.manual_seed(0)
    x = torch.ones(4, 8)
    ConcreteLinearDropout()(x, nn.Linear(8, 2))
    return not torch.equal(x, torch.ones(4, 8))


def memory() -> dict[str, Any]:
    """Peak memory of a process that makes many draws of a large output, and of one that makes few, in MiB."""
    found: dict[str, Any] = {"few": FEW, "many": MANY, "mebibytes": {}}
    for name in DOORS:
        found["mebibytes"][name] = [_peak(name, num_draws) for num_draws in (FEW, MANY)]
    return found


def _peak(name: str, num_draws: int) -> int | None:
    script = str(Path(__file__).with_name("peers_faults.py"))
    command = [sys.executable, script, "--peak", name, "--draws", str(num_draws)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return round(int(done.stdout) / 2**20) if done.returncode == 0 else None


def print_peak(name: str, num_draws: int) -> None:
    """Run one library in this process, which was started for it, and print its peak memory in bytes."""
    torch.manual_seed(0)
    net, x = segmentation().eval(), torch.randn(2, 3, 128, 128)
    if name == "bayesdrop":
        import bayesdrop as bd

        bd.predict(net, x, num_draws=num_draws)
    elif name == "lightning-uq-box":
        from lightning_uq_box.uq_methods import MCDropoutSegmentation

        # It looks for nn.Dropout, and this network has Dropout2d alone, which it would refuse.
        noisy = nn.Sequential(nn.Dropout(0.2), *net)
        MCDropoutSegmentation(noisy, num_draws, nn.CrossEntropyLoss()).predict_step(x)
    else:
        DOORS[name](net, num_draws, 0)(x)
    print(_peak_bytes())
