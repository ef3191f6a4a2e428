"""Sections 2.1, 4.1 and 4.2: what masks do to a network, by summing over all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bayesdrop.experiments.gal2015_insights.checks import CheckResult
from bayesdrop.experiments.row import Claim, Row
from bayesdrop.layers import BernoulliDropout, GaussianDropout
from bayesdrop.predict import predict

__all__ = ["check_averages", "check_masks", "check_noise", "check_recurrence", "check_regulariser"]

_KEEP = 0.7
_UNITS = 5


def _all_masks(units: int) -> tuple[Tensor, Tensor]:
    """Every mask of K units (2^K, K), and its chance (2^K,)."""
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=units)), dtype=torch.float64)
    kept = masks.sum(1)
    return masks, _KEEP**kept * (1 - _KEEP) ** (units - kept)


def _normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check_masks(seed: int) -> CheckResult:
    """Masks on units or on rows of weights, before or after the non-linearity, scaled or not."""
    x, first, second = _normal(seed, 9, _UNITS), _normal(seed + 1, _UNITS, 6), _normal(seed + 2, 6, 2)
    bias = _normal(seed + 3, 6)
    masks, _ = _all_masks(_UNITS)
    on_weights = max(
        float(((x * mask) @ first - x @ (mask.unsqueeze(1) * first)).abs().max()) for mask in masks
    )
    # Raw weights M: z M in training, keep M at test. Scaled weights W = keep M: z W / keep, and W at test.
    raw = torch.stack([torch.relu((x * mask) @ first + bias) @ second for mask in masks])
    scaled = torch.stack([torch.relu((x * mask / _KEEP) @ (_KEEP * first) + bias) @ second for mask in masks])
    scaling = float((raw - scaled).abs().max())
    through: dict[str, float] = {}
    units: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "cos": torch.cos
    }  # fmt: skip
    hidden_masks, _ = _all_masks(6)
    for name, function in units.items():
        gaps = [
            (function(x @ first + bias) * mask - function(x @ (first * mask) + bias * mask)).abs().max()
            for mask in hidden_masks
        ]
        through[name] = float(torch.stack(gaps).max())
    claims = (
        Claim(
            "2.1: dropping inputs is multiplying the weight matrix by the mask, which zeroes entire rows.",
            f"largest difference over {len(masks)} masks {on_weights:.0e}.",
            on_weights < 1e-12,
        ),
        Claim(
            "2.1: scaling by 1 / keep in training is as weights of scale 1 / keep that are scaled at test.",
            f"largest difference of outputs over {len(masks)} masks {scaling:.0e}.",
            scaling < 1e-12,
            "The outputs are the same. The weight decay is not: it is keep^2 |M|^2 of the scaled weights.",
        ),
        Claim(
            "4.1: the mask can be passed through a non-linearity with s(0) = 0: a bias is then dropped too.",
            f"largest difference: {', '.join(f'{name} {gap:.1g}' for name, gap in through.items())}.",
            through["relu"] == through["tanh"] == 0 and min(through["sigmoid"], through["cos"]) > 0.1,
        ),
    )
    rows = tuple(
        Row(f"mask through {name}", "largest difference", 0.0 if name in ("relu", "tanh") else None, gap)
        for name, gap in through.items()
    )
    return CheckResult(rows, claims)


def check_averages(seed: int) -> CheckResult:
    """The average over masks against one pass with averaged weights."""
    x, first, second = _normal(seed, 9, _UNITS), _normal(seed + 1, _UNITS, 8), _normal(seed + 2, 8, 1)
    masks, chances = _all_masks(_UNITS)
    gaps = {}
    layers: dict[str, Callable[[Tensor], Tensor]] = {
        "linear": lambda u: u,
        "relu": torch.relu,
        "tanh": torch.tanh,
    }
    for name, function in layers.items():
        outputs = torch.stack([function((x * mask / _KEEP) @ first) @ second for mask in masks])
        average = (chances.reshape(-1, 1, 1) * outputs).sum(0)
        spread = (chances.reshape(-1, 1, 1) * (outputs - average).square()).sum(0).mean().sqrt()
        gaps[name] = float((average - function(x @ first) @ second).square().mean().sqrt() / spread)
    claim = Claim(
        "4.2: averaging forward passes (MC dropout) is another estimate than averaging the weights.",
        "distance of the two, in standard deviations over masks: "
        f"{', '.join(f'{name} {gap:.2g}' for name, gap in gaps.items())}.",
        gaps["linear"] < 1e-12 < min(gaps["relu"], gaps["tanh"]),
        "They agree exactly for linear networks.",
    )
    rows = tuple(
        Row(
            f"{name} network",
            "MC average from averaged weights (std)",
            0.0 if name == "linear" else None,
            gap,
        )
        for name, gap in gaps.items()
    )
    return CheckResult(rows, (claim,))


def check_noise(num_samples: int, seed: int) -> CheckResult:
    """Gaussian noise N(1, p / (1 - p)) has the first two moments of dropout."""
    p = 1 - _KEEP
    x = _normal(seed, 4, _UNITS)
    torch_layer = nn.Linear(_UNITS, 3).double()
    variances, scores = [], []
    exact = p / _KEEP * x.square() @ torch_layer.weight.detach().square().T
    for kind in (BernoulliDropout, GaussianDropout):
        draws = predict(kind(torch_layer, p=p), x, num_draws=num_samples, seed=seed, keep_draws=True).draws
        square = (draws - draws.mean(0)).square()
        variances.append(square.mean(0))
        scores.append(float(((square.mean(0) - exact).abs() / (square.std(0) / num_samples**0.5)).max()))
    ratio = float((variances[1] / variances[0]).mean())
    claim = Claim(
        "4.1: multiplying by N(1, s^2) is a posterior too, q(w_k) = m_k + m_k e with e ~ N(0, I).",
        f"with s^2 = p / (1 - p) the output variances of both layers are within {max(scores):.1f} standard "
        f"errors of the same number (ratio {ratio:.3f}); as printed, s^2 = 1 instead of {p / _KEEP:.3f} at "
        f"p = {p:.1f}.",
        max(scores) < 5 and abs(p / _KEEP - 1) < 0.01,
        "q(w_k) = m_k + s m_k e, with one e for all weights of a unit as for its mask. e ~ N(0, 1) without s "
        "matches dropout at p = 0.5 alone.",
    )
    return CheckResult((Row("Gaussian over Bernoulli noise", "variance ratio", 1.0, ratio),), (claim,))


def check_regulariser(seed: int) -> CheckResult:
    """Linear layer and squared loss: dropout is ridge regression on scaled features, exactly."""
    x, weight, y = _normal(seed, 9, _UNITS), _normal(seed + 1, _UNITS, 2), _normal(seed + 2, 9, 2)
    masks, chances = _all_masks(_UNITS)
    losses = torch.stack([(y - (x * mask / _KEEP) @ weight).square().sum() for mask in masks])
    expected = float(chances @ losses)
    penalty = (1 - _KEEP) / _KEEP * (x.square().sum(0) @ weight.square().sum(1))
    closed = float((y - x @ weight).square().sum() + penalty)
    claim = Claim(
        "1: dropout is equivalent to an L2 regulariser applied after scaling the features (Wager et al.).",
        f"linear layer, squared loss: {expected:.10g} over all masks, {closed:.10g} by the penalty "
        "(1 - keep) / keep sum_k |x_k|^2 |W_k|^2.",
        abs(expected - closed) < 1e-9 * closed,
        "Exactly so for a linear layer and squared loss; otherwise to second order in the noise.",
    )
    return CheckResult((Row("linear layer", "expected squared loss", closed, expected),), (claim,))


def check_recurrence(num_samples: int, seed: int) -> CheckResult:
    """A perfect integrator under dropout: noise that is fresh at every step, and one mask for all steps."""
    steps, keep = 10, 0.8
    fresh = (torch.rand(num_samples, steps, generator=torch.Generator().manual_seed(seed)) < keep) / keep
    signal = fresh.to(torch.float64).prod(1)
    alive = float((signal > 0).to(torch.float64).mean())
    exact = (keep**-steps - 1) ** 0.5
    spread = float(signal.std())
    shared = (1 / keep - 1) ** 0.5
    error = ((keep**steps) * (1 - keep**steps) / num_samples) ** 0.5
    claim = Claim(
        "4.2: noise applied again and again in a recurrent network leaves a very weak signal at the output.",
        f"h <- z h / {keep} over {steps} steps: {100 * alive:.1f} % of signals are left, with a standard "
        f"deviation of {spread:.2f} around 1 ({exact:.2f} in theory); with one mask for all steps "
        f"{100 * keep:.0f} % and {shared:.2f}.",
        abs(alive - keep**steps) < 5 * error and exact > 4 * shared,
        "One mask for all time steps, as a draw of the weights is, keeps it.",
    )
    row = Row(f"integrator, {steps} steps, fresh masks", "share of signals left", keep**steps, alive, error)
    return CheckResult((row,), (claim,))
