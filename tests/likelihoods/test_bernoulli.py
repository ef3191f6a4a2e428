"""Bernoulli: against torch, against all masks of a small network, and against two logits of a Categorical."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from sklearn import metrics as sk
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import acquire, metrics
from bayesdrop.calibration import ConformalClassifier, TemperatureScaling, coverage_law
from bayesdrop.predict.statistics import DrawStatistics, Statistics

SHAPES = [(6,), (6, 1), (6, 3), (6, 3, 2)]


def example(*shape: int, draws: int = 9, seed: int = 0) -> tuple[bd.Prediction, bd.Prediction, Tensor]:
    """The same distribution twice, from one logit and from two, and labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(draws, *shape, generator=generator, dtype=torch.float64)
    two = torch.stack((torch.zeros_like(logits), logits), -1)
    y = torch.bernoulli(torch.sigmoid(logits.mean(0)), generator=generator).long()
    pair = bd.Prediction.from_draws(two, bd.Categorical(class_axis=-1))
    return bd.Prediction.from_draws(logits, bd.Bernoulli()), pair, y


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.long, torch.bool])
def test_log_prob_is_the_binary_cross_entropy(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    output = 3 * torch.randn(shape, dtype=torch.float64)
    y = torch.randint(2, shape)
    expected = -F.binary_cross_entropy_with_logits(output, y.double(), reduction="none")
    torch.testing.assert_close(bd.Bernoulli().log_prob(output, y.to(dtype)), expected)


def test_moments_and_samples() -> None:
    output = torch.randn(5, 3, dtype=torch.float64)
    mean, variance = bd.Bernoulli().moments(output)
    torch.testing.assert_close(mean, output.sigmoid())
    torch.testing.assert_close(variance, torch.distributions.Bernoulli(logits=output).variance)
    generator = torch.Generator().manual_seed(0)
    sample = torch.stack([bd.Bernoulli().sample(output, generator) for _ in range(4000)])
    assert set(sample.unique().tolist()) == {0, 1}
    assert ((sample.double().mean(0) - mean).abs() <= 5 * (variance / 4000).sqrt()).all()
    prediction = bd.Prediction.from_draws(output.unsqueeze(0), bd.Bernoulli())
    assert prediction.sample(7).shape == (7, 5, 3)
    with pytest.raises(TypeError, match="a Bernoulli has classes, not quantiles"):
        prediction.quantile(0.5)


@pytest.mark.parametrize("shape", SHAPES)
def test_one_logit_says_what_two_say(shape: tuple[int, ...]) -> None:
    one, two, y = example(*shape)
    assert one.probs.shape == one.label.shape == one.entropy.shape == shape
    torch.testing.assert_close(one.probs, two.probs[..., 1])
    torch.testing.assert_close(one.class_probs, two.class_probs)
    torch.testing.assert_close(one.epistemic, two.epistemic[..., 1])
    torch.testing.assert_close(one.aleatoric, two.aleatoric[..., 1])
    assert torch.equal(one.label, two.label)
    for name in ("entropy", "expected_entropy", "mutual_information", "variation_ratio"):
        torch.testing.assert_close(getattr(one, name), getattr(two, name))
    torch.testing.assert_close(one.log_prob(y), two.log_prob(y))
    torch.testing.assert_close(one.joint_log_prob(y), two.joint_log_prob(y))
    for metric in (
        metrics.accuracy,
        metrics.brier,
        metrics.expected_calibration_error,
        metrics.rms_calibration_error,
        metrics.class_calibration_error,
        metrics.mean_log_likelihood,
        metrics.joint_log_likelihood,
        metrics.area_under_risk_coverage,
    ):
        torch.testing.assert_close(metric(one, y), metric(two, y))
        torch.testing.assert_close(metric(one, y.double()), metric(two, y))
    for score in (acquire.entropy, acquire.bald, acquire.variation_ratio):
        torch.testing.assert_close(score(one), score(two))
    void = y.clone()
    void[0] = -1
    torch.testing.assert_close(
        metrics.mean_log_likelihood(one, void, ignore_index=-1),
        metrics.mean_log_likelihood(two, void, ignore_index=-1),
    )


def test_predictions_of_a_network_are_the_sums_over_all_masks() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.4), nn.Linear(4, 2)).double().eval()
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randint(2, (6, 2))
    hidden = net[:2](x)
    masks = torch.tensor(list(product([0.0, 1.0], repeat=4)), dtype=torch.float64)
    weights = (0.6**masks * 0.4 ** (1 - masks)).prod(-1)
    probs = torch.stack([net[3](hidden * mask / 0.6).sigmoid() for mask in masks])
    weight = weights[:, None, None]
    mean = (weight * probs).sum(0)
    spread = (weight * (probs - mean).square()).sum(0)
    noise = (weight * probs * (1 - probs)).sum(0)
    entropy = torch.distributions.Bernoulli(probs=mean).entropy()
    inner = (weight * torch.distributions.Bernoulli(probs=probs).entropy()).sum(0)
    num_draws = 4000
    found = bd.predict(net, x, num_draws=num_draws, likelihood=bd.Bernoulli(), keep_draws=True)
    error = 5 * (spread / num_draws).sqrt() + 1e-12
    assert ((found.probs - mean).abs() <= error).all()
    own = found.draws.sigmoid()
    entropies = torch.distributions.Bernoulli(probs=own).entropy()
    assert ((found.aleatoric - noise).abs() <= 5 * (own * (1 - own)).std(0) / num_draws**0.5).all()
    assert ((found.expected_entropy - inner).abs() <= 5 * entropies.std(0) / num_draws**0.5).all()
    slope = (mean / (1 - mean)).log().abs()
    assert ((found.entropy - entropy).abs() <= slope * error + error**2 / (mean * (1 - mean))).all()
    torch.testing.assert_close(found.mutual_information, found.entropy - found.expected_entropy)
    squares = (own - own.mean(0)).square()
    assert ((found.epistemic - spread).abs() <= 5 * squares.std(0) / num_draws**0.5).all()
    votes = (weight * (probs > 0.5)).sum(0)
    ratio = torch.minimum(votes, 1 - votes)
    error = 5 * (ratio * (1 - ratio) / num_draws).sqrt() + 1e-9
    assert ((found.variation_ratio - ratio).abs() <= error).all()
    chance = (weight * torch.where(y == 1, probs, 1 - probs)).sum(0)
    assert ((found.log_prob(y).exp() - chance).abs() <= 5 * (spread / num_draws).sqrt() + 1e-12).all()


