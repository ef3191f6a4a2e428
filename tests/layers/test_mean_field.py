"""Mean-field Gaussian weights: divergence by quadrature, moments in closed form, and what uses them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import MeanFieldGaussian
from bayesdrop.functional import gaussian_kl
from bayesdrop.functional.kl import mean_field_kl


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def spread(layer: nn.Module, **options: object) -> MeanFieldGaussian:
    """A layer in double precision whose widths all differ."""
    made = MeanFieldGaussian(layer, 0.3, **options).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in made.rate_parameters():
            parameter.add_(torch.randn(parameter.shape, generator=seeded(5), dtype=torch.float64) * 0.5)
    return made


def test_the_divergence_is_the_integral() -> None:
    layer = spread(nn.Linear(3, 2), length_scale=0.7, scale_by_fan_in=True)
    total = 0.0
    for mean, log_std, l in (
        (layer.layer.weight, layer.log_std, 0.7 * 3**0.5),
        (layer.layer.bias, layer.bias_log_std, 0.7),
    ):
        assert log_std is not None
        for m, s in zip(mean.flatten().tolist(), log_std.exp().flatten().tolist(), strict=True):
            q, prior = stats.norm(m, s), stats.norm(0, 1 / l)
            total += integrate.quad(
                lambda w, q=q, prior=prior: q.pdf(w) * (q.logpdf(w) - prior.logpdf(w)), m - 12 * s, m + 12 * s
            )[0]
    assert layer.kl().item() == pytest.approx(total, rel=1e-7)


def test_the_divergence_is_that_of_torch_and_survives_tiny_widths() -> None:
    mean = torch.randn(50, generator=seeded(0), dtype=torch.float64)
    log_std = torch.randn(50, generator=seeded(1), dtype=torch.float64)
    prior = torch.distributions.Normal(torch.zeros(()).double(), torch.tensor(1 / 0.3).double())
    truth = torch.distributions.kl_divergence(torch.distributions.Normal(mean, log_std.exp()), prior)
    torch.testing.assert_close(mean_field_kl(mean, log_std, 0.3), truth)
    torch.testing.assert_close(gaussian_kl(mean.square(), (2 * log_std).exp(), 0.3), truth)
    tiny = mean_field_kl(torch.zeros(()), torch.tensor(-80.0), 1e-15)
    assert tiny.item() == pytest.approx(80 + 15 * math.log(10) - 0.5)


def test_a_point_bias_has_no_divergence_and_no_noise() -> None:
    layer = spread(nn.Linear(3, 2), prior_on_bias=False, length_scale=0.7)
    assert layer.bias_log_std is None
    weights = gaussian_kl(layer.layer.weight.square(), (2 * layer.log_std).exp(), 0.7).sum()
    torch.testing.assert_close(layer.kl(), weights)
    with bd.FunctionDraw(layer.train(), seed=1):
        torch.testing.assert_close(layer(torch.zeros(4, 3).double()), layer.layer.bias.expand(4, 2))


LAYERS = {
    "linear": lambda: (nn.Linear(4, 3), (2, 4)),
    "linear, positions": lambda: (nn.Linear(4, 3), (2, 5, 4)),
    "conv1d": lambda: (nn.Conv1d(4, 2, 3, padding=1, stride=2), (2, 4, 5)),
    "conv2d": lambda: (nn.Conv2d(4, 2, 2, groups=2), (2, 4, 3, 3)),
    "conv3d": lambda: (nn.Conv3d(2, 2, 2, bias=False), (2, 2, 3, 3, 3)),
}


def exact_moments(layer: MeanFieldGaussian, x: Tensor) -> tuple[Tensor, Tensor]:
    """By unit vectors: an output is linear in every weight, so its variance is a sum over weights."""
    plain = layer.layer
    mean = plain(x)
    variance = torch.zeros_like(mean)
    with torch.no_grad():
        for parameter, log_std in ((plain.weight, layer.log_std), (plain.bias, layer.bias_log_std)):
            if parameter is None or log_std is None:
                continue
            for place, s in enumerate(log_std.exp().flatten().tolist()):
                before = parameter.flatten()[place].item()
                parameter.view(-1)[place] = before + s
                variance += (plain(x) - mean).square()
                parameter.view(-1)[place] = before
    return mean.detach(), variance


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("way", ["draws", "training", "training, weights a row"])
def test_outputs_have_the_two_moments_of_a_sum_over_weights(name: str, way: str) -> None:
    plain, shape = LAYERS[name]()
    layer = spread(plain, per_row=way == "training, weights a row")
    x = torch.randn(shape, generator=seeded(2), dtype=torch.float64)
    mean, variance = exact_moments(layer, x)
    count = 3000
    torch.manual_seed(4)
    with torch.no_grad():
        if way == "draws":
            draws = bd.predict(layer.eval(), x, num_draws=count, seed=3).draws
        else:
            draws = torch.stack([layer.train()(x) for _ in range(count)])
    # The outputs are Gaussian: the variance of a sample variance is 2 v^2 / T.
    assert ((draws.mean(0) - mean).abs() <= 5 * (variance / count).sqrt()).all()
    assert ((draws.var(0) - variance).abs() <= 5 * variance * math.sqrt(2 / count)).all()


def test_moments_in_closed_form_agree() -> None:
    layer = spread(nn.Linear(4, 3))
    x = torch.randn(6, 4, generator=seeded(2), dtype=torch.float64)
    mean, variance = exact_moments(layer, x)
    found = bd.predict(layer.eval(), x, method="moments")
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.epistemic, variance)


def test_convert_keeps_the_weights_as_means_and_the_rate() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
    x = torch.randn(5, 3, generator=seeded(0))
    new = bd.convert(net, "meanfield", length_scale=0.5)
    layer = new[3]
    assert isinstance(layer, MeanFieldGaussian)
    assert torch.equal(layer.layer.weight, net[3].weight)
    assert layer.p.item() == pytest.approx(0.2, rel=1e-5)
    torch.testing.assert_close(new.eval()(x), net.eval()(x))
    plain = bd.convert(new, "none")
    torch.testing.assert_close(plain(x), net(x))


def test_weights_of_zero_have_a_width_to_start_from() -> None:
    linear = nn.Linear(12, 2)
    nn.init.zeros_(linear.weight)
    layer = MeanFieldGaussian(linear, 0.5)
    torch.testing.assert_close(layer.log_std.exp(), torch.full((2, 12), 1 / 6))
    assert torch.isfinite(layer.kl())


def test_saved_audited_and_fitted_as_any_layer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    y = torch.sin(3 * x) + 0.1 * torch.randn(64, 1, generator=seeded(1))
    net = bd.convert(
        nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1)),
        "meanfield",
        where="weights",
        length_scale=1.0,
    )
    objective = bd.NegativeELBO(bd.Gaussian(0.3, noise="learned"), num_data=64)
    history = bd.fit(net, (x, y), objective, epochs=60, lr=1e-2, progress=False)
    assert set(history.rates) == {"0", "2"}
    assert history.loss[-1] < history.loss[0]
    kinds = ["MeanFieldGaussian.weight", "MeanFieldGaussian.bias"] * 2
    assert [site.kind for site in bd.audit(net, x).sites] == kinds
    bd.save(net, tmp_path / "net.bd")
    again = bd.load(tmp_path / "net.bd")
    first, second = (bd.predict(one, x, num_draws=20, seed=2).draws for one in (net, again))
    assert torch.equal(first, second)


def test_the_objective_is_stationary_at_the_posterior_of_a_linear_model() -> None:
    """One weight, known noise v: q is exact, N(m, 1 / (l^2 + sum x^2 / v)), where the gradient is zero."""
    x = torch.randn(40, 1, generator=seeded(0), dtype=torch.float64)
    y = 0.8 * x + 0.5 * torch.randn(40, 1, generator=seeded(1), dtype=torch.float64)
    layer = MeanFieldGaussian(nn.Linear(1, 1, bias=False), 0.01, length_scale=2.0).double().train()
    objective = bd.NegativeELBO(bd.Gaussian(0.5, noise="fixed"), num_data=40).double()
    precision = 4.0 + (x.square().sum() / 0.25).item()
    with torch.no_grad():
        layer.layer.weight.fill_((x * y).sum().item() / 0.25 / precision)
        layer.log_std.fill_(-0.5 * math.log(precision))
    torch.manual_seed(0)
    found = []
    for _ in range(200):
        layer.zero_grad()
        # Every row 50 times over: the mean over rows is the mean over noise, too.
        objective(layer, x.repeat(50, 1), y.repeat(50, 1)).loss.backward()
        found.append((layer.layer.weight.grad.item(), layer.log_std.grad.item()))
    gradients = np.array(found)
    assert (np.abs(gradients.mean(0)) <= 5 * gradients.std(0, ddof=1) / 200**0.5).all()
    # A tenth more width and it is not: the divergence falls slower than the fit.
    with torch.no_grad():
        layer.log_std.add_(0.1)
    layer.zero_grad()
    objective(layer, x.repeat(5000, 1), y.repeat(5000, 1)).loss.backward()
    assert layer.log_std.grad.item() > 0


def test_bad_arguments_are_refused() -> None:
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="MeanFieldGaussian: `p_init` must be in"):
            MeanFieldGaussian(nn.Linear(2, 2), bad)
    with pytest.raises(ValueError, match="`length_scale` must be a positive number"):
        MeanFieldGaussian(nn.Linear(2, 2), length_scale=0.0)
    with pytest.raises(TypeError, match=r"`layer` must be an nn.Linear"):
        MeanFieldGaussian(nn.ReLU())


def test_widths_follow_numpy_of_the_same_numbers() -> None:
    linear = nn.Linear(7, 3)
    layer = MeanFieldGaussian(linear, 0.25)
    weight = linear.weight.detach().numpy()
    np.testing.assert_allclose(
        layer.log_std.exp().detach().numpy(), np.sqrt((weight**2).mean() / 3), rtol=1e-5
    )
