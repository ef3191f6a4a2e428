"""The covariance between outputs of a row: numpy.cov, all masks, and the same however it is gathered."""

from __future__ import annotations

import threading
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import BernoulliDropout, Prediction, predict
from bayesdrop.predict.statistics import RunningCovariance


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def diagonal(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=-2, dim2=-1)


def network(outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 16),
        nn.Tanh(),
        BernoulliDropout(nn.Linear(16, 16), p=0.3),
        nn.ReLU(),
        nn.Linear(16, outputs),
    ).double()


def test_it_is_numpy_cov_of_the_draws() -> None:
    draws = normal(50, 6, 3) + 1e6
    prediction = Prediction.from_draws(draws)
    for row in range(6):
        exact = np.cov(draws[:, row].numpy(), rowvar=False, bias=True)
        np.testing.assert_allclose(prediction.covariance[row].numpy(), exact, atol=1e-9)
    assert torch.equal(prediction.covariance, prediction.epistemic_covariance)


def test_the_noise_is_added_on_the_diagonal() -> None:
    draws = normal(40, 5, 4)
    centred = draws - draws.mean(0)
    spread = torch.einsum("tnd,tne->nde", centred, centred) / 40
    levels = torch.tensor([0.1, 0.2, 0.3, 0.4])
    fixed = Prediction.from_draws(draws, bd.Gaussian(levels))
    torch.testing.assert_close(fixed.covariance, spread + torch.diag(levels.double().square()))
    torch.testing.assert_close(diagonal(fixed.covariance), fixed.variance)
    varied = Prediction.from_draws(draws, bd.HeteroscedasticGaussian())
    assert varied.covariance.shape == (5, 2, 2)
    torch.testing.assert_close(varied.epistemic_covariance, spread[:, :2, :2])
    torch.testing.assert_close(diagonal(varied.covariance), varied.variance)
    answers = Prediction.from_draws(draws, bd.Bernoulli())
    probs = draws.sigmoid()
    torch.testing.assert_close(
        answers.epistemic_covariance[2],
        torch.from_numpy(np.cov(probs[:, 2].numpy(), rowvar=False, bias=True)),
    )
    torch.testing.assert_close(diagonal(answers.covariance), answers.variance)


def test_one_hot_labels_have_the_law_of_total_covariance() -> None:
    draws = 2 * normal(30, 5, 4)
    prediction = Prediction.from_draws(draws, bd.Categorical())
    probs = draws.softmax(-1)
    within = (torch.diag_embed(probs) - probs.unsqueeze(-1) * probs.unsqueeze(-2)).mean(0)
    torch.testing.assert_close(prediction.covariance, prediction.epistemic_covariance + within)
    torch.testing.assert_close(diagonal(prediction.covariance), prediction.variance)
    torch.testing.assert_close(diagonal(prediction.epistemic_covariance), prediction.epistemic)
    # A label is one class: the counts sum to 1, and do not vary.
    assert prediction.covariance.sum(-1).abs().max() < 1e-12


def test_it_is_the_sum_over_all_masks() -> None:
    layer = BernoulliDropout(nn.Linear(6, 3), p=0.4).double()
    x = normal(4, 6)
    masks = torch.tensor(list(product([0.0, 1.0], repeat=6)), dtype=torch.float64)
    weight = torch.where(masks > 0, 0.6, 0.4).double().prod(-1)
    with torch.no_grad():
        outputs = torch.stack([layer.layer(x * z / 0.6) for z in masks])
    centred = outputs - torch.einsum("m,mnd->nd", weight, outputs)
    products = centred.unsqueeze(-1) * centred.unsqueeze(-2)
    exact = torch.einsum("m,mnde->nde", weight, products)
    num_draws = 4000
    prediction = predict(layer, x, num_draws=num_draws, keep_draws=False, covariance=True)
    # The error of a mean of products, and the square of the mean's own error.
    spread = torch.einsum("m,mnde->nde", weight, (products - exact).square())
    own = diagonal(exact)
    bias = (own.unsqueeze(-1) * own.unsqueeze(-2)).sqrt() / num_draws
    error = (prediction.covariance - exact).abs()
    assert (error <= 5 * (spread / num_draws).sqrt() + 25 * bias).all()
    assert (error > 0).all()


@pytest.mark.parametrize("likelihood", [None, bd.Gaussian(0.3), bd.Categorical(), bd.Bernoulli()])
@pytest.mark.parametrize("options", [{}, {"batch_size": 3}, {"plan": "loop"}, {"max_memory": 1}])
def test_gathered_in_passing_it_is_that_of_kept_draws(
    likelihood: bd.Likelihood | None, options: dict[str, object]
) -> None:
    net, x = network(), normal(7, 4)
    kept = predict(net, x, num_draws=21, likelihood=likelihood)
    passing = predict(
        net, x, num_draws=21, likelihood=likelihood, keep_draws=False, covariance=True, **options
    )
    torch.testing.assert_close(passing.covariance, kept.covariance)
    torch.testing.assert_close(passing.epistemic_covariance, kept.epistemic_covariance)
    torch.testing.assert_close(diagonal(passing.covariance), passing.variance)
    torch.testing.assert_close(diagonal(passing.epistemic_covariance), passing.epistemic)


def test_draws_that_stop_early_have_it_too() -> None:
    net, x = network(), normal(9, 4)
    prediction = predict(
        net, x, num_draws=400, tolerance=0.1, batch_size=4, covariance=True, keep_draws=False
    )
    assert prediction.num_draws < 400
    torch.testing.assert_close(diagonal(prediction.covariance), prediction.variance)