def test_what_is_not_kept_is_scored_without_rounding_small_chances_to_nothing() -> None:
    """P(y = 0) = exp(-30) is no multiple of the float32 next to 1."""
    logits = torch.full((4, 2, 1), 30.0)
    kept = bd.Prediction.from_draws(logits, bd.Bernoulli())
    passing = bd.Prediction.from_statistics(
        _statistics(logits), bd.Bernoulli(), shared=True, plan="", draws=None
    )
    y = torch.zeros(2, 1)
    torch.testing.assert_close(passing.log_prob(y), torch.full((2, 1), -30.0))
    torch.testing.assert_close(kept.log_prob(y), passing.log_prob(y))
    torch.testing.assert_close(passing.class_probs.log(), torch.tensor([-30.0, 0.0]).expand(2, 1, 2))


def _statistics(logits: Tensor) -> Statistics:
    parts = []
    for rows in (logits[:, :1], logits[:, 1:]):
        running = DrawStatistics(bd.Bernoulli())
        running.update_many(rows)
        parts.append(running.result())
    return Statistics.concatenate(parts)


def test_metrics_are_scikit_learns() -> None:
    prediction, _, y = example(400, draws=20)
    probs, labels = prediction.probs.numpy(), y.numpy()
    assert float(metrics.accuracy(prediction, y)) == pytest.approx(sk.accuracy_score(labels, probs > 0.5))
    # The score over both classes, which is twice that of the positive one.
    assert float(metrics.brier(prediction, y)) == pytest.approx(2 * sk.brier_score_loss(labels, probs))
    assert float(metrics.mean_log_likelihood(prediction, y)) == pytest.approx(-sk.log_loss(labels, probs))
    wrong = (probs > 0.5) != labels
    assert float(metrics.misclassification_auroc(prediction, y)) == pytest.approx(
        sk.roc_auc_score(wrong, prediction.entropy.numpy())
    )
    flat, y = example(50, 4, seed=1)[::2]
    assert float(metrics.accuracy(flat, y)) == pytest.approx(
        1 - sk.hamming_loss(y.numpy(), flat.label.numpy())
    )


def test_batch_bald_takes_one_yes_or_no_a_row() -> None:
    one, two, _ = example(12, 1)
    rows = acquire.batch_bald(one, 4)
    flat = bd.Prediction.from_draws(two.draws.squeeze(2), bd.Categorical())
    same = acquire.batch_bald(flat, 4)
    assert torch.equal(rows.rows, same.rows)
    torch.testing.assert_close(rows.gains, same.gains)
    with pytest.raises(ValueError, match="of one label a row"):
        acquire.batch_bald(example(12, 3)[0], 4)


