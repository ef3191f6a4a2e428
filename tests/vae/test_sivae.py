"""SIVAE: the mixture over masks against all masks there are."""

from __future__ import annotations

import copy
from itertools import pairwise, product

import pytest
import torch
from tests.vae.linear_gaussian import decoder, estimates, exact_log_likelihood, linear, near, noise, rows
from torch import Tensor, nn
from torch.distributions import Normal

import bayesdrop as bd
from bayesdrop import vae

KINDS = ("learnable", "concrete", "gaussian", "fixed")
INPUTS = 3
MASKS = torch.tensor(list(product([0.0, 1.0], repeat=INPUTS)), dtype=torch.float64)


def _encoder() -> nn.Module:
    return nn.Sequential(linear(INPUTS, 4, 1), nn.Tanh(), linear(4, 2, 2, 0.5))


def _model(kind: str = "learnable", num_masks: int = 2, estimator: str = "disarm") -> vae.SIVAE:
    model = vae.SIVAE(
        _encoder(),
        decoder(1, INPUTS),
        likelihood=noise(),
        latent=1,
        num_inputs=INPUTS,
        num_masks=num_masks,
        noise=kind,  # type: ignore[arg-type]
        estimator=estimator,  # type: ignore[arg-type]
    ).double()
    if kind == "learnable":
        with torch.no_grad():
            next(model.noisy_encoder[0].noise.rate_parameters()).copy_(torch.tensor([0.4, -0.7, 1.0]))  # type: ignore[index, union-attr, operator]
    return model