def test_one_output_without_an_axis_has_one_number() -> None:
    draws = normal(20, 5)
    prediction = Prediction.from_draws(draws, bd.Gaussian(0.5))
    torch.testing.assert_close(prediction.covariance, prediction.variance.reshape(5, 1, 1))


def test_one_draw_has_no_covariance() -> None:
    for likelihood in (None, bd.Gaussian(0.1), bd.Categorical()):
        assert Prediction.from_draws(normal(1, 3, 2), likelihood).covariance.isnan().all()


def test_pixels_in_tiles_have_the_covariances_of_the_whole_image() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Dropout2d(0.3), nn.Conv2d(8, 5, 3, padding=1)
    )
    x = normal(2, 3, 40, 56).float()
    options = {"num_draws": 6, "likelihood": bd.Categorical(), "keep_draws": False, "covariance": True}
    whole = predict(net, x, **options)
    tiled = predict(net, x, tiles=(24, 32), overlap=16, **options)
    assert whole.covariance.shape == (2, 40, 56, 5, 5)
    torch.testing.assert_close(tiled.epistemic_covariance, whole.epistemic_covariance, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(diagonal(tiled.covariance).movedim(-1, 1), tiled.variance)


def test_threads_get_their_own() -> None:
    net, x = network(), normal(6, 4)
    options = {"num_draws": 30, "keep_draws": False, "covariance": True}
    exact = [predict(net, x, seed=seed, **options).covariance for seed in range(4)]
    seen: list[Tensor | None] = [None] * 4

    def run(seed: int) -> None:
        seen[seed] = predict(net, x, seed=seed, **options).covariance

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours, truth in zip(seen, exact, strict=True):
        assert ours is not None
        torch.testing.assert_close(ours, truth)


def test_memory_does_not_grow_with_the_draws() -> None:
    running = RunningCovariance()
    values = normal(500, 3, 8)
    for part in values.split(7):
        running.update_many(part)
        assert running.deviation.shape == (3, 8, 8)
    exact = np.stack([np.cov(values[:, row].numpy(), rowvar=False, bias=True) for row in range(3)])
    np.testing.assert_allclose(running.covariance.numpy(), exact, atol=1e-12)


def test_errors_say_how_to_have_it() -> None:
    net, x = network(), normal(6, 4)
    let_go = predict(net, x, num_draws=5, keep_draws=False)
    with pytest.raises(
        ValueError, match=r"not computed and the draws were not kept; call predict\(\.\.\., cov"
    ):
        _ = let_go.covariance
    with pytest.raises(ValueError, match="`covariance` must be False for method='moments'"):
        predict(net, x, method="moments", covariance=True)
    with pytest.raises(ValueError, match="moments are propagated output by output"):
        _ = predict(net, x, method="moments", likelihood=bd.Gaussian(0.1)).covariance
    maps = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Dropout(0.3))
    with pytest.raises(
        ValueError, match=r"predict: `covariance` must be of outputs \(N, D\), or of classes; got"
    ):
        predict(maps, torch.zeros(2, 3, 8, 8), covariance=True, num_draws=2)
    with pytest.raises(TypeError, match="`covariance` must be True or False"):
        predict(net, x, covariance="yes")


def test_a_joint_sample_is_one_function_at_all_rows() -> None:
    net, x = network(1), normal(5, 4)
    prediction = predict(net, x, num_draws=40)
    functions = {tuple(draw.flatten().tolist()) for draw in prediction.draws}
    for options in ({}, {"joint": True}):
        assert all(tuple(s.flatten().tolist()) in functions for s in prediction.sample(200, **options))
    apart = prediction.sample(200, joint=False)
    assert not all(tuple(s.flatten().tolist()) in functions for s in apart)
    column = {float(value) for value in prediction.draws[:, 2, 0]}
    assert {float(value) for value in apart[:, 2, 0]} <= column


def test_rows_of_joint_samples_covary_as_the_draws_do() -> None:
    net, x = network(1), normal(3, 4)
    prediction = predict(net, x, num_draws=60, likelihood=bd.Gaussian(0.2))
    draws = prediction.draws[..., 0]
    exact = np.cov(draws.numpy(), rowvar=False, bias=True) + 0.04 * np.eye(3)
    num = 20_000
    for joint, truth in ((True, exact), (False, np.diag(np.diag(exact)))):
        values = prediction.sample(num, joint=joint)[..., 0].numpy()
        centred = values - draws.mean(0).numpy()
        products = centred[:, :, None] * centred[:, None, :]
        error = products.std(0) / num**0.5
        assert (np.abs(products.mean(0) - truth) <= 5 * error).all()
    # Off the diagonal the two differ by more than both errors: the rows do move together.
    assert np.abs(exact - np.diag(np.diag(exact))).max() > 10 * error.max()


def test_joint_samples_need_functions() -> None:
    net, x = network(1), normal(3, 4)
    apart = predict(net, x, num_draws=5, draws="independent")
    assert apart.sample(2).shape == (2, 3, 1)
    with pytest.raises(ValueError, match="`joint` must be False or None for these draws; got True"):
        apart.sample(2, joint=True)
    with pytest.raises(ValueError, match="`joint` must be False or None for these draws; got True"):
        predict(net, x, method="moments").sample(2, joint=True)
    with pytest.raises(TypeError, match="`joint` must be True or False"):
        apart.sample(2, joint="yes")
