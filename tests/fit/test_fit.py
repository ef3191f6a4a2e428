"""The training loop: what it optimises, what it leaves behind, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import bayesdrop as bd
from bayesdrop.errors import Diverged
from bayesdrop.fit import History, fit
from bayesdrop.models import mlp


def problem(rows: int = 40, features: int = 3, *, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, features, generator=generator)
    y = x.sum(1, keepdim=True).sin() + noise * torch.randn(rows, 1, generator=generator)
    return x, y


def network(p: float = 0.2) -> nn.Sequential:
    torch.manual_seed(3)
    return mlp(3, (8,), 1, p=p)


def squared_error(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return (model(x) - y).square().mean()


def weights(*modules: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for module in modules for tensor in module.state_dict().values()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


class LearnedRate(bd.BernoulliDropout):
    """A layer with a rate parameter whose gradient is that of its square."""

    def __init__(self, layer: nn.Module, p: float = 0.1) -> None:
        super().__init__(layer, p=p)
        self.rate = nn.Parameter(torch.tensor(1.0))

    def rate_parameters(self) -> Iterator[nn.Parameter]:
        yield self.rate

    def kl(self, length_scale: float | None = None) -> Tensor:
        return super().kl(length_scale) + self.rate.square()


# what it optimises


def test_the_loss_falls_and_every_epoch_is_recorded() -> None:
    x, y = problem()
    objective = bd.NegativeELBO(bd.Gaussian(), num_data=40)
    history = fit(network(), (x, y), objective, epochs=30, batch_size=16, lr=0.01, validation=problem(20))
    assert len(history) == 30
    assert history.loss[-1] < history.loss[0]
    for values in (
        history.nll,
        history.kl,
        history.validation,
        history.noise_std,
        history.lr,
        history.seconds,
    ):
        assert len(values) == 30
    assert history.loss == pytest.approx([a + b for a, b in zip(history.nll, history.kl, strict=True)])
    assert history.best_epoch == 1 + min(range(30), key=lambda epoch: history.validation[epoch])
    assert history.rates == {}
    assert not history.stopped_early


def test_a_learned_noise_comes_to_the_residuals_root_mean_square() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=generator, dtype=torch.float64)
    noise = 0.3 * torch.randn(300, 1, generator=generator, dtype=torch.float64)
    y = x @ torch.tensor([[1.0], [-2.0]], dtype=torch.float64) + 0.5 + noise
    # Without dropout and with a weak prior the optimum is least squares and its maximum likelihood noise.
    model = nn.Sequential(bd.BernoulliDropout(nn.Linear(2, 1), p=0.0, length_scale=1e-4)).double()
    likelihood = bd.Gaussian().double()
    objective = bd.NegativeELBO(likelihood, num_data=300)
    fit(model, (x, y), objective, epochs=700, batch_size=300, lr=0.02)
    design = torch.cat([x, torch.ones_like(y)], 1)
    residual = y - design @ torch.linalg.lstsq(design, y).solution
    learned = likelihood.noise_std.item()
    assert learned == pytest.approx(residual.square().mean().sqrt().item(), rel=1e-3)
    assert abs(learned - 0.3) <= 5 * 0.3 / math.sqrt(2 * 300)


def test_a_map_noise_ends_at_its_closed_form() -> None:
    x, y = problem()
    model, likelihood = network(p=0.3), bd.Gaussian(noise="map", prior_shape=2.0, prior_rate=0.5)
    objective = bd.NegativeELBO(likelihood, num_data=40)
    history = fit(model, (x, y), objective, epochs=3, batch_size=16, lr=0.01)
    draws = bd.predict(model, x, num_draws=10, seed=4).draws
    error = (draws - y).square().sum((1, 2)).mean()
    precision = (40 / 2 + 2.0 - 1) / (error / 2 + 0.5)
    assert float(likelihood.precision) == pytest.approx(float(precision), rel=1e-5)
    assert len(set(history.noise_std)) == 3  # moved in every epoch


def test_a_map_noise_is_at_the_fixed_point_of_a_linear_problem() -> None:
    x, y = problem()
    model = nn.Sequential(bd.BernoulliDropout(nn.Linear(3, 1), p=0.0, length_scale=1e-4)).double()
    likelihood = bd.Gaussian(noise="map").double()
    objective = bd.NegativeELBO(likelihood, num_data=40)
    fit(model, (x.double(), y.double()), objective, epochs=400, batch_size=40, lr=0.02)
    design = torch.cat([x, torch.ones_like(y)], 1).double()
    residual = y.double() - design @ torch.linalg.lstsq(design, y.double()).solution
    precision = (40 / 2 + 0.1 - 1) / (residual.square().sum() / 2 + 0.01)
    assert float(likelihood.precision) == pytest.approx(float(precision), rel=1e-3)


def test_rates_have_their_own_learning_rate_and_are_recorded() -> None:
    x, y = problem()
    for rate_lr, step in ((None, 1e-2), (0.05, 0.05)):
        model = nn.Sequential(LearnedRate(nn.Linear(3, 1)))
        start = model[0].layer.weight.detach().clone()
        objective = bd.NegativeELBO(bd.Gaussian(0.1), num_data=40)
        history = fit(model, (x, y), objective, epochs=1, batch_size=40, lr=1e-3, rate_lr=rate_lr)
        # Adam's first step is as long as its learning rate.
        assert float(1.0 - model[0].rate.detach()) == pytest.approx(step, rel=1e-3)
        moved = (model[0].layer.weight.detach() - start).abs().flatten()
        assert moved.tolist() == pytest.approx([1e-3] * 3, rel=1e-2)
        assert history.rates == {"0": [pytest.approx(0.1)]}


def test_only_weights_decay() -> None:
    seen: list[dict[str, Any]] = []

    def make(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        seen.extend(groups)
        return torch.optim.AdamW(groups)

    model = nn.Sequential(LearnedRate(nn.Linear(3, 2)), nn.ReLU(), LearnedRate(nn.Linear(2, 1)))
    model[2].layer.bias.requires_grad_(False)
    objective = bd.NegativeELBO(bd.Gaussian(), num_data=40)
    fit(model, problem(), objective, epochs=1, lr=0.02, weight_decay=0.1, optimizer=make)
    groups = {g["name"]: (len(g["params"]), g["lr"], g["weight_decay"]) for g in seen}
    assert groups == {"weights": (3, 0.02, 0.1), "rates": (2, 0.2, 0.0), "objective": (1, 0.02, 0.0)}


@pytest.mark.parametrize("noise", ["learned", "map"])
def test_a_loop_by_hand_gives_the_same_weights(noise: Any) -> None:
    x, y = problem()
    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    ours, theirs = network(), network()
    objectives = [bd.NegativeELBO(bd.Gaussian(noise=noise), num_data=40) for _ in range(2)]
    fit(ours, loader, objectives[0], epochs=5, lr=0.01, seed=11)

    torch.manual_seed(11)
    objective = objectives[1]
    optimizer = torch.optim.Adam([*theirs.parameters(), *objective.parameters()], lr=0.01, fused=True)
    theirs.train()
    for epoch in range(5):
        for batch, target in loader:
            optimizer.zero_grad()
            objective(theirs, batch, target).loss.backward()
            optimizer.step()
        if noise == "map":
            objective.m_step(theirs, [(x, y)], num_draws=1, seed=epoch + 1)
    if noise == "map":
        objective.m_step(theirs, [(x, y)], num_draws=10, seed=6)
        # Sums over batches and over all rows at once round differently, and each noise scales the next steps.
        for a, b in zip(weights(ours, objectives[0]), weights(theirs, objective), strict=True):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
        return
    assert same(weights(ours, objectives[0]), weights(theirs, objective))


def test_the_scheduler_goes_by_steps() -> None:
    x, y = problem()
    history = fit(
        network(),
        (x, y),
        squared_error,
        epochs=3,
        batch_size=10,
        lr=1.0,
        optimizer=torch.optim.SGD,
        scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5),
        clip_norm=1e-3,
    )
    assert history.lr == [0.5**4, 0.5**8, 0.5**12]


def test_gradients_are_clipped() -> None:
    model = network()
    start = nn.utils.parameters_to_vector(model.parameters()).detach()
    fit(model, problem(), squared_error, epochs=1, lr=1.0, optimizer=torch.optim.SGD, clip_norm=1e-3)
    end = nn.utils.parameters_to_vector(model.parameters()).detach()
    assert float((end - start).norm()) == pytest.approx(1e-3, rel=1e-3)


def test_any_callable_with_a_loss_will_do() -> None:
    history = fit(network(), problem(), squared_error, epochs=2, validation=problem(10))
    assert len(history.loss) == len(history.validation) == 2
    assert history.nll == history.kl == history.noise_std == []


def test_bfloat16_and_a_model_without_randomness_train() -> None:
    x, y = problem()
    model = network().bfloat16()
    fit(model, (x.bfloat16(), y.bfloat16()), squared_error, epochs=2)
    assert model[0].layer.weight.dtype == torch.bfloat16
    objective = bd.NegativeELBO(bd.Gaussian(0.5), num_data=40)
    plain = network(p=0.0)
    history = fit(plain, (x, y), objective, epochs=1, validation=(x, y))
    with torch.no_grad():
        expected = -objective.likelihood.log_prob(plain.eval()(x), y).mean()
    assert history.validation[0] == pytest.approx(float(expected), rel=1e-5)


# data


class Items(Dataset[Any]):
    """Rows one by one, as users write them."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.x[row], self.y[row]


