"""What networks say about rows they were not trained on, and the noise that suits those rows best."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.stacked.encode import EncodedRows
from bayesdrop.stacked.heads import LOGITS, make_head
from bayesdrop.stacked.job import Trained
from bayesdrop.stacked.scores import draw_outputs

__all__ = ["Calibration", "HeldOut", "calibrate", "calibrated", "held_out", "mixture_log_prob"]

#: rows that suffice to find one or two numbers
_ROWS = 4000


@dataclass(frozen=True)
class Calibration:
    """How the noise of a network is changed after training.

    Heteroscedastic: log-variance s becomes slope * s + shift. One noise level: log variance + shift.
    Classes and labels: logits times slope.

    Attributes:
        shift: see above.
        slope: see above.
        dof: degrees of freedom of Student's t, whose squared scale the variance then is; infinite for
            Gaussian noise. Real tables have rows that no Gaussian expects.
    """

    shift: float = 0.0
    slope: float = 1.0
    dof: float = math.inf

    def outputs(self, output: Tensor, noise: str, targets: int) -> Tensor:
        """Changed outputs (..., D), (..., 2 D) or (..., K)."""
        if noise in LOGITS:
            return output * self.slope
        if noise != "heteroscedastic":
            return output
        means, log_variances = output[..., :targets], output[..., targets:]
        return torch.cat([means, self.slope * log_variances + self.shift], -1)

    def then(self, other: Calibration, noise: str) -> Calibration:
        """The change, and another one after it, whose degrees of freedom hold."""
        inner = other.slope if noise == "heteroscedastic" else 1.0
        return Calibration(other.shift + inner * self.shift, other.slope * self.slope, other.dof)


def calibrated(network: Trained, calibration: Calibration) -> Trained:
    """The network with the change put into its last layer, or its noise level."""
    noise, slope, shift = network.settings.noise, calibration.slope, calibration.shift
    if network.log_noise_std is not None:
        return network.with_noise(network.log_noise_std + 0.5 * shift)
    targets = 0 if noise in LOGITS else network.widths[-1] // 2
    factor = torch.ones_like(network.biases[-1])
    factor[targets:] = slope
    bias = network.biases[-1] * factor
    if noise == "heteroscedastic":
        bias[targets:] += shift

    def stretched(widths: list[Tensor | None]) -> list[Tensor | None]:
        last = widths[-1] if widths else None
        if last is None:
            return widths
        if last.dim() == 0 and targets and slope != 1:
            want = "1 for networks whose outputs all have noise of one width"
            raise ValueError(must("calibrated", "calibration.slope", want, slope))
        return [*widths[:-1], last * (abs(slope) if last.dim() == 0 else factor.abs())]

    return replace(
        network,
        weights=[*network.weights[:-1], network.weights[-1] * factor],
        biases=[*network.biases[:-1], bias],
        stds=stretched(network.stds),
        bias_stds=stretched(network.bias_stds),
    )


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Draws of one network for rows that it has not seen.

    Attributes:
        rows: (n,) places in the table.
        outputs: (T, n, outputs).
        y: (n, D) targets, or labels.
        noise: the noise model.
        log_noise_std: (D,) or None.
        one_width: whether all outputs have noise of one width, so that log-variances alone have no slope.
    """

    rows: Tensor
    outputs: Tensor
    y: Tensor
    noise: str
    log_noise_std: Tensor | None
    one_width: bool = False

    def log_prob(self, calibration: Calibration) -> Tensor:
        """(n,) log of the mean density over draws."""
        outputs, y = self.outputs, self.y
        targets = 0 if self.noise in LOGITS else y.shape[1]
        changed = calibration.outputs(outputs, self.noise, targets)
        level = None
        if self.log_noise_std is not None:
            level = (self.log_noise_std + 0.5 * calibration.shift).view(1, 1, -1)
        targets_of_draws = y.expand(len(outputs), *y.shape)
        if math.isinf(calibration.dof) or self.noise in LOGITS:
            log_prob = -make_head(self.noise).loss(changed, targets_of_draws, level)
        else:
            mean = changed[..., :targets]
            log_variance = changed[..., targets:] if level is None else 2 * level
            log_prob = _student_log_prob(mean, log_variance, targets_of_draws, calibration.dof)
        return torch.logsumexp(log_prob, 0) - math.log(len(outputs))


