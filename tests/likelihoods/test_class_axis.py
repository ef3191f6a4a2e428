"""Classes of tokens: an output of three axes says nothing of where they are, and must be told."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import metrics
from bayesdrop.calibration import ConformalClassifier, TemperatureScaling


class Tagger(nn.Module):
    """Tokens in, a logit for every token and tag out: (N, L) -> (N, L, K)."""

    def __init__(self, tags: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(8, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.out(self.drop(self.embed(tokens)))
        return logits


def test_three_axes_must_be_told_where_the_classes_are() -> None:
    tokens, y = torch.randint(11, (4, 5)), torch.randint(3, (4, 5))
    want = r"Categorical: `class_axis` must be given .* got \(4, 5, 3\)\. .*class_axis=-1 .*class_axis=1 "
    with pytest.raises(ValueError, match=want):
        bd.predict(Tagger(), tokens, likelihood=bd.Categorical())
    with pytest.raises(ValueError, match=want):
        bd.Categorical().log_prob(Tagger()(tokens), y)
    # An output of five tokens and five tags fits either way, and softmax over tokens raised no error.
    with pytest.raises(ValueError, match="must be given"):
        bd.predict(Tagger(5), tokens, likelihood=bd.Categorical())
    with pytest.raises(ValueError, match="Multinomial: `class_axis` must be given"):
        bd.Multinomial().log_prob(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4))


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3, 2), (6, 4, 2, 2, 2)])
def test_other_outputs_have_their_classes_where_torch_has_them(shape: tuple[int, ...]) -> None:
    output, y = torch.randn(shape), torch.randint(4, (6, *shape[2:]))
    expected = -F.cross_entropy(output, y, reduction="none")
    torch.testing.assert_close(bd.Categorical().log_prob(output, y), expected)


def test_token_predictions_are_those_of_each_token_by_itself() -> None:
    """(N, L, K) with class_axis=-1, (N, K, L) with class_axis=1, and N L rows of (K,) all agree."""
    tokens, y = torch.randint(11, (6, 5)), torch.randint(3, (6, 5))
    last = bd.predict(
        Tagger(), tokens, num_draws=20, likelihood=bd.Categorical(class_axis=-1), keep_draws=True
    )
    assert last.probs.shape == (6, 5, 3)
    assert last.class_axis == 2
    torch.testing.assert_close(last.probs.sum(-1), torch.ones(6, 5))
    first = bd.Prediction.from_draws(last.draws.movedim(-1, 2), bd.Categorical(class_axis=1))
    flat = bd.Prediction.from_draws(last.draws.flatten(1, 2), bd.Categorical())
    assert first.probs.shape == (6, 3, 5)
    assert first.class_axis == 1
    torch.testing.assert_close(first.probs.movedim(1, -1), last.probs)
    for name in ("label", "entropy", "expected_entropy", "mutual_information", "variation_ratio"):
        value = getattr(flat, name).reshape(6, 5)
        torch.testing.assert_close(getattr(last, name), value)
        torch.testing.assert_close(getattr(first, name), value)
    for prediction in (last, first):
        torch.testing.assert_close(prediction.log_prob(y), flat.log_prob(y.flatten()).reshape(6, 5))
        torch.testing.assert_close(prediction.joint_log_prob(y), flat.joint_log_prob(y.flatten()))
        assert prediction.sample(2).shape == (2, 6, 5)
        for metric in (
            metrics.accuracy,
            metrics.brier,
            metrics.expected_calibration_error,
            metrics.class_calibration_error,
            metrics.mean_log_likelihood,
            metrics.area_under_risk_coverage,
        ):
            torch.testing.assert_close(metric(prediction, y), metric(flat, y.flatten()))
    void = y.clone()
    void[:, 3:] = -100
    expected = metrics.accuracy(flat, void.flatten(), ignore_index=-100)
    torch.testing.assert_close(metrics.accuracy(last, void, ignore_index=-100), expected)
    for over in ("draws", "mean"):
        scaling = TemperatureScaling(over).fit(last, y)  # type: ignore[arg-type]
        other = TemperatureScaling(over).fit(flat, y.flatten())  # type: ignore[arg-type]
        assert scaling.temperature == pytest.approx(other.temperature, rel=1e-4)
        torch.testing.assert_close(
            scaling.apply(last).probs.flatten(0, 1), other.apply(flat).probs, rtol=1e-4, atol=1e-5
        )
    assert ConformalClassifier(0.5).fit(last, y).sets(last).members.shape == (6, 5, 3)


def test_what_is_not_kept_is_scored_from_the_mean() -> None:
    tokens, y = torch.randint(11, (6, 5)), torch.randint(3, (6, 5))
    net = Tagger()
    likelihood = bd.Categorical(class_axis=-1)
    kept = bd.predict(net, tokens, num_draws=20, likelihood=likelihood, keep_draws=True)
    loose = bd.predict(net, tokens, num_draws=20, likelihood=likelihood, keep_draws=False, batch_size=4)
    torch.testing.assert_close(loose.log_prob(y), kept.log_prob(y), rtol=1e-4, atol=1e-5)


def test_tokens_are_trained_by_the_same_objective() -> None:
    tokens = torch.randint(11, (40, 5))
    y = tokens % 3
    net = nn.Sequential(
        nn.Embedding(11, 16), bd.BernoulliDropout(nn.Linear(16, 16), p=0.1), nn.ReLU(), nn.Linear(16, 3)
    )
    objective = bd.NegativeELBO(bd.Categorical(class_axis=-1), num_data=40)
    net.eval()
    expected = F.cross_entropy(net(tokens).movedim(-1, 1), y, reduction="none").sum(1).mean()
    torch.testing.assert_close(objective(net, tokens, y).nll, expected)
    bd.fit(net, (tokens, y), objective, epochs=60, lr=1e-2, batch_size=20)
    prediction = bd.predict(net, tokens, num_draws=20, likelihood=bd.Categorical(class_axis=-1))
    assert float(metrics.accuracy(prediction, y)) > 0.95
