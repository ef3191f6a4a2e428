"""The general rule: exact by enumeration, by Monte Carlo, and as a sampler's target."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from bayesdrop.linear import BayesianDropoutRegression, DropPerturbation, dropout_log_posterior

LAMBDA0 = 0.5


def data(n: int = 15, p: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, p, generator=generator, dtype=torch.float64) * torch.linspace(0.5, 2.0, p)
    y = X @ torch.linspace(-1.0, 1.0, p).double() + torch.randn(n, generator=generator, dtype=torch.float64)
    return X, y


def log_prior(theta: dict[str, Tensor]) -> Tensor:
    # Jeffreys' prior is flat in log sigma.
    variance = torch.exp(2 * theta["log_sigma"])
    w = theta["w"]
    return -0.5 * LAMBDA0 * w.square().sum() / variance - 0.5 * len(w) * torch.log(variance)


def log_likelihood_of(X: Tensor, y: Tensor) -> object:
    def log_likelihood(theta: dict[str, Tensor]) -> Tensor:
        variance = torch.exp(2 * theta["log_sigma"])
        error = (y - X @ theta["w"]).square().sum()
        return -0.5 * error / variance - 0.5 * len(y) * torch.log(2 * torch.pi * variance)

    return log_likelihood


def closed_form(model: BayesianDropoutRegression, theta: dict[str, Tensor]) -> float:
    """Log density of (w, log sigma)."""
    variance = math.exp(2 * float(theta["log_sigma"]))
    inverse = model.covariance() / model.posterior_.noise_variance[0]
    gaussian = scipy.stats.multivariate_normal.logpdf(theta["w"], model.weights_, variance * inverse)
    # sigma^2 -> log sigma has the Jacobian 2 sigma^2.
    return float(gaussian + model.noise_posterior().logpdf(variance) + math.log(2 * variance))


def points(p: int) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "w": torch.randn(p, generator=generator, dtype=torch.float64),
            "log_sigma": 0.5 * torch.randn((), generator=generator, dtype=torch.float64),
        }
        for _ in range(4)
    ]


@pytest.mark.parametrize("f", [0.0, 0.3, torch.tensor([0.1, 0.4, 0.8], dtype=torch.float64)])
def test_enumeration_is_the_closed_form(f: float | Tensor) -> None:
    X, y = data()
    rates = f.numpy() if isinstance(f, Tensor) else f
    model = BayesianDropoutRegression(f=rates, lambda0=LAMBDA0, fit_intercept=False)
    model.fit(X.numpy(), y.numpy())
    rule = dropout_log_posterior(log_prior, log_likelihood_of(X, y), DropPerturbation({"w": f}))
    gaps = [float(rule(theta)) - closed_form(model, theta) for theta in points(3)]
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-10)


def test_with_nothing_perturbed_it_is_bayes() -> None:
    X, y = data()
    likelihood = log_likelihood_of(X, y)
    rule = dropout_log_posterior(log_prior, likelihood, DropPerturbation({"w": 0.0}))
    for theta in points(3):
        assert rule(theta) == pytest.approx(float(log_prior(theta) + likelihood(theta)))


def test_monte_carlo_is_enumeration_within_its_error() -> None:
    X, y = data()
    likelihood = log_likelihood_of(X, y)
    perturb = DropPerturbation({"w": 0.3})
    exact = dropout_log_posterior(log_prior, likelihood, perturb)
    theta, num_draws = points(3)[0], 4000
    chances, several = perturb.enumerate(theta)
    values = torch.func.vmap(likelihood)(several)
    std = float((chances * (values - (chances * values).sum()).square()).sum().sqrt())
    sampled = dropout_log_posterior(log_prior, likelihood, perturb, num_draws=num_draws)
    assert abs(float(sampled(theta) - exact(theta))) <= 5 * std / num_draws**0.5

    def own(theta: dict[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        keep = torch.rand(3, generator=generator, dtype=torch.float64) >= 0.3
        return {"w": theta["w"] * keep, "log_sigma": theta["log_sigma"]}

    by_function = dropout_log_posterior(log_prior, likelihood, own, num_draws=num_draws)
    assert abs(float(by_function(theta) - exact(theta))) <= 5 * std / num_draws**0.5


def test_common_random_numbers_make_a_deterministic_function_with_a_gradient() -> None:
    X, y = data()
    perturb = DropPerturbation({"w": 0.3})
    rule = dropout_log_posterior(log_prior, log_likelihood_of(X, y), perturb, num_draws=7, seed=3)
    other = dropout_log_posterior(log_prior, log_likelihood_of(X, y), perturb, num_draws=7, seed=4)
    theta = points(3)[0]
    assert rule(theta) == rule(theta)
    assert rule(theta) != other(theta)
    assert torch.autograd.gradcheck(
        lambda w, s: rule({"w": w, "log_sigma": s}),
        (theta["w"].requires_grad_(), theta["log_sigma"].requires_grad_()),
    )


def test_a_lone_tensor_is_a_parameter() -> None:
    X, y = data()
    rule = dropout_log_posterior(
        lambda w: -w.square().sum(), lambda w: -(y - X @ w).square().sum(), DropPerturbation(0.25)
    )
    w = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    mean = (y - 0.75 * X @ w).square().sum() + 0.25 * 0.75 * (X.square() @ w.square()).sum()
    assert float(rule(w)) == pytest.approx(float(-w.square().sum() - mean))


def test_what_cannot_be_perturbed_is_refused() -> None:
    many = DropPerturbation(0.5)
    with pytest.raises(ValueError, match="at most 20 dropped coordinates"):
        many.enumerate(torch.zeros(21))
    with pytest.raises(ValueError, match=r"rates of \['w'\]"):
        DropPerturbation({"v": 0.5}).enumerate({"w": torch.zeros(2)})
    with pytest.raises(TypeError, match="a mapping, as f is"):
        DropPerturbation({"v": 0.5}).enumerate(torch.zeros(2))
    rule = dropout_log_posterior(lambda w: w.sum(), lambda w: w, many)
    with pytest.raises(ValueError, match="of shape"):
        rule(torch.zeros(2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_nuts_on_the_rule_finds_the_closed_form() -> None:
    pyro = pytest.importorskip("pyro")
    from pyro.infer import MCMC, NUTS

    X, y = data(n=12, p=2)
    f, num_draws = 0.3, 250
    rule = dropout_log_posterior(log_prior, log_likelihood_of(X, y), DropPerturbation({"w": f}))
    pyro.set_rng_seed(0)
    kernel = NUTS(potential_fn=lambda theta: -rule(theta), jit_compile=False)
    start = {"w": torch.zeros(2, dtype=torch.float64), "log_sigma": torch.zeros((), dtype=torch.float64)}
    chain = MCMC(kernel, num_samples=num_draws, warmup_steps=100, initial_params=start, disable_progbar=True)
    chain.run()
    found = chain.get_samples()
    model = BayesianDropoutRegression(f=f, lambda0=LAMBDA0, fit_intercept=False)
    model.fit(X.numpy(), y.numpy())
    # A draw of a chain is worth less than an independent one.
    size = min(float(pyro.ops.stats.effective_sample_size(found["w"][None], 0, 1).min()), num_draws)
    std = np.sqrt(model.covariance("diagonal"))
    assert size > 50
    assert (np.abs(found["w"].mean(0).numpy() - model.weights_) <= 5 * std / np.sqrt(size)).all()
    spread = np.sqrt(2 / size) * np.square(std) * 2
    assert (np.abs(found["w"].var(0).numpy() - np.square(std)) <= 5 * spread).all()
    sigma2 = torch.exp(2 * found["log_sigma"]).numpy()
    noise = model.noise_posterior()
    assert abs(sigma2.mean() - noise.mean()) <= 5 * noise.std() / np.sqrt(size / 2)
