"""What networks say about rows they were not trained on, and the noise that suits those rows best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.stacked.encode import EncodedRows
from bayesdrop.stacked.heads import LOGITS, make_head
from bayesdrop.stacked.job import Trained
from bayesdrop.stacked.scores import draw_outputs

__all__ = ["Calibration", "HeldOut", "calibrate", "calibrated", "held_out", "mixture_log_prob"]

#: rows that are enough to find two or three numbers by
_ROWS = 4000


@dataclass(frozen=True)
class Calibration:
    """How the noise of a network is changed after training, to suit rows that it has not seen.

        heteroscedastic       log-variance s becomes slope s + shift
        one noise level       log-variance s becomes s + shift
        classes and labels    logits f become slope f

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
        """The outputs of draws, (..., D), (..., 2 D) or (..., K), after the change."""
        if noise in LOGITS:
            return output * self.slope
        if noise != "heteroscedastic":
            return output
        means, log_variances = output[..., :targets], output[..., targets:]
        return torch.cat([means, self.slope * log_variances + self.shift], -1)

    def then(self, other: Calibration, noise: str) -> Calibration:
        """One change that does this one and then `other`; the degrees of freedom are those of `other`."""
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
        outputs: (T, n, outputs) of the network.
        y: (n, D) standardised targets; (n,) classes; or (n, D) labels.
        noise: the noise model.
        log_noise_std: (D,) of a noise level; None for other noise models.
        one_width: whether the last layer has weights of one common width ("mixture"), so that log-variances
            cannot be stretched without the means.
    """

    rows: Tensor
    outputs: Tensor
    y: Tensor
    noise: str
    log_noise_std: Tensor | None
    one_width: bool = False

    def log_prob(self, calibration: Calibration) -> Tensor:
        """(n,) log of the mean density over draws, with the noise changed."""
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
            log_prob = _noise_log_prob((y - mean).square(), log_variance, calibration.dof)
        return torch.logsumexp(log_prob, 0) - math.log(len(outputs))


@torch.no_grad()
def held_out(
    network: Trained, x: Tensor | EncodedRows, y: Tensor, rows: Tensor, *, num_draws: int, seed: int
) -> HeldOut:
    """Draws of a network for rows, places in the table (x, y), that it has not seen."""
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


def _noise_log_prob(square: Tensor, log_variance: Tensor, dof: float) -> Tensor:
    """(..., n) log density at squared errors (..., n, D), summed over targets.

    Student's t with squared scale exp(log_variance); a Gaussian if `dof` is infinite.
    """
    square = square * (-log_variance).exp()
    if math.isinf(dof):
        value: Tensor = -0.5 * (square + log_variance + math.log(2 * math.pi)).sum(-1)
        return value
    constant = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - 0.5 * math.log(math.pi * dof)
    value = (constant - 0.5 * log_variance - 0.5 * (dof + 1) * torch.log1p(square / dof)).sum(-1)
    return value


#: degrees of freedom that are tried
_DOFS = (math.inf, 16.0, 8.0, 5.0, 4.0, 3.0, 2.5)


@torch.no_grad()
def calibrate(
    parts: Sequence[HeldOut],
    *,
    given: Sequence[Calibration] | None = None,
    tails: bool = True,
) -> Calibration:
    """The change of noise, one for all networks, that makes held-out rows most probable.

    Shift, slope and degrees of freedom are searched for one after another, again and again in smaller steps.

    Args:
        parts: what each network says about the rows that it held out.
        given: a change for each network that is made first; slopes then stay as they are.
        tails: whether Student's t may replace the Gaussian.
    """
    first = [Calibration()] * len(parts) if given is None else list(given)
    noise = parts[0].noise
    seen = sum(len(part.rows) for part in parts)
    thin = max(1, seen // _ROWS)
    joined = _Joined([_thinned(part, thin) for part in parts], first)

    if noise in LOGITS:
        found = max(
            (2.0 ** (step / 2) for step in range(-6, 3)), key=lambda s: joined.value(0.0, s, math.inf)
        )
        near = [found * 2.0 ** (step / 8) for step in range(-3, 4)]
        return Calibration(slope=max(near, key=lambda s: joined.value(0.0, s, math.inf)))
    sloped = noise == "heteroscedastic" and given is None and not any(part.one_width for part in parts)
    # Log-variances are stretched about their mean: another slope does not call for another shift.
    centre = joined.centre if sloped else 0.0
    start = _first_shift(parts) if given is None else 0.0
    now = {"shift": start, "slope": 1.0, "dof": math.inf}

    def value(way: dict[str, float]) -> float:
        return joined.value(way["shift"] + centre * (1 - way["slope"]), way["slope"], way["dof"])

    def turn(name: str, values: Sequence[float]) -> None:
        now[name] = max(values, key=lambda one: value({**now, name: one}))

    shifts = [start + step / 2 for step in range(-3, 8)]
    stretches = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    for _ in range(2):
        turn("shift", shifts)
        if sloped:
            turn("slope", stretches)
        if tails:
            turn("dof", _DOFS)
    width = 0.25
    for _ in range(3):
        turn("shift", [now["shift"] + step * width for step in (0, -1, 1)])
        if sloped:
            turn("slope", [max(0.0, now["slope"] + step * width / 2) for step in (0, -1, 1)])
        if tails:
            turn("dof", _DOFS)
        width /= 2
    return Calibration(now["shift"] + centre * (1 - now["slope"]), now["slope"], now["dof"])


class _Joined:
    """What all networks say about the rows they held out, joined so that many changes can be tried quickly.

    Args:
        parts: of networks of one noise model.
        first: a change for each network that is made before any other.
    """

    def __init__(self, parts: Sequence[HeldOut], first: Sequence[Calibration]) -> None:
        self.noise = parts[0].noise
        counts = sorted({len(part.outputs) for part in parts})
        groups = [
            [place for place, part in enumerate(parts) if len(part.outputs) == count] for count in counts
        ]
        self.joined = [
            _SameDraws([parts[place] for place in group], [first[place] for place in group])
            for group in groups
        ]
        rows = torch.cat([one.rows for one in self.joined])
        _, places, times = np.unique(rows.numpy(), return_inverse=True, return_counts=True)
        self.places, self.counts = torch.from_numpy(places), torch.from_numpy(times)

    @property
    def centre(self) -> float:
        """The mean of all log-variances."""
        scales = torch.cat([one.log_variance.flatten() for one in self.joined])
        return float(scales.mean())

    def value(self, shift: float, slope: float, dof: float) -> float:
        """The mean log-likelihood of held-out rows, each by all networks that have not seen it."""
        scores = torch.cat([one.log_prob(shift, slope, dof) for one in self.joined])
        if len(self.counts) == len(scores):
            return float(scores.nanmean())
        least = torch.full((len(self.counts),), torch.finfo(scores.dtype).min, dtype=scores.dtype)
        largest = least.scatter_reduce(0, self.places, scores, "amax")
        total = torch.zeros_like(largest).index_add(0, self.places, (scores - largest[self.places]).exp())
        return float((largest + total.log() - self.counts.log()).nanmean())


class _SameDraws:
    """Parts with the same number of draws, joined: errors and log-variances, or logits, (T, n, ...)."""

    def __init__(self, parts: Sequence[HeldOut], first: Sequence[Calibration]) -> None:
        self.noise = noise = parts[0].noise
        self.rows = torch.cat([part.rows for part in parts])
        self.y = torch.cat([part.y for part in parts])
        changed = [
            one.outputs(part.outputs, noise, 0 if noise in LOGITS else part.y.shape[1])
            for part, one in zip(parts, first, strict=True)
        ]
        output = torch.cat(changed, 1)
        self.draws = len(output)
        if noise in LOGITS:
            self.output = output
            return
        targets = self.y.shape[1]
        self.square = (self.y - output[..., :targets]).square()
        if noise == "heteroscedastic":
            self.log_variance = output[..., targets:]
        else:
            levels = [
                (2 * part.log_noise_std + one.shift).expand(len(part.rows), -1)
                for part, one in zip(parts, first, strict=True)
                if part.log_noise_std is not None
            ]
            self.log_variance = torch.cat(levels).unsqueeze(0)

    def log_prob(self, shift: float, slope: float, dof: float) -> Tensor:
        """(n,) log of the mean density over draws."""
        if self.noise in LOGITS:
            targets = self.y.expand(self.draws, *self.y.shape)
            log_prob = -make_head(self.noise).loss(self.output * slope, targets, None)
        else:
            stretch = slope if self.noise == "heteroscedastic" else 1.0
            log_prob = _noise_log_prob(self.square, stretch * self.log_variance + shift, dof)
        return torch.logsumexp(log_prob, 0) - math.log(self.draws)


def _first_shift(parts: Sequence[HeldOut]) -> float:
    """Where the search for a shift begins: a noise that was not learned may be far from the errors' size."""
    level = parts[0].log_noise_std
    if level is None:
        return 0.0
    errors = torch.cat([(part.outputs.mean(0) - part.y).flatten() for part in parts])
    return float(errors.square().mean().clamp_min(1e-30).log() - 2 * level.mean())


def _thinned(part: HeldOut, every: int) -> HeldOut:
    """One row in `every`."""
    if every == 1:
        return part
    keep = torch.arange(0, len(part.rows), every)
    return replace(part, rows=part.rows[keep], outputs=part.outputs[:, keep], y=part.y[keep])
