"""Section 3.4: the objective of dropout is a lower bound, and what its constants must then be."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from bayesdrop.experiments.gal2015_insights.checks import CheckResult, double, z_score
from bayesdrop.experiments.row import Claim, Row
from bayesdrop.functional import mixture_dropout_kl
from bayesdrop.objectives import precision_from_weight_decay

__all__ = ["check_bias_rate", "check_objective", "check_weight_decay"]

_INPUTS, _UNITS, _OUTPUTS, _ROWS = 3, 4, 2, 7


class _Network:
    """A network with one hidden layer, raw weights M_1 and M_2 and a bias m; its gradients for all masks."""

    def __init__(self, seed: int, keep: float) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        self.x, self.y = normal(_ROWS, _INPUTS), normal(_ROWS, _OUTPUTS)
        self.parameters = [normal(_INPUTS, _UNITS), normal(_UNITS, _OUTPUTS), normal(_UNITS)]
        self.keep = keep
        every = list(itertools.product([0.0, 1.0], repeat=_INPUTS + _UNITS))
        self.masks = torch.tensor(every, dtype=torch.float64)
        kept = self.masks.sum(1)
        self.chances = keep**kept * (1 - keep) ** (_INPUTS + _UNITS - kept)

    def data_gradients(self) -> Tensor:
        """Gradients of sum_n |y_n - y^_n|^2 / 2, one for every mask. Shape (masks, parameters)."""
        parameters = [value.clone().requires_grad_() for value in self.parameters]
        first, second, bias = parameters
        rows = []
        for mask in self.masks:
            hidden = torch.relu(self.x * mask[:_INPUTS] @ first + bias) * mask[_INPUTS:]
            loss = 0.5 * (self.y - hidden @ second / _UNITS**0.5).square().sum()
            gradients = torch.autograd.grad(loss, parameters)
            rows.append(torch.cat([part.flatten() for part in gradients]))
        return torch.stack(rows)

    def penalty(self, first: float, second: float, bias: float) -> Tensor:
        """Gradient of first |M_1|^2 + second |M_2|^2 + bias |m|^2. Shape (parameters,)."""
        parts = zip((first, second, bias), self.parameters, strict=True)
        return torch.cat([2 * scale * value.flatten() for scale, value in parts])


def check_objective(num_samples: int, seed: int) -> CheckResult:
    """Eq. 3 against eq. 14: which constants make them the same, and which precision these mean."""
    keep, precision = 0.5, 2.5
    net = _Network(seed, keep)
    data = net.data_gradients()
    mean = net.chances @ data
    bound = precision * mean + net.penalty(keep / 2, keep / 2, 0.5)
    # Eq. 1 is the sum over 2 N, so that r_1 = tau N.
    r_1 = precision * _ROWS
    # One weight decay for dropped weights and another for the bias, as in eq. 14; one for all, as in eq. 3.
    apart, single = (r_1 / _ROWS * mean + net.penalty(rate / 2, rate / 2, 0.5) for rate in (keep, 1.0))
    same = float((apart - bound).abs().max() / bound.abs().max())
    cosine = float(torch.cosine_similarity(single, bound, 0))
    chosen = torch.multinomial(
        net.chances, num_samples, replacement=True, generator=torch.Generator().manual_seed(seed)
    )
    score = z_score(data[chosen], mean)
    # With g (`mean`) for the gradient of the data's part, eqs 1 and 3 have (r_1 / N) g + 2 r_2 M, and eq. 14
    # has gamma (tau g + keep M), with keep = 1 for a bias. Least squares gives gamma tau and gamma.
    r_1, r_2 = 1.0, 0.01
    printed = r_1 / _ROWS * mean + net.penalty(r_2, r_2, r_2)
    found = {}
    for name, part, rate in (("bias", slice(-_UNITS, None), 1.0), ("weights", slice(_INPUTS * _UNITS), keep)):
        unit = net.penalty(rate / 2, rate / 2, rate / 2)[part]
        solved = torch.linalg.lstsq(torch.stack([mean[part], unit], 1), printed[part].unsqueeze(1)).solution[
            :, 0
        ]
        found[name] = float(solved[0] / solved[1])
    formula = precision_from_weight_decay(r_2, p=1 - keep, length_scale=1.0, num_data=_ROWS, loss_weight=r_1)
    claims = (
        Claim(
            "3.4: eq. 14 is an unbiased estimate of the bound: one sample of the masks for each gradient.",
            f"mean of {num_samples} single-sample gradients at most {score:.1f} standard errors from the sum "
            f"over all {len(data)} masks.",
            score < 5,
        ),
        Claim(
            "3.4: maximising eq. 14 gives the parameters that minimise eq. 3, the dropout objective.",
            f"with r_2 = keep / 2 for weights and 1 / 2 for the bias the gradients differ by {same:.0e} of "
            f"their size; with one r_2 for all, as in eq. 3, their cosine is {cosine:.3f} at keep = {keep}.",
            cosine > 1 - 1e-9,
            "It does if every dropped layer has a weight decay of its own, scaled by its chance of keeping.",
        ),
        Claim(
            "3.4: r_1 / r_2 = tau, the model's precision.",
            f"eqs 1 and 3 with r_1 = {r_1:g}, r_2 = {r_2:g}, N = {_ROWS} and keep = {keep}: r_1 / r_2 = "
            f"{r_1 / r_2:g}; the tau that makes eq. 14 of them is {found['bias']:.4f} by the bias and "
            f"{found['weights']:.4f} by the weights.",
            all(math.isclose(r_1 / r_2, tau, rel_tol=1e-6) for tau in found.values()),
            "tau = keep l^2 r_1 / (2 N r_2), keep being 1 for a bias. r_1 / r_2 is right if the loss is a "
            "sum over the data with its 1/2 and no 1/N, the penalty is (r_2 / 2) |.|^2, l = 1, and keep is "
            "moved into the penalty.",
        ),
    )
    rows = (
        Row("tau by the weights", "precision from r_1 = 1, r_2 = 0.01", r_1 / r_2, found["weights"]),
        Row("tau by the bias", "precision from r_1 = 1, r_2 = 0.01", r_1 / r_2, found["bias"]),
        Row("tau, keep l^2 r_1 / (2 N r_2)", "precision from r_1 = 1, r_2 = 0.01", None, formula),
    )
    return CheckResult(rows, claims)


def check_weight_decay(seed: int) -> CheckResult:
    """The gradient of the exact divergence in M is the chance of keeping times M."""
    mean = torch.randn(40, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ratios = {}
    for keep in (0.5, 0.9):
        weights = mean.clone().requires_grad_()
        square = (keep * weights).square().sum()
        kl = mixture_dropout_kl(square, double(1 - keep)[0], double(1e-3)[0], 40, 1.0)
        (slope,) = torch.autograd.grad(kl, weights)
        ratios[keep] = float((slope / mean).mean())
    shown = ", ".join(f"{ratio:.6f} at keep {keep}" for keep, ratio in ratios.items())
    claim = Claim(
        "3.4: the weight decay of dropped weights should be scaled by the chance of not dropping them.",
        f"slope of the exact KL over M: {shown}.",
        all(abs(ratio - keep) < 1e-6 for keep, ratio in ratios.items()),
        "For raw weights M. For weights W = keep M, divided by keep when they are used, it is 1 / keep.",
    )
    rows = tuple(
        Row(f"keep = {keep}", "weight decay, of the bias's", keep, ratio) for keep, ratio in ratios.items()
    )
    return CheckResult(rows, (claim,))


def check_bias_rate(seed: int) -> CheckResult:
    """Gradient descent with a doubled learning rate for the bias ends at the same solution."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    y = x.sum(1) + 2 + 0.3 * torch.randn(20, generator=generator, dtype=torch.float64)
    design = torch.cat([x, torch.ones(20, 1, dtype=torch.float64)], 1)

    def descended(rate: float, decay: float) -> Tensor:
        rates, decays = double(1, 1, 1, rate), double(1, 1, 1, decay)
        theta = torch.zeros(4, dtype=torch.float64)
        for _ in range(4000):
            theta = theta - 0.02 * rates * (design.T @ (design @ theta - y) / 20 + 0.3 * decays * theta)
        return theta

    plain, doubled, decayed = descended(1, 1), descended(2, 1), descended(1, 2)
    moved, needed = float((doubled - plain).abs().max()), float((decayed - plain).abs().max())
    claim = Claim(
        "3.4 and 4.1: this might explain why doubling the learning rate of the bias works at p = 0.5.",
        f"linear regression with weight decay: a doubled rate moves the solution by {moved:.1e}, a doubled "
        f"decay of the bias by {needed:.2f}.",
        math.isclose(moved, needed, rel_tol=0.1),
        "At p = 0.5 the bound asks for twice the weight decay on the bias. A learning rate scales the pull "
        "of the data as well and leaves the solution where it is; only the way there is shorter.",
    )
    rows = (Row("bias at twice the learning rate", "shift of the solution", None, moved),)
    return CheckResult(rows, (claim,))