@torch.no_grad()
def held_out(
    network: Trained, x: Tensor | EncodedRows, y: Tensor, rows: Tensor, *, num_draws: int, seed: int
) -> HeldOut:
    """Draws for the given rows of a table."""
    outputs = torch.cat(list(draw_outputs(network, x[rows], num_draws=num_draws, seed=seed)))
    settings = network.settings
    one_width = settings.method == "mixture"
    return HeldOut(rows, outputs, y[rows], settings.noise, network.log_noise_std, one_width)


def mixture_log_prob(parts: Sequence[HeldOut], calibrations: Sequence[Calibration], size: int) -> Tensor:
    """(size,) log of the mean density over all networks that held a row out; NaN where none did."""
    total = torch.full((size,), -math.inf, dtype=parts[0].outputs.dtype)
    count = torch.zeros(size)
    for part, calibration in zip(parts, calibrations, strict=True):
        total[part.rows] = torch.logaddexp(total[part.rows], part.log_prob(calibration))
        count[part.rows] += 1
    return torch.where(count > 0, total - count.log(), math.nan)


def _student_log_prob(mean: Tensor, log_variance: Tensor, y: Tensor, dof: float) -> Tensor:
    """Student's t with squared scale exp(log_variance), summed over targets."""
    constant = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - 0.5 * math.log(math.pi * dof)
    square = (y - mean).square() * (-log_variance).exp() / dof
    value: Tensor = (constant - 0.5 * log_variance - 0.5 * (dof + 1) * torch.log1p(square)).sum(-1)
    return value


#: degrees of freedom that are tried
_DOFS = (math.inf, 16.0, 8.0, 5.0, 4.0, 3.0, 2.5)


@torch.no_grad()
def calibrate(
    parts: Sequence[HeldOut],
    size: int,
    *,
    given: Sequence[Calibration] | None = None,
    tails: bool = True,
) -> Calibration:
    """The change that makes rows which were held out most probable.

    Args:
        parts: of networks that are to be changed alike.
        size: rows of the table.
        given: changes that are made first; slopes then stay as they are.
        tails: whether Student's t may take the place of the Gaussian.
    """
    first = [Calibration()] * len(parts) if given is None else list(given)
    noise = parts[0].noise
    seen = sum(len(part.rows) for part in parts)
    thin = max(1, seen // _ROWS)
    parts = [_thinned(part, thin) for part in parts]

    def value(change: Calibration) -> float:
        scores = mixture_log_prob(parts, [one.then(change, noise) for one in first], size)
        return float(scores.nanmean())

    def best_of(shifts: Sequence[float], slopes: Sequence[float], dofs: Sequence[float]) -> Calibration:
        return max((Calibration(*way) for way in itertools.product(shifts, slopes, dofs)), key=value)

    if noise in LOGITS:
        found = best_of([0.0], [2.0 ** (step / 2) for step in range(-6, 3)], [math.inf])
        return best_of([0.0], [found.slope * 2.0 ** (step / 8) for step in range(-3, 4)], [math.inf])
    sloped = noise == "heteroscedastic" and given is None and not any(part.one_width for part in parts)
    stretches = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25] if sloped else [1.0]
    dofs = [math.inf, 5.0] if tails else [math.inf]
    centre = _first_shift(parts) if given is None else 0.0
    found = best_of([centre + step / 2 for step in range(-3, 8)], stretches, dofs)
    width = 0.25
    for _ in range(3):
        near = [found.shift + step * width for step in (-1, 0, 1)]
        around = sorted({max(0.0, found.slope + step * width / 2) for step in (-1, 0, 1)})
        found = best_of(near, around if sloped else [1.0], _DOFS if tails else dofs)
        width /= 2
    return found


def _first_shift(parts: Sequence[HeldOut]) -> float:
    """Where a search begins: a noise that was not learned may be far from the size of the errors."""
    level = parts[0].log_noise_std
    if level is None:
        return 0.0
    errors = torch.cat([(part.outputs.mean(0) - part.y).flatten() for part in parts])
    return float(errors.square().mean().clamp_min(1e-30).log() - 2 * level.mean())


def _thinned(part: HeldOut, every: int) -> HeldOut:
    if every == 1:
        return part
    keep = torch.arange(0, len(part.rows), every)
    return replace(part, rows=part.rows[keep], outputs=part.outputs[:, keep], y=part.y[keep])
