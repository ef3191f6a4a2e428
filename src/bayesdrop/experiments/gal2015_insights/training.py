"""Sections 3.4 and 4: small networks trained with and without dropout, all of them at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from bayesdrop.experiments.gal2015_insights.checks import CheckResult, mean_and_error
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.row import Claim, Row
from bayesdrop.fit import fit

__all__ = ["TrainingRun", "check_training"]

_INPUTS, _NOISE, _NEW = 5, 0.3, 400
#: p of the inputs and of the units of the two hidden layers
_PLACES = {"no dropout": (0.0, 0.0, 0.0), "last layer": (0.0, 0.0, 0.1), "every layer": (0.02, 0.1, 0.1)}


@dataclass(frozen=True)
class TrainingRun:
    """Many small networks, each trained on a data set of its own, all at the same time."""

    place: str  #: where they have dropout, a name of `_PLACES`
    networks: int  #: S, the number of networks or of ensembles
    rows: int  #: N, of every data set
    width: int
    steps: int
    seed: int
    members: int = 1  #: so many networks share a data set and make an ensemble


def _data(networks: int, rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (S, N, Q), values of the function (S, N, 1), and those with noise (S, N, 1)."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(networks, rows, _INPUTS, generator=generator) - 1
    truth = (3 * x[..., :1]).sin() + 2 * x[..., 1:2] * x[..., 2:3]
    return x, truth, truth + _NOISE * torch.randn(truth.shape, generator=generator)


class _Networks(nn.Module):
    """R = S * members perceptrons side by side: (R, N, Q) -> (R, N, 1).

    In training every row has masks of its own.

    Args:
        run: how many, and where they drop units.
        generator: of weights and masks.
    """

    def __init__(self, run: TrainingRun, generator: torch.Generator) -> None:
        super().__init__()
        self.rates, self.generator = _PLACES[run.place], generator
        total, values = run.networks * run.members, []
        for inputs, outputs in pairwise((_INPUTS, run.width, run.width, 1)):
            weight = (2 / inputs) ** 0.5 * torch.randn(total, inputs, outputs, generator=generator)
            values += [weight, torch.zeros(total, 1, outputs)]
        self.values = nn.ParameterList(values)

    def forward(self, hidden: Tensor) -> Tensor:
        """Outputs (R, N, 1) for inputs (R, N, Q), which are rows for every network."""
        for layer, rate in enumerate(self.rates):
            if layer:
                hidden = torch.relu(hidden)
            if self.training and rate:
                hidden = hidden * (torch.rand(hidden.shape, generator=self.generator) >= rate) / (1 - rate)
            hidden = torch.baddbmm(self.values[2 * layer + 1], hidden, self.values[2 * layer])
        return hidden


def _squared_errors(nets: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The mean squared error of every network, summed over networks. Shape ()."""
    loss: Tensor = (nets(x) - y).square().mean((1, 2)).sum()
    return loss


def _trained(run: TrainingRun) -> dict[str, Tensor]:
    """Root mean squared errors (S,) of every network, or ensemble.

    Returns: "fit" of averaged weights at the training rows, against noisy targets; "standard" of averaged
    weights and "average" of the mean over draws, both at new rows, against the function.
    """
    nets = _Networks(run, torch.Generator().manual_seed(run.seed + 1))
    x, _, y = (part.repeat_interleave(run.members, 0) for part in _data(run.networks, run.rows, run.seed))
    fit(
        nets, (x, y), _squared_errors, epochs=run.steps, batch_size=None, progress=False,
        optimizer=lambda groups: torch.optim.Adam(nets.parameters(), lr=3e-3),
    )  # fmt: skip
    new, truth, _ = _data(run.networks, _NEW, run.seed + 2)
    new = new.repeat_interleave(run.members, 0)

    def error(outputs: Tensor, target: Tensor) -> Tensor:
        mean = outputs.reshape(run.networks, run.members, -1).mean(1)
        return (mean - target.reshape(run.networks, -1)).square().mean(1).sqrt()

    with torch.no_grad():
        average = torch.stack([nets(new) for _ in range(100)]).mean(0)
        nets.eval()
        return {
            "fit": error(nets(x), y[:: run.members]),
            "standard": error(nets(new), truth),
            "average": error(average, truth),
        }


def check_training(run: TrainingRun, cache: PieceCache) -> CheckResult:
    """Errors of networks without dropout, with it at the end, with it everywhere, and of ensembles."""
    runs = {place: replace(run, place=place) for place in _PLACES}
    runs["ensemble of 5"] = replace(run, place="no dropout", members=5)
    errors = {}
    for name, own in runs.items():
        piece = cache.get({"part": "training", **asdict(own)}, partial(_trained, own))
        errors[name] = {key: torch.from_numpy(value).double() for key, value in piece.items()}
    rows = []
    labels = {"fit": "RMSE of the fit", "standard": "RMSE, averaged weights", "average": "RMSE, MC average"}
    for name, found in errors.items():
        for key, label in labels.items():
            if key != "average" or name in ("last layer", "every layer"):
                rows.append(Row(name, label, None, *mean_and_error(found[key])))
    plain, last, every = errors["no dropout"], errors["last layer"], errors["every layer"]
    ensemble = errors["ensemble of 5"]["standard"]
    claims = (
        _compared(
            "3.4: without dropout the posterior is a point, which overfits; Bernoulli masks prevent much.",
            f"RMSE of the fit {float(plain['fit'].mean()):.3f} without and {float(every['fit'].mean()):.3f} "
            f"with dropout (the noise is {_NOISE}); error at new rows",
            plain["standard"],
            every["average"],
        ),
        _compared(
            "4.2: averaging T forward passes is more sensible than averaging the weights.",
            "dropout after every layer, error at new rows by averaged weights and by the MC average",
            every["standard"],
            every["average"],
        ),
        _compared(
            "4.2: dropout after every weight layer, with MC dropout, does better than at the end alone.",
            "MC average, dropout at the end and after every layer, error at new rows",
            last["average"],
            every["average"],
        ),
        _compared(
            "4.2: dropout after every weight layer is inferior with standard dropout.",
            "averaged weights, dropout after every layer and at the end, error at new rows",
            every["standard"],
            last["standard"],
            "Not of these networks; of LeNet it is true (gal2016-mnist-rotation).",
        ),
        Claim(
            "4.2: stochastic forward passes of one network perform similarly to an ensemble of networks.",
            f"error at new rows {float(ensemble.mean()):.3f} of an ensemble of 5, "
            f"{float(every['average'].mean()):.3f} of one network with dropout.",
            float(every["average"].mean()) < 1.05 * float(ensemble.mean()),
        ),
    )
    arrays = {
        f"{key} {name}": float(value.mean()) for name, found in errors.items() for key, value in found.items()
    }
    return CheckResult(tuple(rows), claims, arrays)


def _compared(text: str, measured: str, worse: Tensor, better: Tensor, otherwise: str = "") -> Claim:
    """The claim that one error is larger than another, by two standard errors over pairs of networks.

    Args:
        text: of the claim.
        measured: what the two errors are of; numbers are added.
        worse: (S,) errors that the claim says are larger.
        better: (S,) errors of networks trained on the same data.
        otherwise: the correction where it does not hold.
    """
    gap, error = mean_and_error(worse - better)
    holds = gap > 2 * error
    numbers = (
        f"{float(worse.mean()):.3f} and {float(better.mean()):.3f}, difference {gap:.4f} +- {error:.4f}."
    )
    return Claim(text, f"{measured} {numbers}", holds, otherwise=otherwise)
