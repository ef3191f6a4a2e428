"""softmax(tau f): by hand, through predict, learned, and as the temperature's inverse."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.calibration import TemperatureScaling


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("tau", [0.2, 1.0, 3.0])
def test_probabilities_are_exponentials_over_their_sum(tau: float) -> None:
    output, y = normal(5, 4), torch.tensor([0, 1, 2, 3, 1])
    likelihood = bd.Categorical(precision=tau)
    exact = []
    for row, label in zip(output.tolist(), y.tolist(), strict=True):
        total = math.fsum(math.exp(tau * value) for value in row)
        exact.append(math.log(math.exp(tau * row[label]) / total))
    torch.testing.assert_close(
        likelihood.log_prob(output, y), torch.tensor(exact, dtype=torch.float64), rtol=1e-6, atol=1e-7
    )
    mean, variance = likelihood.moments(output)
    torch.testing.assert_close(mean, (tau * output).softmax(-1), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(variance, mean * (1 - mean))


def test_a_precision_of_one_is_the_plain_softmax_without_state() -> None:
    plain = bd.Categorical()
    assert not plain.state_dict()
    assert not bd.Categorical(precision=1.0).state_dict()
    assert float(plain.precision) == 1.0
    assert repr(plain) == "Categorical()"
    assert repr(bd.Categorical(precision=2.0, ignore_index=7)) == "Categorical(precision=2, ignore_index=7)"
    fixed, learned = bd.Categorical(precision=2.0), bd.Categorical(precision=2.0, learn_precision=True)
    assert not list(fixed.parameters())
    assert list(fixed.state_dict()) == ["log_precision"]
    assert len(list(learned.parameters())) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_predictions_have_it_in_every_measure(keep: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(bd.BernoulliDropout(nn.Linear(4, 8), p=0.3), nn.ReLU(), nn.Linear(8, 3)).double()
    x, y, tau = normal(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]), 2.5
    likelihood = bd.Categorical(precision=tau)
    prediction = bd.predict(net, x, num_draws=30, likelihood=likelihood, keep_draws=keep)
    draws = bd.predict(net, x, num_draws=30).draws
    scaled = bd.Prediction.from_draws(draws * float(likelihood.precision), bd.Categorical())
    for name in ("probs", "variance", "entropy", "expected_entropy", "mutual_information", "covariance"):
        torch.testing.assert_close(getattr(prediction, name), getattr(scaled, name))
    torch.testing.assert_close(prediction.log_prob(y), scaled.log_prob(y))
    if keep:
        torch.testing.assert_close(prediction.joint_log_prob(y), scaled.joint_log_prob(y))
        assert torch.equal(prediction.draws, draws)
        assert torch.equal(prediction.sample(50), scaled.sample(50))


def test_output_of_is_the_inverse() -> None:
    likelihood = bd.Categorical(precision=4.0, class_axis=-1)
    log_probs = normal(3, 2, 5).log_softmax(-1)
    torch.testing.assert_close(likelihood.class_log_probs(likelihood.output_of(log_probs)), log_probs)


def test_it_is_the_inverse_of_a_temperature() -> None:
    """Learned on logits that are held, tau is 1 / c of the temperature found on the same rows."""
    logits = 3 * normal(500, 4)
    labels = torch.distributions.Categorical(logits=logits / 3).sample()
    scaling = TemperatureScaling().fit(bd.Prediction.from_draws(logits[None], bd.Categorical()), labels)
    likelihood = bd.Categorical(learn_precision=True).double()
    optimizer = torch.optim.LBFGS(likelihood.parameters(), max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -likelihood.log_prob(logits, labels).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert float(likelihood.precision.detach()) == pytest.approx(1 / scaling.temperature, rel=1e-3)
    applied = scaling.apply(bd.Prediction.from_draws(logits[None], bd.Categorical()))
    ours = bd.Prediction.from_draws(logits[None], likelihood)
    torch.testing.assert_close(ours.probs, applied.probs, rtol=1e-3, atol=1e-4)
    # Scaling what has a precision already comes to the same probabilities.
    soft = bd.Prediction.from_draws(logits[None], bd.Categorical(precision=0.1).double())
    again = TemperatureScaling().fit(soft, labels)
    assert again.temperature == pytest.approx(0.1 * scaling.temperature, rel=1e-3)
    torch.testing.assert_close(again.apply(soft).probs, applied.probs, rtol=1e-3, atol=1e-4)
    mean = TemperatureScaling(over="mean").fit(soft, labels)
    torch.testing.assert_close(mean.apply(soft).probs, applied.probs, rtol=1e-3, atol=1e-4)


def test_the_objective_learns_it_with_the_weights() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 3)
    labels = (x[:, 0] > 0).long()
    net = bd.models.mlp(3, 16, 2, p=0.05)
    objective = bd.NegativeELBO(bd.Categorical(learn_precision=True), num_data=200)
    before = copy.deepcopy(net)
    bd.fit(net, (x, labels), objective, epochs=15, seed=0)
    assert isinstance(objective.likelihood, bd.Categorical)
    assert abs(float(objective.likelihood.precision.detach()) - 1) > 5e-3
    assert any((a != b).any() for a, b in zip(net.parameters(), before.parameters(), strict=True))


def test_wrong_precisions_are_told() -> None:
    for wrong in (0.0, -1.0, math.inf, math.nan, "2", True):
        with pytest.raises(ValueError, match="Categorical: `precision` must be a positive number"):
            bd.Categorical(precision=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`learn_precision` must be True or False"):
        bd.Categorical(learn_precision="yes")  # type: ignore[arg-type]
