"""The closed form and the rest of the library: one model, three roads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.linear import BayesianDropoutRegression

N, P = 16, 3
NOISE = 0.7
RATES = {"one rate": 0.3, "rate per feature": torch.tensor([0.1, 0.3, 0.5])}


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N, P, generator=generator) * torch.tensor([0.5, 1.0, 2.0])
    return X, X @ torch.tensor([[1.0], [-1.0], [0.5]]) + NOISE * torch.randn(N, 1, generator=generator)


def layer(weights: Tensor, f: float | Tensor) -> bd.BernoulliDropout:
    """A layer that is x'(w z): its W is (1 - f) w, as its noise is divided by 1 - f."""
    linear = nn.Linear(P, 1, bias=False)
    with torch.no_grad():
        linear.weight.copy_(((1 - torch.as_tensor(f)) * weights).reshape(1, P))
    return bd.BernoulliDropout(linear, p=f)


@pytest.mark.parametrize("f", RATES.values(), ids=RATES)
def test_a_layer_trained_with_the_elbo_reaches_the_posterior_mean(f: float | Tensor) -> None:
    X, y = data()
    lambda0, keep = 2.0, 1 - torch.as_tensor(f)
    # The layer's prior is l^2 |W_k|^2 / (2 (1 - f)) = l^2 (1 - f) |w_k|^2 / 2; lambda0 |w|^2 / (2 sigma^2) is
    # its like for one rate. For several rates each weight has a prior of its own: lambda0 (1 - f_k).
    length_scale = (lambda0 / NOISE**2) ** 0.5
    objective = bd.NegativeELBO(bd.Gaussian(NOISE), num_data=N, length_scale=length_scale)
    # Many copies of each row, each with a mask of its own; the mean of late iterates has no bias, as the
    # objective is quadratic. Its error comes from means of batches, which are nearly independent.
    burn_in, batches, length, copies = 300, 8, 100, 40
    x, t = X.repeat(copies, 1), y.repeat(copies, 1)
    model = layer(torch.zeros(P), f).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.12)
    iterates = []
    for _ in range(burn_in + batches * length):
        optimiser.zero_grad()
        objective(model, x, t).loss.backward()
        optimiser.step()
        iterates.append(model.layer.weight.detach()[0] / keep)
    found = torch.stack(iterates[burn_in:]).unflatten(0, (batches, length)).mean(1)
    A = X.double() * keep.double()
    prior = lambda0 * keep.double().expand(P)
    D = prior + (1 - keep).double() * keep.double() * X.double().square().sum(0)
    exact = torch.linalg.solve(torch.diag(D) + A.T @ A, A.T @ y[:, 0].double())
    if not isinstance(f, Tensor):
        scalar = BayesianDropoutRegression(f=f, lambda0=lambda0 * (1 - f), fit_intercept=False)
        np.testing.assert_allclose(scalar.fit(X.numpy(), y[:, 0].numpy()).weights_, exact, rtol=1e-5)
    error = found.std(0) / batches**0.5
    assert ((found.mean(0) - exact).abs() <= 5 * error + 1e-5).all()
    assert (5 * error < 0.1).all()


@pytest.mark.parametrize("f", RATES.values(), ids=RATES)
def test_moments_and_draws_agree_with_the_dropped_predictive(f: float | Tensor) -> None:
    X, y = data()
    rates = f.numpy() if isinstance(f, Tensor) else f
    model = BayesianDropoutRegression(f=rates, lambda0=1.0, fit_intercept=False)
    model.fit(X.numpy(), y[:, 0].numpy())
    new = torch.randn(4, P)
    num_draws = 300
    draws = model.sample_posterior(num_draws, seed=1)
    # Given a draw of (w, sigma), the layer is the model: moments of masks in closed form, then over draws.
    means, variances = [], []
    for w, variance in zip(draws.weights, draws.noise_variance, strict=True):
        net = layer(torch.tensor(w, dtype=torch.float32), f).eval()
        given = bd.predict(net, new, method="moments", likelihood=bd.Gaussian(float(variance) ** 0.5))
        means.append(given.mean[:, 0])
        variances.append(given.variance[:, 0])
    mean, variance = torch.stack(means).double().numpy(), torch.stack(variances).double().numpy()
    exact_mean, exact_std = model.predict(new.numpy(), return_std=True, predictive="dropped")
    error = mean.std(0) / num_draws**0.5
    assert (np.abs(mean.mean(0) - exact_mean) <= 5 * error).all()
    total = variance + np.square(mean - exact_mean)
    assert (np.abs(total.mean(0) - exact_std**2) <= 5 * total.std(0) / num_draws**0.5).all()


@pytest.mark.parametrize("f", RATES.values(), ids=RATES)
def test_at_the_posterior_mean_moments_draws_and_the_formula_are_one(f: float | Tensor) -> None:
    X, y = data()
    rates = f.numpy() if isinstance(f, Tensor) else f
    model = BayesianDropoutRegression(f=rates, lambda0=1.0, fit_intercept=False)
    model.fit(X.numpy(), y[:, 0].numpy())
    net = layer(torch.tensor(model.weights_, dtype=torch.float32), f).eval()
    new = torch.randn(4, P)
    mean = model.predict(new.numpy())
    variance = (rates * (1 - rates) * np.square(new.numpy() * model.weights_)).sum(1)
    moments = bd.predict(net, new, method="moments")
    np.testing.assert_allclose(moments.mean[:, 0], mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(moments.epistemic[:, 0], variance, rtol=1e-4)
    num_draws = 4000
    drawn = bd.predict(net, new, num_draws=num_draws, seed=1)
    error = drawn.draws.std(0)[:, 0].numpy() / num_draws**0.5
    assert (np.abs(drawn.mean[:, 0].numpy() - mean) <= 5 * error).all()
    square = np.square(drawn.draws[..., 0].double().numpy() - mean)
    assert (np.abs(square.mean(0) - variance) <= 5 * square.std(0) / num_draws**0.5).all()
