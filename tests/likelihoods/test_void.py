"""Void labels: they train nothing, score nothing, and are counted nowhere."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bayesdrop as bd
from bayesdrop import Categorical, NegativeELBO
from bayesdrop.metrics import accuracy, joint_log_likelihood, mean_log_likelihood

VOID = 255


def images(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 2, 5, 6, generator=generator)
    y = torch.randint(0, 3, (4, 5, 6), generator=generator)
    y[torch.rand(y.shape, generator=generator) < 0.3] = VOID
    return x, y


def network() -> nn.Module:
    return nn.Sequential(bd.BernoulliDropout(nn.Conv2d(2, 3, 3, padding=1), 0.3))


def test_the_log_probability_is_torchs_cross_entropy_and_nothing_at_a_void_label() -> None:
    _, y = images()
    output = torch.randn(4, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    found = Categorical(ignore_index=VOID).log_prob(output, y)
    expected = -F.cross_entropy(output, y, ignore_index=VOID, reduction="none")
    torch.testing.assert_close(found, expected)
    assert (found[y == VOID] == 0).all()
    found.sum().backward()
    assert output.grad is not None
    assert (output.grad.movedim(1, -1)[y == VOID] == 0).all()
    assert torch.equal(Categorical(ignore_index=VOID).counts(y), y != VOID)
    assert bool(Categorical().counts(y).all())


def test_an_output_that_is_not_finite_at_a_void_label_spoils_no_gradient() -> None:
    output = torch.zeros(2, 3, requires_grad=True)
    infinite = output + torch.tensor([[0.0], [math.nan]])
    Categorical(ignore_index=VOID).log_prob(infinite, torch.tensor([1, VOID])).sum().backward()
    assert output.grad is not None
    assert torch.isfinite(output.grad[0]).all()


def test_the_bound_sums_over_labelled_pixels_and_divides_by_images() -> None:
    x, y = images()
    model = network().eval()
    terms = NegativeELBO(Categorical(ignore_index=VOID), num_data=100)(model, x, y)
    expected = F.cross_entropy(model(x), y, ignore_index=VOID, reduction="sum") / 4
    torch.testing.assert_close(terms.nll, expected)
    torch.testing.assert_close(terms.kl, bd.total_kl(model) / 100)
    # What the net says of void pixels does not matter, and neither does which label stands for void.
    other = torch.where(y == VOID, -7, y)
    again = NegativeELBO(Categorical(ignore_index=-7), num_data=100)(model, x, other)
    torch.testing.assert_close(again.nll, terms.nll)


@pytest.mark.parametrize("keep", [True, False])
def test_scores_of_a_prediction_count_labelled_pixels_alone(keep: bool) -> None:
    x, y = images()
    likelihood = Categorical(ignore_index=VOID)
    prediction = bd.predict(
        network(), x, num_draws=7, likelihood=likelihood, keep_draws=keep, targets=y, batch_size=3
    )
    counted = y != VOID
    log_prob = prediction.log_prob(y)
    assert (log_prob[~counted].abs() < 1e-6).all()
    torch.testing.assert_close(mean_log_likelihood(prediction, y), log_prob[counted].mean())
    torch.testing.assert_close(
        mean_log_likelihood(prediction, y), mean_log_likelihood(prediction, y, ignore_index=VOID)
    )
    joint = prediction.joint_log_prob(y) / counted.sum()
    torch.testing.assert_close(joint_log_likelihood(prediction, y), joint)
    right = (prediction.label == y)[counted].float().mean()
    torch.testing.assert_close(accuracy(prediction, y), right, check_dtype=False)


def test_it_trains_in_fit_and_goes_through_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    x, y = images()
    objective = NegativeELBO(Categorical(ignore_index=VOID), num_data=4)
    history = bd.fit(network(), (x, y), objective, epochs=2, batch_size=2)
    assert all(map(math.isfinite, history.loss))
    bd.save(objective, tmp_path / "objective.safetensors")
    loaded = bd.load(tmp_path / "objective.safetensors")
    assert loaded.likelihood.ignore_index == VOID  # type: ignore[union-attr]
    assert repr(loaded.likelihood) == "Categorical(ignore_index=255)"


def test_labels_that_are_neither_classes_nor_void_are_refused() -> None:
    output = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"in 0 to 2, .*, or 255, which is void; got 1 to 9"):
        Categorical(ignore_index=VOID).log_prob(output, torch.tensor([1, 9]))
    with pytest.raises(ValueError, match=r"Categorical\(ignore_index=\.\.\.\) is for void labels"):
        Categorical().log_prob(output, torch.tensor([1, VOID]))
    with pytest.raises(ValueError, match="Categorical: `ignore_index` must be an int"):
        Categorical(ignore_index=0.5)  # type: ignore[arg-type]
    assert Categorical(ignore_index=VOID).log_prob(output, torch.tensor([VOID, VOID])).sum() == 0