def test_tensors_and_datasets_give_the_same_steps() -> None:
    x, y = problem(41)
    results = []
    sources: list[Any] = [
        (x, y),
        [x, y],
        TensorDataset(x, y),
        Items(x, y),
        Subset(TensorDataset(x, y), range(41)),
    ]
    for train in sources:
        model = network()
        history = fit(model, train, squared_error, epochs=2, batch_size=10, validation=train)
        results.append((weights(model), history.loss, history.validation))
    for result in results[1:]:
        assert same(result[0], results[0][0])
        assert result[1] == results[0][1]
        assert result[2] == pytest.approx(results[0][2])


def test_every_row_is_seen_once_an_epoch_in_an_order_of_its_own() -> None:
    x = torch.arange(41.0).unsqueeze(1)
    seen: list[list[float]] = []
    sizes: list[int] = []

    def objective(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert torch.equal(x, y)
        seen[-1].extend(x.flatten().tolist())
        sizes.append(len(x))
        return model(x).square().mean() * 0

    for seed in (0, 0, 1):
        for epochs in (1, 2):
            seen.append([])
            fit(nn.Linear(1, 1), (x, x), objective, epochs=epochs, batch_size=8, seed=seed)
    assert sizes[:5] == [8, 8, 8, 8, 9]  # no batch of one row
    for order in seen:
        assert sorted(order[:41]) == x.flatten().tolist()
    assert seen[0] == seen[2] == seen[1][:41]
    assert seen[1][:41] != seen[1][41:]
    assert seen[0] != seen[4]


def test_large_rows_are_gathered_in_parts() -> None:
    x = torch.randn(50, 20_000)
    y = torch.arange(50)
    rows: list[int] = []

    def objective(model: nn.Module, x_part: Tensor, y_part: Tensor) -> Tensor:
        assert torch.equal(x_part, x[y_part])
        rows.extend(y_part.tolist())
        return model(x_part[:, :1]).mean() * 0

    fit(nn.Linear(1, 1), (x, y), objective, epochs=1, batch_size=6)
    assert sorted(rows) == list(range(50))


class TwoInputs(nn.Module):
    """f(a, b)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = bd.BernoulliDropout(nn.Linear(3, 1), p=0.2)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.layer(a + b)  # type: ignore[no-any-return]


def test_inputs_may_be_tuples_or_mappings() -> None:
    x, y = problem()
    results = []
    for inputs in ((x, 2 * x), {"a": x, "b": 2 * x}, {"b": 2 * x, "a": x}):
        model = TwoInputs()
        objective = bd.NegativeELBO(bd.Gaussian(0.1), num_data=40)
        fit(model, (inputs, y), objective, epochs=2, batch_size=16, validation=(inputs, y))
        results.append(weights(model))
    assert same(results[0], results[1])
    assert same(results[0], results[2])


def test_classes_train_and_are_validated_by_their_log_probability() -> None:
    x, _ = problem(60)
    y = (x[:, 0] > 0).long()
    model = mlp(3, (8,), 2, p=0.1)
    objective = bd.NegativeELBO(bd.Categorical(), num_data=60)
    history = fit(model, (x, y), objective, epochs=40, batch_size=30, lr=0.02, validation=(x, y))
    assert history.validation[-1] < 0.4 < history.validation[0]
    prediction = bd.predict(model, x, num_draws=20, likelihood=bd.Categorical(), seed=0)
    assert history.validation[-1] == pytest.approx(-float(prediction.log_prob(y).mean()), rel=1e-5)


# what it leaves behind


def test_the_same_seed_gives_the_same_weights_whatever_the_global_state() -> None:
    results = []
    for seed, start in ((5, 0), (5, 1), (6, 0)):
        model, objective = network(), bd.NegativeELBO(bd.Gaussian(), num_data=40)
        torch.manual_seed(start)
        torch.rand(start)
        fit(model, problem(), objective, epochs=2, batch_size=16, seed=seed)
        results.append(weights(model, objective))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


@pytest.mark.parametrize("fails", [False, True])
def test_flags_gradients_and_the_random_state_are_restored(fails: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1)).eval()
    model[2].train()
    flags: list[list[bool]] = []

    def objective(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        flags.append([part.training for part in model.modules()])
        if fails and len(flags) == 3:
            raise KeyboardInterrupt
        return squared_error(model, x, y)

    before = torch.get_rng_state()
    if fails:
        with pytest.raises(KeyboardInterrupt):
            fit(model, problem(), objective, epochs=2, batch_size=16)
    else:
        fit(model, problem(), objective, epochs=2, batch_size=16)
    assert all(all(flag) for flag in flags)
    assert [part.training for part in model.modules()] == [False, False, False, True, False]
    assert torch.equal(before, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())


def test_validation_does_not_change_training() -> None:
    results = []
    x, y = problem()
    loader = DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True)
    for validation in (None, (x, y), loader):
        model = network()
        objective = bd.NegativeELBO(bd.Gaussian(), num_data=40)
        history = fit(model, (x, y), objective, epochs=3, batch_size=16, validation=validation)
        results.append((weights(model), history.validation))
    assert same(results[0][0], results[1][0])
    assert same(results[0][0], results[2][0])
    assert results[1][1] == pytest.approx(results[2][1], rel=1e-5)


def test_patience_stops_and_puts_the_best_epoch_back() -> None:
    x, y = problem(20)
    states: list[list[Tensor]] = []
    model, likelihood = network(), bd.Gaussian()

    class Watched(bd.NegativeELBO):
        def forward(self, model: nn.Module, x: Any, y: Tensor) -> bd.ElboTerms:
            states.append(weights(model, self))
            return super().forward(model, x, y)

    # Targets of the other sign: every step away from the start makes validation worse before long.
    history = fit(
        model,
        (x, y),
        objective := Watched(likelihood, num_data=20),
        epochs=200,
        batch_size=20,
        lr=0.05,
        validation=(x, -y),
        patience=3,
    )
    assert history.stopped_early
    best = history.best_epoch
    assert best is not None
    assert len(history) == best + 3
    assert history.validation[best - 1] == min(history.validation)
    # One step an epoch: the state after epoch k is what the next step starts from.
    assert same(weights(model, objective), states[best])


def test_min_delta_asks_for_more_than_a_little() -> None:
    x, y = problem()
    options: dict[str, Any] = {"epochs": 20, "lr": 1e-4, "validation": (x, y), "patience": 2}
    history = fit(network(), (x, y), squared_error, min_delta=10.0, **options)
    assert history.best_epoch == 1
    assert len(history) == 3
    assert len(fit(network(), (x, y), squared_error, **options)) == 20


def test_the_best_epoch_is_put_back_also_without_an_early_stop() -> None:
    x, y = problem(20)
    objective = bd.NegativeELBO(bd.Gaussian(), num_data=20)
    model = network()
    history = fit(model, (x, y), objective, epochs=10, lr=0.05, validation=(x, -y), patience=50)
    assert not history.stopped_early
    assert history.best_epoch is not None
    assert history.best_epoch < 10
    score = bd.predict(model, x, num_draws=20, likelihood=objective.likelihood).log_prob(-y)
    assert -float(score.mean()) == pytest.approx(min(history.validation), rel=1e-5)


# what it refuses


def test_a_loss_that_is_not_finite_puts_the_model_back(tmp_path: Path) -> None:
    x, y = problem()
    straight = network()
    fit(straight, (x, y), squared_error, epochs=2, batch_size=16)

    for bad_step, epoch, good in ((8, 3, straight), (2, 1, network())):
        scales = iter([1.0] * (bad_step - 1) + [math.nan])

        def objective(model: nn.Module, x: Tensor, y: Tensor, scales: Iterator[float] = scales) -> Tensor:
            return squared_error(model, x, y) * next(scales)

        model = network()
        with pytest.raises(Diverged, match=r"the loss was nan at step .* Lower `lr`, now 0\.001") as caught:
            fit(model, (x, y), objective, epochs=5, batch_size=16)
        assert (caught.value.step, caught.value.epoch) == (bad_step, epoch)
        assert ("the end of epoch 2" if epoch == 3 else "where it started") in str(caught.value)
        assert same(weights(model), weights(good))


def test_a_learning_rate_that_is_far_too_large_diverges() -> None:
    x, y = problem()
    # The second has one step an epoch: its weights are finite, and the errors that set its noise are not.
    for likelihood, batch_size in ((bd.Gaussian(), 8), (bd.Gaussian(noise="map"), 40)):
        model = network()
        start = weights(model)
        objective = bd.NegativeELBO(likelihood, num_data=40)
        with pytest.raises(Diverged):
            fit(model, (x, y), objective, epochs=5, lr=1e36, batch_size=batch_size)
        assert same(weights(model), start)


def test_parameters_that_are_not_finite_are_never_kept(tmp_path: Path) -> None:
    path = tmp_path / "run"
    calls: list[int] = []

    def objective(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        calls.append(0)
        loss = squared_error(model, x, y)
        # The root of zero is finite; its gradient is not.
        return loss if len(calls) < 3 else (loss * 0).sqrt()

    model = network()
    with pytest.raises(Diverged, match=r"a parameter was not finite after step 3 .*run holds epoch 2\."):
        fit(model, problem(), objective, epochs=5, checkpoint=path)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(model))
    again = network()
    history = fit(again, problem(), squared_error_named_objective(objective), epochs=2, checkpoint=path)
    assert len(history) == 2
    assert same(weights(again), weights(model))


def squared_error_named_objective(like: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The plain objective under the name that the checkpoint knows."""

    def objective(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return squared_error(model, x, y)

    objective.__qualname__ = like.__qualname__
    return objective


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epochs": 0}, "`epochs` must be a positive int; got 0"),
        ({"epochs": 2.0}, "`epochs` must be a positive int"),
        ({"epochs": True}, "`epochs` must be a positive int"),
        ({"batch_size": 0}, "`batch_size` must be a positive int"),
        ({"lr": 0.0}, "`lr` must be a number above 0"),
        ({"lr": -1.0}, "`lr` must be a number above 0"),
        ({"lr": math.inf}, "`lr` must be a number above 0"),
        ({"rate_lr": 0.0}, "`rate_lr` must be a number above 0"),
        ({"weight_decay": -0.1}, "`weight_decay` must be a number of at least 0"),
        ({"patience": 3}, "`patience` must be None without validation data"),
        ({"patience": 0}, "`patience` must be a positive int"),
        ({"min_delta": -1.0}, "`min_delta` must be"),
        ({"clip_norm": 0.0}, "`clip_norm` must be a number above 0"),
        ({"validation_draws": 0}, "`validation_draws` must be"),
        ({"checkpoint_every": 0}, "`checkpoint_every` must be"),
        ({"seed": 1.5}, "`seed` must be an int"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"fit: {sentence}"):
        fit(network(), problem(), squared_error, **{"epochs": 1, **options})


def test_data_that_do_not_fit_are_refused() -> None:
    x, y = problem()

    def refused(train: Any, kind: type[Exception], sentence: str) -> None:
        for data in ({"train": train}, {"train": (x, y), "validation": train}):
            with pytest.raises(kind, match=sentence):
                fit(network(), objective=squared_error, epochs=1, **data)

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield x[0], y[0]

    bad_x, bad_y = x.clone(), y.clone()
    bad_x[3, 1], bad_y[7] = math.nan, math.inf
    refused((bad_x, y), ValueError, r"`x of (train|validation)` must be finite; got 1 of 120 .* \(3, 1\)")
    refused((x, bad_y), ValueError, r"`y of (train|validation)` must be finite; .* \(7, 0\)")
    refused(({"a": x, "b": bad_x}, y), ValueError, r"`x\['b'\] of .*` must be finite")
    refused(((x, bad_x), y), ValueError, r"`x\[1\] of .*` must be finite")
    refused((x[:0], y[:0]), ValueError, "must be at least one row")
    refused((x, y[:-1]), ValueError, "must be y with 40 rows, as x")
    refused(((x, x[:-1]), y), ValueError, "one common number of rows")
    refused((x.numpy(), y), TypeError, "must be .x, y. with x a tensor")
    refused((x, y.numpy()), TypeError, "tensors, a Dataset with a length, or a DataLoader")
    refused(x, TypeError, "tensors, a Dataset with a length, or a DataLoader")
    refused(Stream(), TypeError, "Wrap an IterableDataset in a DataLoader")
    refused(Items(x[:0], y[:0]), ValueError, "must be at least one row")
    refused(TensorDataset(x), TypeError, "must be a source of .x, y. pairs")
    refused(DataLoader(TensorDataset(x)), TypeError, "must be a source of .x, y. pairs")
    refused(DataLoader(TensorDataset(x, y), batch_size=50, drop_last=True), ValueError, "at least one batch")


def test_targets_of_the_wrong_shape_or_class_are_refused() -> None:
    x, y = problem()
    with pytest.raises(ValueError, match=r"of the output's shape \(40, 1\); got \(40,\)"):
        fit(network(), (x, y.flatten()), bd.NegativeELBO(bd.Gaussian(), num_data=40), epochs=1)
    labels = torch.arange(40) % 3
    with pytest.raises(ValueError, match="in 0 to 1, the model's classes; got 0 to 2"):
        fit(mlp(3, (4,), 2), (x, labels), bd.NegativeELBO(bd.Categorical(), num_data=40), epochs=1)


def test_a_wrong_number_of_data_is_refused() -> None:
    x, y = problem()
    for train in ((x, y), Items(x, y)):
        with pytest.raises(
            ValueError, match=r"num_data` must be the 40 rows of `train`; got 128\. Pass num_data=40"
        ):
            fit(network(), train, bd.NegativeELBO(bd.Gaussian(), num_data=128), epochs=1)
    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    fit(network(), loader, bd.NegativeELBO(bd.Gaussian(), num_data=4000), epochs=1)


def test_models_objectives_and_optimisers_of_the_wrong_kind_are_refused() -> None:
    data = problem()
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module"):
        fit(lambda x: x, data, squared_error, epochs=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`objective` must be callable"):
        fit(network(), data, 3, epochs=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`objective` must be a callable that gives a scalar"):
        fit(network(), data, lambda model, x, y: (model(x) - y).square(), epochs=1)
    with pytest.raises(TypeError, match="`objective` must be a callable that gives a scalar"):
        fit(network(), data, lambda model, x, y: 3.0, epochs=1)
    with pytest.raises(ValueError, match="parameters that require gradients"):
        fit(network().requires_grad_(False), data, squared_error, epochs=1)
    with pytest.raises(TypeError, match="`optimizer` must be a callable"):
        fit(network(), data, squared_error, epochs=1, optimizer=lambda groups: 3)  # type: ignore[arg-type, return-value]
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    with pytest.raises(TypeError, match="`scheduler` must be a callable"):
        fit(network(), data, squared_error, epochs=1, scheduler=plateau)
    broken = network()
    with torch.no_grad():
        broken[0].layer.weight[0, 0] = math.nan
    with pytest.raises(ValueError, match=r"`0\.layer\.weight of model` must be finite"):
        fit(broken, data, squared_error, epochs=1)


# history and progress


def test_a_history_survives_json_and_draws_itself(tmp_path: Path) -> None:
    import json

    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    x, y = problem()
    objective = bd.NegativeELBO(bd.Gaussian(), num_data=40)
    history = fit(network(), (x, y), objective, epochs=4, validation=(x, y), patience=4)
    assert History.from_dict(json.loads(json.dumps(history.to_dict()))) == history
    with pytest.raises(ValueError, match=r"fields of History; got \['epochs'\]"):
        History.from_dict({"epochs": 3})
    figure, own = plt.subplots()
    axes = history.plot(own)
    assert axes is own
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    assert lines["training loss"] == history.loss
    assert lines["validation loss"] == history.validation
    assert f"best epoch, {history.best_epoch}" in lines
    plt.close(figure)
    new = History(loss=[1.0]).plot()
    assert len(new.get_lines()) == 1
    plt.close(new.figure)
    assert repr(history).startswith("History(4 epochs, loss ")


def test_progress_is_shown_when_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    fit(network(), problem(), squared_error, epochs=2)
    assert capfd.readouterr() == ("", "")
    fit(network(), problem(), squared_error, epochs=2, progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "2/2" in shown.err
    assert "loss" in shown.err


def test_a_loss_of_outputs_and_targets_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        TypeError, match=r"`objective` must be a function of \(model, x, y\); got CrossEntropyLoss"
    ):
        bd.fit(network(), problem(), nn.CrossEntropyLoss(), epochs=1)
    x, y = problem()
    loss = nn.MSELoss()
    bd.fit(network(), (x, y), lambda model, x, y: loss(model(x), y), epochs=1)
