"""VAE: the bound and the importance-weighted estimate against marginal likelihoods that are known."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.vae.linear_gaussian import (
    SIGMA,
    best_encoder,
    decoder,
    estimates,
    exact_log_likelihood,
    linear,
    near,
    noise,
    rows,
    seeded,
)
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import vae


def _is_unbiased(model: vae.VAE, x: Tensor, exact: Tensor, *, num_importance: int = 50) -> None:
    """The mean of exp(estimate) is p(x): before the log, importance sampling has no bias."""
    ratio = (estimates(model.log_likelihood, x, 400, num_importance=num_importance) - exact).exp()
    assert near(ratio, torch.ones_like(exact))
    assert float(ratio.std(0).max()) < 2  # or the test says nothing


def test_the_bound_is_tight_at_the_true_posterior() -> None:
    layer = decoder(2, 5, orthogonal=True)
    x = rows(4, 5)
    model = vae.VAE(best_encoder(layer), layer, likelihood=noise(), latent=2)
    exact = exact_log_likelihood(layer, x)
    # p(x | z) p(z) / q(z | x) is p(x) for every z: one code is as good as a thousand.
    torch.testing.assert_close(model.log_likelihood(x, num_importance=1), exact)
    assert near(estimates(model.lower_bound, x, 400), exact)


def test_another_posterior_has_a_lower_bound_and_the_same_likelihood() -> None:
    layer = decoder(2, 5)
    x = rows(4, 5)
    model = vae.VAE(linear(5, 4, 1, 0.2), layer, likelihood=noise(), latent=2)
    exact = exact_log_likelihood(layer, x)
    _is_unbiased(model, x, exact)
    bounds = estimates(model.lower_bound, x, 400)
    assert bool((bounds.mean(0) < exact - 5 * bounds.std(0) / 20).all())
    many = estimates(model.log_likelihood, x, 400, num_importance=50)
    assert bool((many.mean(0) > bounds.mean(0) + 5 * (many.std(0) + bounds.std(0)) / 20).all())


def test_the_bound_of_training_is_the_bound_of_evaluation() -> None:
    layer = decoder(2, 5)
    x = rows(3, 5)
    model = vae.VAE(linear(5, 4, 1, 0.2), layer, likelihood=noise(), latent=2)
    losses = torch.stack([model.bound(x).loss.detach() for _ in range(200)])
    values = estimates(model.lower_bound, x, 4000).mean(1)
    error = (losses.var() / 200 + values.var() / 4000).sqrt()
    assert float((losses.mean() + values.mean()).abs()) < 5 * float(error)
    first = model.bound(x)
    torch.testing.assert_close(first.loss, first.reconstruction + first.divergence)
    weighted = model.bound(x, beta=0.25)
    torch.testing.assert_close(weighted.loss, weighted.reconstruction + 0.25 * weighted.divergence)


def test_the_gradient_is_that_of_the_exact_bound() -> None:
    """Of a linear Gaussian autoencoder: E |x - W z - b|^2 is |x - W m - b|^2 + sum_l v_l |W_l|^2."""
    layer = decoder(2, 3)
    x = rows(6, 3)
    model = vae.VAE(linear(3, 4, 1, 0.3), layer, likelihood=noise(), latent=2)
    mean, log_variance = model.encoder(x).chunk(2, -1)
    miss = (x - layer(mean)).square().sum(1) + log_variance.exp() @ layer.weight.square().sum(0)
    kl = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(1)
    exact = torch.autograd.grad((0.5 * miss / SIGMA**2 + kl).mean(), list(model.encoder.parameters()))
    found = []
    for _ in range(50):
        model.zero_grad()
        model.bound(x.repeat(40, 1)).loss.backward()
        found.append(torch.cat([p.grad.flatten() for p in model.encoder.parameters() if p.grad is not None]))
    grads = torch.stack(found)
    assert near(grads, torch.cat([g.flatten() for g in exact]))


def test_a_flow_leaves_the_likelihood_as_it_is() -> None:
    layer = decoder(2, 4)
    x = rows(3, 4)
    flow = vae.IAF(2, hidden=8, num_steps=3).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=seeded(3)))
    encoder = linear(4, 6, 1, 0.2)
    with torch.no_grad():
        encoder.bias[2:4] = 2.0  # wider than the true posterior: weights without heavy tails
    model = vae.VAE(encoder, layer, likelihood=noise(), latent=2, flow=flow)
    exact = exact_log_likelihood(layer, x)
    _is_unbiased(model, x, exact)
    assert bool((estimates(model.lower_bound, x, 400).mean(0) < exact).all())


def test_a_flow_knows_its_own_volume() -> None:
    flow = vae.IAF(4, hidden=12, num_steps=3).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.normal_()
    z, context = rows(1, 4), rows(1, 4, 2)
    slopes = torch.autograd.functional.jacobian(lambda one: flow(one, context)[0][0], z)[:, 0]
    torch.testing.assert_close(flow(z, context)[1], torch.linalg.slogdet(slopes).logabsdet.reshape(1))


def test_a_learned_prior_is_the_mixture_of_its_posteriors() -> None:
    """A mixture of Gaussians through a linear map is a mixture of Gaussians."""
    layer = decoder(2, 4)
    x = rows(3, 4)
    prior = vae.VampPrior(rows(3, 4, 20), low=-1.0, high=1.0)
    model = vae.VAE(linear(4, 4, 1, 0.4), layer, likelihood=noise(), latent=2, prior=prior)
    mean, log_variance = model.encoder(prior.inputs).chunk(2, -1)
    noise_cov = SIGMA**2 * torch.eye(4, dtype=torch.float64)
    parts = [
        torch.distributions.MultivariateNormal(
            layer(m), layer.weight @ v.exp().diag() @ layer.weight.T + noise_cov
        ).log_prob(x)
        for m, v in zip(mean, log_variance, strict=True)
    ]
    exact = torch.stack(parts).exp().mean(0).log().detach()
    _is_unbiased(model, x, exact)
    sampled = model.sample(20_000, mean=True, seed=1)
    moved = torch.stack([layer(m) for m in mean]).mean(0).detach()
    assert near(sampled, moved)
    assert float(prior.inputs.detach().abs().max()) <= 1


@pytest.mark.parametrize("kind", ["bernoulli", "multinomial"])
def test_the_likelihood_of_discrete_rows_is_that_of_quadrature(kind: str) -> None:
    x = torch.tensor([[1, 0, 1, 1], [0, 0, 1, 0]], dtype=torch.float64)
    likelihood: bd.Likelihood = bd.Bernoulli() if kind == "bernoulli" else bd.Multinomial()
    layer = linear(1, 4, 3)
    model = vae.VAE(linear(4, 2, 1, 0.2), layer, likelihood=likelihood, latent=1)
    grid = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    density = torch.exp(-0.5 * grid.square()) / (2 * torch.pi) ** 0.5 * (grid[1] - grid[0])
    output = layer(grid.unsqueeze(1))
    exact = []
    for row in x:
        log_prob = likelihood.log_prob(output, row.expand(4001, 4))
        log_prob = log_prob.sum(1) if log_prob.dim() > 1 else log_prob
        exact.append((density * log_prob.exp()).sum().log())
    _is_unbiased(model, x, torch.stack(exact).detach())


def test_the_target_may_differ_from_the_input() -> None:
    layer = decoder(2, 3)
    x, y = rows(4, 5), rows(4, 3, 1)
    model = vae.VAE(linear(5, 4, 1, 0.2), layer, likelihood=noise(), latent=2)
    exact = exact_log_likelihood(layer, y)
    found = model.log_likelihood(x.repeat(300, 1), y.repeat(300, 1), num_importance=50, batch_size=1200)
    assert near((found.view(300, 4) - exact).exp(), torch.ones(4, dtype=torch.float64))
    assert torch.isfinite(model.bound(x, y).loss)


def test_evaluation_leaves_no_trace_and_depends_on_the_seed_alone() -> None:
    model = vae.VAE(nn.Sequential(nn.Dropout(0.5), linear(5, 4, 1).float()), linear(2, 5, 2).float(),
                    likelihood=bd.Gaussian(1.0), latent=2)  # fmt: skip
    x = torch.randn(7, 5)
    state = torch.get_rng_state()
    found = [model.log_likelihood(x, num_importance=60, seed=3) for _ in range(2)]
    bounds = [model.lower_bound(x, num_samples=2, seed=3) for _ in range(2)]
    images = [model.reconstruct(x, num_draws=2), model.sample(3), model.reconstruct(x)]
    assert torch.equal(*found)
    assert torch.equal(*bounds)
    assert [tuple(one.shape) for one in images] == [(7, 5), (3, 5), (7, 5)]
    assert torch.equal(state, torch.get_rng_state())
    assert all(part.training for part in model.modules())
    assert not torch.equal(found[0], model.log_likelihood(x, num_importance=60, seed=4))


def test_the_mean_code_is_decoded_without_noise() -> None:
    layer = decoder(2, 5)
    model = vae.VAE(linear(5, 4, 1), layer, likelihood=noise(), latent=2)
    x = rows(4, 5)
    exact = layer(model.encoder(x)[:, :2]).detach()
    torch.testing.assert_close(model.reconstruct(x), exact)
    torch.testing.assert_close(model(x).detach(), exact)
    draws = model.reconstruct(x.repeat(400, 1), num_draws=1, batch_size=1600).view(400, 4, 5)
    assert near(draws, exact)


def test_fit_trains_it_and_keeps_a_history_of_both_terms() -> None:
    generator = seeded(0)
    z = torch.randn(600, 2, generator=generator)
    x = z @ torch.randn(2, 6, generator=generator) + 0.3 * torch.randn(600, 6, generator=generator)
    encoder = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    model = vae.VAE(encoder, nn.Linear(2, 6), likelihood=bd.Gaussian(), latent=2)
    before = float(model.lower_bound(x, num_samples=3).mean())
    history = bd.fit(model, (x, x), vae.NegativeBound(), epochs=40, lr=2e-2, validation=(x[:50], x[:50]))
    after = float(model.lower_bound(x, num_samples=3).mean())
    cov = torch.cov(x.T, correction=0)
    # No model with two directions and one noise can beat the likelihood's maximum, probabilistic PCA.
    values = torch.linalg.eigvalsh(cov).flip(0)
    rest = values[2:].mean()
    log_det = values[:2].log().sum() + 4 * rest.log()
    best = -0.5 * float(6 * torch.log(torch.tensor(2 * torch.pi)) + log_det + 6)
    assert before < after < best + 5 * 0.02
    assert after > best - 0.35
    assert history.nll[-1] + history.kl[-1] == pytest.approx(history.loss[-1], rel=1e-4)
    assert len(history.validation) == 40
    again = copy.deepcopy(model)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.lower_bound(x), model.lower_bound(x))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoder": nn.Linear(5, 3)}, "`encoder` must be a module that gives"),
        ({"likelihood": 3}, "`likelihood` must be a Likelihood"),
        ({"latent": 0}, "`latent` must be a positive int"),
        ({"prior": "normal"}, "`prior` must be a Prior"),
        ({"flow": "iaf"}, "`flow` must be an IAF"),
        ({"flow": vae.IAF(3)}, "`flow` must be for codes of 2 numbers"),
        ({"estimator": "best"}, "`estimator` must be one of"),
        ({"decoder": None}, "`decoder` must be an nn.Module"),
    ],
)
def test_bad_parts_are_refused(change: dict[str, object], words: str) -> None:
    given: dict[str, object] = {
        "encoder": nn.Linear(5, 4),
        "decoder": nn.Linear(2, 5),
        "likelihood": bd.Gaussian(1.0),
        "latent": 2,
    }
    with pytest.raises((ValueError, TypeError), match=words):
        vae.VAE(**{**given, **change}).bound(torch.zeros(3, 5))  # type: ignore[arg-type]


def test_bad_rows_are_refused() -> None:
    model = vae.VAE(nn.Linear(5, 4), nn.Linear(2, 5), likelihood=bd.Gaussian(1.0), latent=2)
    with pytest.raises(ValueError, match=r"`x` must be \(N, ...\)"):
        model.bound(torch.zeros(5))
    with pytest.raises(ValueError, match="`target` must be of 3 rows"):
        model.bound(torch.zeros(3, 5), torch.zeros(2, 5))
    with pytest.raises(ValueError, match="`beta` must be"):
        model.bound(torch.zeros(3, 5), beta=-1)
    with pytest.raises(ValueError, match="`num_importance` must be"):
        model.log_likelihood(torch.zeros(3, 5), num_importance=0)
    with pytest.raises(TypeError, match="`model` must be a VAE"):
        vae.NegativeBound()(nn.Linear(2, 2), torch.zeros(1, 2), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="`high` must be above low"):
        vae.VampPrior(torch.zeros(2, 3), low=1.0, high=0.0)
