"""The parts of the experiments on injected dropout and on its critics that are not the library's own."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.experiments.critics.off_data import INNER, OUTER, sample_rows
from bayesdrop.experiments.critics.two_kinds import blended, rank_correlation
from bayesdrop.experiments.injected.laplace import LastLayerLaplace
from bayesdrop.experiments.injected.report import make_claims
from bayesdrop.experiments.injected.tables import METRICS


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def summed_loss(likelihood: bd.Likelihood, features: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    return -likelihood.log_prob(features @ weights.T, y).sum()


def test_the_curvature_of_classes_is_the_hessian_of_the_loss() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    x, y = torch.randn(20, 3, dtype=torch.double), torch.randint(3, (20,))
    laplace = LastLayerLaplace(net, x, (x, y), bd.Categorical(), 10)
    features = laplace._features(x).detach()
    truth = torch.autograd.functional.hessian(
        lambda w: summed_loss(bd.Categorical(), features, y, w.reshape(3, 5)), laplace.mean.reshape(-1)
    )
    torch.testing.assert_close(laplace._curvature(features), truth)


def test_the_curvature_of_a_mean_and_a_log_variance_is_the_expected_hessian() -> None:
    """Over targets drawn from the network itself: the Fisher information, which has no mixed terms."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    x = torch.randn(5, 2, dtype=torch.double)
    likelihood = bd.HeteroscedasticGaussian()
    laplace = LastLayerLaplace(net, x, (x, x[:, :1]), likelihood, 10)
    features = laplace._features(x).detach()
    hessians = []
    for seed in range(100):
        y = likelihood.sample(features @ laplace.mean.T, seeded(seed))
        hessians.append(
            torch.autograd.functional.hessian(
                lambda w, y=y: summed_loss(likelihood, features, y, w.reshape(2, 4)), laplace.mean.reshape(-1)
            )
        )
    stacked = torch.stack(hessians)
    error = stacked.std(0) / len(stacked) ** 0.5
    mean, curvature = stacked.mean(0), laplace._curvature(features)
    truth = torch.block_diag(*curvature)
    assert ((mean - truth).abs() <= 5 * error + 1e-9).all()


def test_draws_of_the_last_layer_have_the_covariance_of_the_posterior() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    x = torch.randn(30, 2)
    num_draws = 4000
    laplace = LastLayerLaplace(net, x, (x, x[:, :1]), bd.HeteroscedasticGaussian(), num_draws)
    precision = laplace._curvature(laplace._features(x)) + laplace.precision * torch.eye(
        4, dtype=torch.double
    )
    for output, expected in enumerate(torch.linalg.inv(precision)):
        found = torch.cov(laplace._draws[:, output].T)
        assert (found - expected).abs().max() <= 5 * expected.diagonal().max() * (2 / num_draws) ** 0.5


def test_the_rank_correlation_is_that_of_scipy() -> None:
    a, b = torch.randn(200, generator=seeded(0)), torch.randn(200, generator=seeded(1))
    assert rank_correlation(a, a + b) == pytest.approx(spearmanr(a, a + b).statistic)


def test_blends_have_the_label_of_one_of_their_two_images() -> None:
    x, y = torch.eye(8).reshape(8, 1, 2, 4), torch.arange(8)
    made, labels = blended(x, y, seeded(0))
    assert (made.flatten(1).gather(1, labels.unsqueeze(1)) > 0).all()
    assert made.flatten(1).sum(1).tolist() == [1.0] * 8


def test_rows_of_the_curve_leave_the_gap_free() -> None:
    x, y = sample_rows(50, 3)
    assert x.shape == y.shape == (50, 1)
    assert float(x.abs().min()) >= INNER
    assert float(x.abs().max()) <= OUTER


def test_the_bars_are_those_of_the_claims() -> None:
    """Four of six tables must not fall, and none by more than a standard error."""

    class Config:
        tables = tuple("abcdef")
        images = ()

    def found(gains: dict[str, list[float]]) -> dict[str, list[dict[str, float]]]:
        made = {}
        for table, values in gains.items():
            made[table] = [
                {f"{method} | {METRICS[0]}": 0.0 for method in ("bare", "dropout, trained", "ensemble")}
                | {f"temperature | {METRICS[0]}": 0.0, f"last-layer Laplace | {METRICS[0]}": 0.0}
                | {f"injected | {METRICS[0]}": gain, "injected | train": 1.0, "bare | train": 2.0}
                for gain in values
            ]
        return made

    good = found({table: [0.1, 0.2, 0.15] for table in "abcdef"})
    assert [claim.holds for claim in make_claims(good, Config())][:2] == [True, True]
    some = found({table: [0.1, 0.2] if table in "abcd" else [-0.2, -0.21] for table in "abcdef"})
    assert [claim.holds for claim in make_claims(some, Config())][:2] == [True, False]
    few = found({table: [0.1, 0.2] if table in "abc" else [-0.2, -0.21] for table in "abcdef"})
    assert [claim.holds for claim in make_claims(few, Config())][:2] == [False, False]
