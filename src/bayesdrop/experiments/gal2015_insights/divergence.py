"""Section 3.3 and appendix A: the divergence of a mixture of Gaussians from the prior."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal, kl_divergence

from bayesdrop.experiments.gal2015_insights.checks import CheckResult, double, mean_and_error
from bayesdrop.experiments.row import Claim, Row
from bayesdrop.functional import bernoulli_entropy, mixture_dropout_kl
from bayesdrop.layers import MixtureDropout
from bayesdrop.predict import predict

__all__ = ["check_bias", "check_mixture", "check_reparametrisation", "check_vanishing_width"]

KEEP = 0.7


def _exact(mean_square: Tensor, sigma: float, size: int) -> Tensor:
    """The exact divergence from N(0, I) of one row of `size` weights with means m, given |m|^2."""
    drop = double(1 - KEEP)[0]
    return mixture_dropout_kl(KEEP**2 * mean_square, drop, double(sigma)[0], size, 1.0)


def _width_term(sigma: float, size: int) -> float:
    """K (s^2 - log s^2 - 1), which the divergence has for widths s other than 1."""
    return size * (sigma**2 - math.log(sigma**2) - 1)


def check_mixture(num_samples: int, seed: int) -> CheckResult:
    """Proposition 1 against Monte Carlo and against the exact divergence."""
    generator = torch.Generator().manual_seed(seed)
    rows, texts, worst, printed_over = [], [], 0.0, math.inf
    entropy = float(bernoulli_entropy(double(KEEP)[0]))
    for size, sigma in ((20, 0.3), (100, 0.9)):
        mean = torch.randn(size, generator=generator, dtype=torch.float64)
        means = torch.stack([mean, torch.zeros_like(mean)])
        mixture = MixtureSameFamily(
            Categorical(double(KEEP, 1 - KEEP)), Independent(Normal(means, torch.full_like(means, sigma)), 1)
        )
        prior = Independent(Normal(torch.zeros_like(mean), torch.ones_like(mean)), 1)
        sample = mixture.sample((num_samples,))  # type: ignore[no-untyped-call]
        ratio: Tensor = mixture.log_prob(sample) - prior.log_prob(sample)  # type: ignore[no-untyped-call]
        sampled, error = mean_and_error(ratio)
        square = mean.square().sum()
        exact = float(_exact(square, sigma, size))
        shift = 0.5 * KEEP * float(square)
        proposition = shift + 0.5 * _width_term(sigma, size)
        printed = shift + _width_term(sigma, size)
        where = f"K = {size}, sigma = {sigma}"
        rows += [
            Row(where, "KL, proposition 1", proposition, sampled, error, "ours: Monte Carlo"),
            Row(where, "KL, section 3.3 as printed", printed, sampled, error, "ours: Monte Carlo"),
            Row(
                where,
                "KL, proposition 1 less H(p)",
                proposition - entropy,
                sampled,
                error,
                "ours: Monte Carlo",
            ),
            Row(where, "KL, exact", None, exact),
        ]
        worst = max(worst, abs(sampled - exact) / error)
        printed_over = min(printed_over, printed - exact)
        texts.append(
            f"{where}: {sampled:.2f} +- {error:.2f}, proposition {proposition:.2f}, as printed {printed:.2f}"
        )
    sizes = torch.arange(1, 101, dtype=torch.float64)
    gaps = {
        f"gap {sigma:g}": torch.stack(
            [_exact(k, sigma, int(k)) - 0.5 * (KEEP * k + _width_term(sigma, int(k))) for k in sizes]
        )
        for sigma in (0.3, 1.0, 3.0)
    }
    far = float(gaps["gap 0.3"][-1])
    claims = (
        Claim(
            "Proposition 1: for large K, KL(q || p) is about sum_i p_i/2 (|m_i|^2 + tr S_i - K - log |S_i|).",
            f"{'; '.join(texts)}. What is missing tends to {far:.4f}, and -H(p) is {-entropy:.4f}.",
            abs(far) < 0.01,
            "Subtract H(p), the entropy of the mixture's weights: the proof drops log p_i with its constant "
            "C. For fixed p it does not matter; for learned p it is the entropy term of concrete dropout. At "
            "any K, subtract what a sample tells of its component instead: that is exact.",
        ),
        Claim(
            "3.3: KL(q(W_1) || p(W_1)) is about Q K (s^2 - log s^2 - 1) + p_1/2 sum_q |m_q|^2.",
            f"too large by at least {printed_over:.1f} nats a row of weights in the two cases above.",
            printed_over < 0.01,
            "The first term needs a factor 1/2, as proposition 1 gives it.",
        ),
        Claim(
            "3.3: the entropy of a mixture in many dimensions with random means tends to that of its parts.",
            f"sigma = 1: entropy beyond its parts' mean {-float(gaps['gap 1'][0]):.3f} at K = 1, "
            f"{-float(gaps['gap 1'][-1]):.4f} at K = 100; H(p) = {entropy:.4f}.",
            abs(float(gaps["gap 1"][-1])) < 0.01,
            "It tends to their mean plus H(p), which is what tells the components apart.",
        ),
    )
    arrays = {"size": sizes, "entropy": entropy, **gaps}
    check = Row("exact mixture KL", "distance from Monte Carlo (standard errors)", None, worst)
    return CheckResult((*rows, check), claims, arrays)


def check_bias(seed: int) -> CheckResult:
    """KL(q(b) || p(b)) in closed form."""
    mean = torch.randn(30, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    sigma = 0.2
    printed = 0.5 * (float(mean.square().sum()) + _width_term(sigma, 30))
    exact = float(kl_divergence(Normal(mean, sigma), Normal(torch.zeros_like(mean), 1.0)).sum())
    claim = Claim(
        "3.3: KL(q(b) || p(b)) = (m.m + K (s^2 - log s^2 - 1)) / 2.",
        f"{printed:.10g}, and {exact:.10g} by torch.distributions.",
        abs(printed - exact) < 1e-9,
    )
    return CheckResult((Row("bias, K = 30", "KL", printed, exact),), (claim,))


def check_vanishing_width(seed: int) -> CheckResult:
    """As sigma falls the divergence grows without bound, and its gradient does not."""
    mean_square = torch.tensor(20.0, dtype=torch.float64, requires_grad=True)
    values, slopes = [], []
    widths = (1e-1, 1e-4, 1e-16, 1e-33)
    for sigma in widths:
        value = _exact(mean_square, sigma, 20)
        (slope,) = torch.autograd.grad(value, mean_square)
        values.append(float(value.detach()))
        slopes.append(float(slope))
    weights = torch.randn(50, 20, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x, keep = torch.randn(2, 50, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    dropped = weights * (keep > 0).unsqueeze(1)
    tiny = 1e-33 * torch.randn(50, 20, generator=torch.Generator().manual_seed(seed + 2), dtype=torch.float64)
    same = torch.equal(x @ dropped, x @ (dropped + tiny))
    claims = (
        Claim(
            "3.4: letting sigma tend to zero the KL tends to infinity; at 10^-33, log sigma = -76.",
            f"KL of 20 weights at sigma = {', '.join(f'{w:g}' for w in widths)}: "
            f"{', '.join(f'{v:.0f}' for v in values)}; log 1e-33 = {math.log(1e-33):.2f}. "
            f"Its slope in |m|^2 / 2 stays at {2 * slopes[-1]:.4f}, the chance of keeping.",
            values[-1] > values[0] and abs(2 * slopes[-1] - KEEP) < 1e-9,
        ),
        Claim(
            "3.4: with so small a sigma, W_1 is b_1 M_1 in effect.",
            f"outputs of a layer with and without it: {'the same' if same else 'different'} bits.",
            same,
        ),
    )
    rows = (
        Row("sigma = 1e-33", "log sigma", -76, math.log(1e-33)),
        Row("sigma = 1e-33", "slope of KL in |m|^2 / 2", KEEP, 2 * slopes[-1]),
    )
    return CheckResult(rows, claims)


def check_reparametrisation(num_samples: int, seed: int) -> CheckResult:
    """Eq. 13: W = b (M + s e) + (1 - b) s e has the mixture's moments."""
    generator = torch.Generator().manual_seed(seed)
    linear = torch.nn.Linear(6, 2).double()
    sigma, drop = 0.4, 1 - KEEP
    layer = MixtureDropout(linear, p=drop, sigma=sigma)
    x = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    draws = predict(layer, x, num_draws=num_samples, seed=seed, keep_draws=True).draws
    weight = linear.weight.detach().square()
    exact = drop / KEEP * x.square() @ weight.T + sigma**2 * (x.square().sum(1, keepdim=True) + 1)
    centred = (draws - draws.mean(0)).square()
    score = float(((centred.mean(0) - exact).abs() / (centred.std(0) / num_samples**0.5)).max())
    claim = Claim(
        "Eqs 9 to 13: sampling W = b (M + s e) + (1 - b) s e and a bias m + s e is sampling the mixture.",
        f"{num_samples} draws of a layer: variances at most {score:.1f} standard errors from dropout's plus "
        "s^2 (|x|^2 + 1).",
        score < 5,
    )
    return CheckResult((), (claim,))