@pytest.mark.parametrize("over", ["draws", "mean"])
def test_the_temperature_is_that_of_two_logits(over: str) -> None:
    one, two, y = example(200, 2, draws=5)
    scaling = TemperatureScaling(over).fit(one, y)  # type: ignore[arg-type]
    other = TemperatureScaling(over).fit(two, y)  # type: ignore[arg-type]
    assert scaling.temperature == pytest.approx(other.temperature, rel=1e-4)
    torch.testing.assert_close(scaling.apply(one).probs, scaling.apply(two).probs[..., 1])


def test_conformal_sets_cover_every_output_as_their_law_says() -> None:
    repeats, calibration, test, level = 200, 60, 100, 0.8
    law = coverage_law(calibration, level)
    covered = []
    for repeat in range(repeats):
        generator = torch.Generator().manual_seed(repeat)
        logits = 2 * torch.randn(1, calibration + test, 2, generator=generator, dtype=torch.float64)
        y = torch.bernoulli(logits[0].sigmoid(), generator=generator)
        wrong = torch.tensor([4.0, 0.3]) * logits  # too sure of one output, too shy of the other
        seen, new = (
            bd.Prediction.from_draws(wrong[:, rows], bd.Bernoulli())
            for rows in (slice(calibration), slice(calibration, None))
        )
        sets = ConformalClassifier(level).fit(seen, y[:calibration]).sets(new)
        assert sets.members.shape == (test, 2, 2)
        covered.append(sets.covers(y[calibration:]).sum(0).double())
    exact = stats.betabinom(test, law.a, law.b)
    mean = torch.stack(covered).mean(0)
    assert ((mean - exact.mean()).abs() <= 5 * exact.std() / repeats**0.5).all()


def test_it_is_trained_and_saved(tmp_path: Path) -> None:
    x = torch.randn(300, 2)
    y = torch.stack((x[:, 0] > 0, x[:, 1] > x[:, 0]), 1).float()
    net = nn.Sequential(bd.BernoulliDropout(nn.Linear(2, 32), p=0.05), nn.ReLU(), nn.Linear(32, 2))
    objective = bd.NegativeELBO(bd.Bernoulli(), num_data=300)
    net.eval()
    expected = F.binary_cross_entropy_with_logits(net(x), y, reduction="none").sum(1).mean()
    torch.testing.assert_close(objective(net, x, y).nll, expected)
    bd.fit(net, (x, y), objective, epochs=60, lr=1e-2, batch_size=50)
    prediction = bd.predict(net, x, num_draws=30, likelihood=bd.Bernoulli())
    assert float(metrics.accuracy(prediction, y)) > 0.95
    bd.save(bd.Bernoulli(), tmp_path / "likelihood")
    assert isinstance(bd.load(tmp_path / "likelihood"), bd.Bernoulli)
    bd.save(bd.Categorical(class_axis=-1), tmp_path / "tokens")
    assert bd.load(tmp_path / "tokens").class_axis == -1  # type: ignore[union-attr]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(5, 1\); got \(5,\)\. Pass y.unsqueeze\(-1\)"):
        bd.Bernoulli().log_prob(torch.zeros(5, 1), torch.zeros(5))
    with pytest.raises(ValueError, match=r"Categorical\(\) is for labels that exclude each other"):
        bd.Bernoulli().log_prob(torch.zeros(5, 3), torch.zeros(5))
    with pytest.raises(ValueError, match=r"`y` must be 0 or 1; got 0\.5"):
        bd.Bernoulli().log_prob(torch.zeros(2), torch.tensor([0.5, 1.0]))
    with pytest.raises(ValueError, match="`y` must be 0 or 1; got nan"):
        bd.Bernoulli().log_prob(torch.zeros(1), torch.tensor([float("nan")]))
    with pytest.raises(TypeError, match="Bernoulli: `y` must be a tensor; got list"):
        bd.Bernoulli().log_prob(torch.zeros(2), [0, 1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="of floating numbers"):
        bd.Bernoulli().log_prob(torch.zeros(2, dtype=torch.long), torch.zeros(2))
    with pytest.raises(TypeError, match="integer labels"):
        metrics.accuracy(example(6)[0], torch.full((6,), 0.5))
    with pytest.raises(AttributeError, match="a Bernoulli has no class axis"):
        _ = example(6)[0].class_axis
    with pytest.raises(ValueError, match=r"at least 2 classes; got \(5, 1\)\. .*Bernoulli\(\)"):
        bd.Categorical().log_prob(torch.zeros(5, 1), torch.zeros(5, dtype=torch.long))
    with pytest.raises(ValueError, match=r"Categorical: .*at least 2 classes; got \(5, 1\)"):
        bd.predict(
            nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 1)), torch.randn(5, 2), likelihood=bd.Categorical()
        )