def _all_codes(model: vae.SIVAE, x: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Chances (M,), and means and log-variances (M, N) of every mask."""
    p = torch.sigmoid(logits)
    chance = torch.where(MASKS == 1, 1 - p, p).prod(-1)
    code = model.encoder(x * (MASKS / (1 - p)).unsqueeze(1))
    return chance, code[..., 0], code[..., 1]


def _exact_loss(model: vae.SIVAE, x: Tensor, logits: Tensor) -> Tensor:
    """(N,) the loss of two masks: all pairs of them, and a grid for the code."""
    chance, mean, log_variance = _all_codes(model, x, logits)
    grid = torch.linspace(-8, 8, 1601, dtype=torch.float64)
    step = grid[1] - grid[0]
    q = Normal(mean.unsqueeze(-1), (0.5 * log_variance).exp().unsqueeze(-1)).log_prob(grid).exp()
    output = model.decoder(grid.unsqueeze(1))
    log_joint = torch.stack([model.likelihood.log_prob(output, row.expand(1601, INPUTS)) for row in x])
    log_joint = log_joint + Normal(0.0, 1.0).log_prob(grid)
    total = torch.zeros(len(x), dtype=torch.float64)
    for i, j in product(range(len(MASKS)), repeat=2):
        log_h = (0.5 * (q[i] + q[j])).clamp_min(1e-300).log()
        total = total + chance[i] * chance[j] * (q[i] * (log_h - log_joint)).sum(-1) * step
    return total


def test_the_bound_is_equation_six_over_all_pairs_of_masks() -> None:
    model, x = _model(), rows(3, INPUTS)
    logits = torch.logit(model.input_rates)  # type: ignore[arg-type]
    exact = _exact_loss(model, x, logits).detach()
    assert near(-estimates(model.lower_bound, x, 3000), exact)
    trained = torch.stack([model.bound(x.repeat(50, 1)).loss.detach() for _ in range(40)])
    assert near(trained, exact.mean())


@pytest.mark.parametrize("estimator", ["disarm", "arm"])
def test_the_gradient_of_the_rates_is_that_of_the_exact_bound(estimator: str) -> None:
    model, x = _model(estimator=estimator), rows(3, INPUTS)
    rate = next(model.noisy_encoder[0].noise.rate_parameters())  # type: ignore[index, union-attr, operator]
    logits = rate.detach().clone().requires_grad_()
    exact = torch.autograd.grad(_exact_loss(model, x, logits).mean(), logits)[0]
    found = []
    for _ in range(60):
        model.zero_grad()
        model.bound(x.repeat(60, 1)).loss.backward()
        assert rate.grad is not None
        found.append(rate.grad.clone())
    grads = torch.stack(found)
    error = grads.std(0) / len(found) ** 0.5
    assert near(grads, exact)
    assert float((exact.abs() / error).max()) > 5  # or the test says nothing


def test_the_implicit_density_is_the_mean_over_all_masks() -> None:
    model, x = _model(), rows(4, INPUTS)
    logits = torch.logit(model.input_rates)  # type: ignore[arg-type]
    chance, mean, log_variance = (one.detach() for one in _all_codes(model, x, logits))
    z = rows(4, 1, 3)
    density = Normal(mean, (0.5 * log_variance).exp()).log_prob(z[:, 0]).exp()
    exact = (chance.unsqueeze(1) * density).sum(0)
    found = model.log_posterior(z.repeat(500, 1), x.repeat(500, 1), num_masks=5).exp().view(500, 4)
    assert near(found, exact)


@pytest.mark.parametrize("kind", KINDS)
def test_importance_sampling_has_no_bias_whatever_the_masks(kind: str) -> None:
    model, x = _model(kind), rows(3, INPUTS)
    exact = exact_log_likelihood(model.decoder, x)  # type: ignore[arg-type]
    found = estimates(model.log_likelihood, x, 300, num_importance=60)
    assert near((found - exact).exp(), torch.ones_like(exact))
    assert bool((estimates(model.lower_bound, x, 1000).mean(0) < exact).all())


def test_more_masks_make_a_higher_bound() -> None:
    """By their divergence alone, as what is expected of log p(x | z) is the same for any number."""
    x = rows(3, INPUTS).repeat(500, 1)
    model = _model().eval()
    with torch.no_grad():
        model.encoder[2].bias[1] = -3.0  # type: ignore[index, union-attr]
        found = []
        for count in (1, 3, 20):
            noise = torch.randn(count, 1500, 1, dtype=torch.float64)
            found.append(model._mixture_terms(x, x, noise, count)[1])
    for few, many in pairwise(found):
        error = (few.var() / 1500 + many.var() / 1500).sqrt()
        assert float(few.mean() - many.mean()) > 5 * float(error)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_noise_is_trained_by_fit(kind: str) -> None:
    """Inputs that say nothing of the code are dropped more than those that do."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(400, 1, generator=generator)
    told = z + 0.1 * torch.randn(400, 3, generator=generator)
    junk = torch.randn(400, 3, generator=generator)
    x = torch.cat([told, junk], 1)
    encoder = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    model = vae.SIVAE(
        encoder,
        nn.Linear(1, 3),
        likelihood=bd.Gaussian(0.3),
        latent=1,
        num_inputs=6,
        noise=kind,  # type: ignore[arg-type]
    )
    bd.fit(model, (x, told), vae.NegativeBound(), epochs=25, lr=1e-2, batch_size=50)
    rates = model.input_rates
    assert rates is not None
    if kind == "fixed":
        assert float(rates) == 0.5
        return
    assert float(rates[:3].max()) < float(rates[3:].min())
    assert list(bd.rates(model)) == ["noisy_encoder.0.noise"]


def test_rows_of_any_shape_and_noise_of_ones_own() -> None:
    x = (torch.rand(5, 1, 4, 3) < 0.5).float()
    plain = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
    back = nn.Sequential(nn.Linear(2, 12), nn.Unflatten(1, (1, 4, 3)))
    options = {"likelihood": bd.Bernoulli(), "latent": 2}
    given = vae.SIVAE(plain, back, noise=bd.layers.BernoulliNoise(12, 0.3), **options)  # type: ignore[arg-type]
    assert given.reconstruct(x, num_draws=2).shape == x.shape
    assert given.input_rates is not None
    inner = nn.Sequential(nn.Flatten(), bd.LearnableDropout(nn.Linear(12, 4)))
    own = vae.SIVAE(inner, back, noise=None, **options)  # type: ignore[arg-type]
    own.bound(x).loss.backward()
    assert own.input_rates is None
    assert inner[1].logit_p.grad is not None
    assert float(inner[1].logit_p.grad.abs().max()) > 0


def test_a_copy_has_rates_of_its_own_and_files_keep_them() -> None:
    model, other = _model(), copy.deepcopy(_model())
    with torch.no_grad():
        next(other.noisy_encoder[0].noise.rate_parameters()).fill_(2.0)  # type: ignore[index, union-attr, operator]
    assert model.input_rates is not None
    assert other.input_rates is not None
    assert float(other.input_rates.min()) > 0.8 > float(model.input_rates.max())
    model.load_state_dict(other.state_dict())
    torch.testing.assert_close(model.input_rates, other.input_rates)


def test_masks_are_drawn_in_evaluation_and_by_the_seed() -> None:
    model, x = _model("fixed"), rows(3, INPUTS)
    model.eval()
    assert not torch.equal(model.bound(x).loss, model.bound(x).loss)
    z = rows(3, 1, 3)
    ask = {"num_masks": 2}
    assert torch.equal(model.log_posterior(z, x, **ask), model.log_posterior(z, x, **ask))
    assert not torch.equal(model.log_posterior(z, x, **ask), model.log_posterior(z, x, seed=1, **ask))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"noise": "strong"}, "`noise` must be one of"),
        ({"num_inputs": None}, "`num_inputs` must be given"),
        ({"num_masks": 0}, "`num_masks` must be a positive int"),
        ({"p": 1.0}, r"`p` must be in \(0, 1\)"),
        ({"temperature": 0}, "`temperature` must be"),
    ],
)
def test_bad_parts_are_refused(change: dict[str, object], words: str) -> None:
    given: dict[str, object] = {"likelihood": bd.Gaussian(1.0), "latent": 2, "num_inputs": 5}
    with pytest.raises(ValueError, match=words):
        vae.SIVAE(nn.Linear(5, 4), nn.Linear(2, 5), **{**given, **change})  # type: ignore[arg-type]


def test_codes_of_another_shape_have_no_density() -> None:
    model, x = _model(), rows(3, INPUTS)
    with pytest.raises(ValueError, match="`z` must be of shape"):
        model.log_posterior(rows(3, 2), x)
