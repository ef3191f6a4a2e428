"""Networks of a stack are what they would be alone, and what plain PyTorch makes of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

import bayesdrop as bd
from bayesdrop.functional import products
from bayesdrop.stacked import Job, Settings, Trained, draw_outputs, export, likelihood_of, score, train
from bayesdrop.stacked.parameters import learning_rates
from bayesdrop.stacked.scores import PRIOR_RATE, PRIOR_SHAPE
from bayesdrop.stacked.settings import Method
from bayesdrop.stacked.stack import noise_shapes
from bayesdrop.stacked.streams import NoiseStreams, RowStream
from bayesdrop.stacked.train import plan_stacks, train_stack

METHODS = get_args(Method)


def table(rows: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=source, dtype=torch.float64)
    y = torch.sin(x[:, :1]) + 0.3 * torch.randn(rows, 1, generator=source, dtype=torch.float64)
    return x.to(dtype), y.to(dtype)


def settings(**options: Any) -> Settings:
    return Settings(**{"hidden": (7, 5), "batch_size": 16, "epochs": 6, "p": 0.1, "input_p": 0.05, **options})


def assert_same(first: Trained, second: Trained, tolerance: float = 1e-8) -> None:
    for one, other in zip(
        [*first.weights, *first.biases, *first.p], [*second.weights, *second.biases, *second.p], strict=True
    ):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
    for one, other in zip([*first.stds, *first.bias_stds], [*second.stds, *second.bias_stds], strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
    if first.log_noise_std is not None and second.log_noise_std is not None:
        torch.testing.assert_close(first.log_noise_std, second.log_noise_std, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("noise", ["fixed", "map", "learned", "heteroscedastic"])
@pytest.mark.parametrize("method", METHODS)
def test_a_network_does_not_depend_on_its_neighbours(method: str, noise: str) -> None:
    x, y = table(50)
    other_x, other_y = table(33, seed=1)
    one = settings(method=method, noise=noise, check_every=2)
    jobs = [
        Job(other_x, other_y, replace(one, p=0.3, lr=3e-3, epochs=3), seed=1),
        Job(x, y, one, seed=7),
        Job(other_x, other_y, replace(one, length_scale=1.0, schedule="constant"), seed=7),
        Job(x, y, replace(one, clip_norm=0.5), seed=2, rows=torch.arange(0, 50, 2)),
    ]
    together = train_stack(jobs)
    for place in (0, 1, 2):
        assert_same(together[place], train_stack([jobs[place]])[0])
    assert together[1].history["epoch"] == [2, 4, 6]


@pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch has no oneDNN here")
@pytest.mark.parametrize("method", ["bernoulli", "dropconnect", "meanfield"])
def test_a_wide_network_is_the_same_by_either_kernel(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = table(300, dtype=torch.float32)
    wide = settings(method=method, hidden=(160, 160), batch_size=150, epochs=3, lr=1e-3, input_p=0.0)

    calls: list[int] = []
    product = products._product
    monkeypatch.setattr(products, "_product", lambda *args: (calls.append(1), product(*args))[1])

    def trained(onednn: bool) -> list[Trained]:
        monkeypatch.setattr(products, "ONEDNN", onednn)
        calls.clear()
        found = train([Job(x, y, wide, seed=seed) for seed in (0, 1)])
        assert bool(calls) == onednn
        return found

    for one, other in zip(trained(True), trained(False), strict=True):
        # Adam divides by the size of gradients: roundings of tiny ones move a weight by parts of a step.
        assert_same(one, other, tolerance=1e-3)


def test_the_order_of_jobs_and_the_number_of_processes_change_nothing() -> None:
    x, y = table(60, dtype=torch.float32)
    jobs = [Job(x, y, settings(hidden=hidden), seed=seed) for hidden in ((7, 5), (4,)) for seed in range(3)]
    here = train(jobs)
    there = train(jobs[::-1], processes=2)[::-1]
    for one, other in zip(here, there, strict=True):
        assert_same(one, other, 1e-4)
    assert [one.seed for one in here] == [0, 1, 2, 0, 1, 2]


def test_training_is_adam_on_the_negative_elbo(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = table(40)
    one = settings(p=0.2, length_scale=0.8, noise="learned", epochs=4)
    found = train_stack([Job(x, y, one, seed=3)])[0]
    # The first weights, without a step: a learning rate of next to nothing.
    start = train_stack([Job(x, y, replace(one, lr=1e-300, epochs=1), seed=3)])[0]
    model = export(start).train()
    objective = bd.NegativeELBO(likelihood_of(start), num_data=40).double()
    optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=1.0)
    rows = RowStream(3, np.arange(40))
    noise = NoiseStreams([3], noise_shapes(one, start.widths), normal=False)
    total = 4 * 3
    for step in range(total):
        noise.make(1)
        for layer, p, words in zip(model[::2], one.rates, noise.of_step(0), strict=True):
            assert words is not None
            keep = (words[0] >= round(p * 2**16) - 2**15).double() / (1 - p)
            monkeypatch.setattr(layer, "noise_for", lambda *_args, value=keep: value)
        batch = torch.from_numpy(rows.take(16))
        optimizer.param_groups[0]["lr"] = float(learning_rates(one, step, 1, total)[0])
        optimizer.zero_grad()
        objective(model, x[batch], y[batch]).loss.backward()
        optimizer.step()
    for layer, weight, bias in zip(model[::2], found.weights, found.biases, strict=True):
        torch.testing.assert_close(layer.layer.weight.detach(), weight.T, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(layer.layer.bias.detach(), bias, rtol=1e-7, atol=1e-8)
    assert found.log_noise_std is not None
    expected = objective.likelihood.log_noise_std.detach().reshape(-1)
    torch.testing.assert_close(found.log_noise_std, expected, rtol=1e-7, atol=1e-7)


def test_first_weights_are_those_of_the_kind_that_was_asked_for() -> None:
    x, y = table(40)
    nearly = settings(hidden=(400,), lr=1e-12, epochs=1, rate_lr=1e-12)
    for kind, bounds in {
        "linear": (3**-0.5, 400**-0.5),
        "glorot": ((6 / 403) ** 0.5, (6 / 402) ** 0.5),
    }.items():
        found = train([Job(x, y, replace(nearly, first_weights=kind))])[0]
        for weight, bias, bound in zip(found.weights, found.biases, bounds, strict=True):
            assert 0.95 * bound < weight.abs().max() <= bound + 1e-6
            assert abs(weight.std() / (bound / 3**0.5) - 1) < 5 / (2 * weight.numel()) ** 0.5
            assert bias.abs().max() < 1e-6 if kind == "glorot" else bias.abs().max() > 0.1 * bound


def test_one_cycle_is_that_of_torch() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=50)
    expected = []
    for _ in range(50):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    found = learning_rates(settings(lr=0.02), 0, 50, 50)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_exported_network_draws_the_same_functions(method: str) -> None:
    x, y = table(40, dtype=torch.float32)
    network = train([Job(x, y, settings(method=method, per_unit=method == "learnable"), seed=1)])[0]
    draws = torch.cat(list(draw_outputs(network, x, num_draws=9, seed=4)))
    prediction = bd.predict(export(network), x, num_draws=9, seed=4, likelihood=likelihood_of(network))
    torch.testing.assert_close(draws, prediction.draws, rtol=1e-4, atol=1e-5)
    scores = score([network], x, y, num_draws=9, seed=4)
    torch.testing.assert_close(scores.log_prob, prediction.log_prob(y), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(scores.mean, prediction.mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_every_posterior_learns(method: str) -> None:
    x, y = table(300, dtype=torch.float32)
    one = settings(method=method, hidden=(32,), epochs=60, p=0.02, input_p=0.02, noise="learned")
    network = train([Job(x, y, one, seed=1)])[0]
    scores = score([network], x, y, num_draws=50)
    # The noise of the data is 0.3, the spread of the targets 0.7.
    assert scores.rmse(y) < 0.45
    assert float(scores.log_prob.mean()) > -0.9  # that of a Gaussian without a network is -1.08
    assert network.history["nll"][-1] < network.history["nll"][0]


@pytest.mark.parametrize("method", METHODS)
def test_the_exported_network_has_its_prior_and_can_be_saved(method: str, tmp_path: Path) -> None:
    x, y = table(40, dtype=torch.float32)
    one = settings(method=method, input_p=0.0, noise="map", scale_by_fan_in=True, length_scale=0.5)
    network = train([Job(x, y, one, seed=1)])[0]
    model = export(network)
    assert math.isclose(float(bd.total_kl(model).detach()) / 40, network.history["kl"][-1], rel_tol=1e-4)
    bd.save(model, tmp_path / "one.safetensors")
    loaded = bd.load(tmp_path / "one.safetensors")
    torch.testing.assert_close(loaded(x), model(x))
    assert set(bd.rates(model)) == {"0", "2", "4"}
    assert float(bd.rates(model)["0"]) == 0.0


def test_classes_are_learned() -> None:
    x, _ = table(200, dtype=torch.float32)
    labels = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    network = train([Job(x, labels, settings(noise="classes", epochs=60), seed=0)])[0]
    scores = score([network], x, labels, num_draws=20)
    assert float((scores.mean.argmax(1) == labels).float().mean()) > 0.9
    assert network.widths[-1] == 3
    torch.testing.assert_close(scores.mean.sum(1), torch.ones(200))


def test_the_map_noise_is_the_mode_of_its_posterior() -> None:
    x, y = table(48)
    # Nothing moves and nothing is dropped, so that the squared error of an epoch is known.
    one = settings(noise="map", p=0.0, input_p=0.0, lr=1e-300, epochs=1)
    network = train_stack([Job(x, y, one, seed=0)])[0]
    error = float((export(network)(x) - y).square().sum().detach())
    precision = (48 / 2 + PRIOR_SHAPE - 1) / (error / 2 + PRIOR_RATE)
    assert network.log_noise_std is not None
    assert math.isclose(float(network.log_noise_std[0]), -0.5 * math.log(precision), rel_tol=1e-9)


def test_noise_with_a_pace_is_held_back_and_then_goes_to_its_mode() -> None:
    x, y = table(80)
    rows = torch.arange(0, 80, 2)
    # Rows whose errors are large weigh little.
    weight = torch.full((80,), 2.0, dtype=torch.float64)
    weight[::4] = 0.1
    y[::4] += torch.where(torch.arange(20) % 2 == 0, 1.5, -1.5).view(-1, 1)
    one = settings(noise="map", noise_pace=0.3, noise_std=2.0, p=0.2, epochs=10, check_every=5)
    job = Job(x, y, one, seed=0, rows=rows, weight=weight)
    network = train_stack([job, Job(x, y, settings(noise="map", epochs=10), seed=1)])[0]
    # Errors are smaller than the noise that it starts with, so that every step is as long as it may be.
    levels = [math.log(std[0]) for std in network.history["noise_std"]]
    assert levels == pytest.approx([math.log(2.0) - 0.15, math.log(2.0) - 0.3], rel=1e-6)
    outputs = torch.cat(list(draw_outputs(network, x[rows], num_draws=2000, seed=5)))
    square = (outputs - y[rows]).square().flatten(1) @ (weight[rows] / weight[rows].mean())
    spread = float(square.std()) / math.sqrt(20)
    assert network.log_noise_std is not None
    error = 2 * ((20 + PRIOR_SHAPE - 1) * float((2 * network.log_noise_std).exp()) - PRIOR_RATE)
    assert abs(error - float(square.mean())) < 4 * spread


def test_the_bar_says_what_is_trained_and_counts_the_steps_of_those_that_stop_early(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x, y = table(40)
    hurried = settings(epochs=60, lr=10.0, noise="fixed", patience=1, check_every=1)
    jobs = [Job(x, y, hurried, seed=1, validation=torch.arange(40))]
    jobs += [Job(x, y, settings(epochs=9, noise="fixed"), seed=2)]
    networks = train(jobs, progress=True, label="try 2", note="none so far")
    assert len(networks[0].history["epoch"]) < 60, "it was to stop early"
    steps = (60 + 9) * 3
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"try 2 {steps}/{steps}, none so far, ")


def test_patience_stops_a_network_and_puts_the_best_weights_back() -> None:
    x, y = table(30, dtype=torch.float32)
    held = torch.arange(20, 30)
    one = settings(epochs=400, lr=0.05, schedule="constant", patience=3, check_every=5, p=0.0, input_p=0.0)
    long = replace(one, patience=80)
    stopped, whole = train_stack(
        [Job(x, y, way, seed=0, rows=torch.arange(20), validation=held) for way in (one, long)]
    )
    assert stopped.history["epoch"][-1] < whole.history["epoch"][-1] == 400
    for network in (stopped, whole):
        trace = network.history["validation"]
        # Weights that go on learning are looked at, not the best ones again.
        assert len(set(trace)) == len(trace)
        assert network.best_epoch == network.history["epoch"][int(np.argmax(trace))]
        found = float(score([network], x[held], y[held], num_draws=1).log_prob.mean())
        assert math.isclose(found, max(trace), rel_tol=1e-4, abs_tol=1e-4)


@pytest.mark.parametrize("noise", ["heteroscedastic", "map"])
@pytest.mark.parametrize("lr", [1e10, 1e30])
def test_a_network_that_diverges_says_so_and_leaves_the_others_alone(noise: str, lr: float) -> None:
    x, y = table(40, dtype=torch.float32)
    wild = settings(lr=lr, schedule="constant", epochs=8, check_every=1, noise=noise, batch_size=40)
    found = train_stack([Job(x, y, wild, seed=0), Job(x, y, settings(noise=noise, batch_size=40), seed=1)])
    assert [network.diverged for network in found] == [True, False]
    assert all(torch.isfinite(weight).all() for weight in found[1].weights)


def test_weights_count_rows() -> None:
    x, y = table(40)
    weight = torch.zeros(40, dtype=torch.float64)
    weight[:20] = 3.0
    one = settings(p=0.0, input_p=0.0, epochs=300, batch_size=40, noise="fixed", hidden=(), length_scale=1e-6)
    network = train_stack([Job(x, y, replace(one, lr=0.05), seed=0, weight=weight)])[0]
    design = torch.cat([x[:20], torch.ones(20, 1, dtype=torch.float64)], 1)
    exact = torch.linalg.lstsq(design, y[:20]).solution
    torch.testing.assert_close(
        torch.cat([network.weights[0], network.biases[0][None]]), exact, rtol=1e-3, atol=1e-3
    )


def test_stacks_hold_networks_of_one_shape_and_cover_all_jobs() -> None:
    x, y = table(20, dtype=torch.float32)
    jobs = [Job(x, y, settings(hidden=(width,)), seed=0) for width in (3, 4, 3, 4, 3)]
    stacks = plan_stacks(jobs)
    assert sorted(place for stack in stacks for place in stack) == list(range(5))
    assert {tuple(sorted(stack)) for stack in stacks} == {(0, 2, 4), (1, 3)}
    assert len(plan_stacks(jobs[::2], at_least=2)) == 2


def test_a_shape_with_most_of_the_work_is_cut_so_that_no_worker_waits() -> None:
    x, y = table(20, dtype=torch.float32)
    jobs = [Job(x, y, settings(hidden=(width,)), seed=seed) for width in (3, 64) for seed in range(12)]
    assert len(plan_stacks(jobs)) == 2
    stacks = plan_stacks(jobs, at_least=2)
    assert sorted(place for stack in stacks for place in stack) == list(range(24))
    # The small networks stay together; of the large ones, no stack has more than a third of a worker's share.
    assert sorted(len(stack) for stack in stacks if max(stack) >= 12) == [3, 3, 3, 3]
    assert [len(stack) for stack in stacks if max(stack) < 12] == [12]


@pytest.mark.parametrize("noise", ["map", "heteroscedastic"])
@pytest.mark.parametrize("method", METHODS)
def test_inputs_that_are_always_0_are_left_out_of_training(method: str, noise: str) -> None:
    x, y = table(40)
    wide = torch.cat([x[:, :1], torch.zeros(40, 2, dtype=x.dtype), x[:, 1:]], 1)
    same = settings(method=method, noise=noise, input_p=0.0)
    shorter = train([Job(wide, y, same, seed=3), Job(torch.cat([wide, wide]), torch.cat([y, y]), same)])[0]
    assert shorter.widths[0] == 5
    assert (shorter.weights[0][1:3] == 0).all()
    # What is trained beside it, a table in which no input is idle, changes nothing.
    full = torch.cat([x, x[:, :2]], 1)
    beside = train([Job(full, y, same, seed=4), Job(wide, y, same, seed=3)])[1]
    assert_same(shorter, beside)
    alone = train([Job(wide, y, same, seed=3)])[0]
    assert_same(shorter, alone)
    outputs = next(draw_outputs(alone, wide, num_draws=3))
    assert torch.isfinite(outputs).all()


def test_inputs_that_are_always_0_and_noisy_stay() -> None:
    x, y = table(40)
    wide = torch.cat([x, torch.zeros(40, 2, dtype=x.dtype)], 1)
    network = train([Job(wide, y, settings(input_p=0.2), seed=3)])[0]
    assert (network.weights[0][3:] != 0).any()


@pytest.mark.parametrize("threads", [1, 2])
def test_other_work_is_done_beside_the_stacks(threads: int) -> None:
    x, y = table(20)
    job = Job(x, y, settings())
    before, done = torch.get_num_threads(), []
    torch.set_num_threads(threads)
    try:
        networks = train([job], beside=[lambda: done.append(1), lambda: done.append(2)])
        assert sorted(done) == [1, 2]
        assert_same(networks[0], train([job])[0])
        assert train([], beside=[lambda: done.append(3)]) == []

        def fails() -> None:
            raise RuntimeError("no trees today")

        with pytest.raises(RuntimeError, match="no trees today"):
            train([job], beside=[fails])
    finally:
        torch.set_num_threads(before)
    assert done[-1] == 3


def test_every_row_is_seen_once_before_any_is_seen_again() -> None:
    stream = RowStream(0, np.arange(10))
    seen = stream.take(25)
    assert sorted(seen[:10]) == sorted(seen[10:20]) == list(range(10))
    again = RowStream(0, np.arange(10))
    np.testing.assert_array_equal(np.concatenate([again.take(7), again.take(18)]), seen)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": (0,)}, "`hidden` must be the widths of hidden layers, positive ints"),
        ({"p": 1.0}, "must be in \\[0, 1\\)"),
        ({"p": (0.1,)}, "one per hidden layer \\(2\\)"),
        ({"method": "dropblock"}, "`method` must be one of 'bernoulli'"),
        ({"lr": 0.0}, "`lr` must be a positive number"),
        ({"noise": "learned", "noise_pace": 0.5}, "`noise_pace` must be None unless noise='map'"),
        ({"epochs": 0}, "`epochs` must be a positive int"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**change)


def test_data_that_make_no_sense_are_refused() -> None:
    x, y = table(10)
    with pytest.raises(ValueError, match="`x` must be finite"):
        Job(x * math.nan, y, settings())
    with pytest.raises(ValueError, match="`y` must be 10 rows"):
        Job(x, y[:5], settings())
    with pytest.raises(ValueError, match="int64 labels"):
        Job(x, y, settings(noise="classes"))
    with pytest.raises(ValueError, match="at least one row"):
        Job(x, y, settings(), rows=torch.arange(0))
    with pytest.raises(ValueError, match="without validation rows"):
        Job(x, y, settings(patience=2))
    with pytest.raises(TypeError, match="`jobs` must be Jobs"):
        train([(x, y)])  # type: ignore[list-item]
