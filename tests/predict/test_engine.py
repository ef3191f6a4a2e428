"""predict(): draws are functions, nothing is left switched, memory stays flat."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bayesdrop import (
    BernoulliDropout,
    Categorical,
    DropConnect,
    FunctionDraw,
    Gaussian,
    GaussianDropout,
    MixtureDropout,
    NoRandomness,
    PartlyRandom,
    predict,
)


def network() -> nn.Sequential:
    return nn.Sequential(
        BernoulliDropout(nn.Linear(4, 8), p=0.3),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Dropout(0.5),
        DropConnect(nn.Linear(8, 6), p=0.2),
        nn.Tanh(),
        GaussianDropout(nn.Linear(6, 6), p=0.2),
        nn.AlphaDropout(0.1),
        MixtureDropout(nn.Linear(6, 2), p=0.1, sigma=0.1),
    ).double()


X = torch.randn(11, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_draw_is_the_same_function_in_any_batch_size_and_order() -> None:
    net = network()
    whole = predict(net, X, num_draws=6).draws
    for batch_size in (1, 3, 11, 50):
        torch.testing.assert_close(predict(net, X, num_draws=6, batch_size=batch_size).draws, whole)
    order = torch.randperm(11)
    torch.testing.assert_close(predict(net, X[order], num_draws=6, batch_size=4).draws, whole[:, order])
    torch.testing.assert_close(predict(net, X, num_draws=3).draws, whole[:3])
    torch.testing.assert_close(predict(net, X[7:8], num_draws=6).draws, whole[:, 7:8])
    assert not torch.equal(predict(net, X, num_draws=6, seed=1).draws, whole)
    with FunctionDraw(net.eval(), seed=0, index=4):
        torch.testing.assert_close(net(X), whole[4])


def test_rows_that_are_equal_have_equal_draws_only_when_shared() -> None:
    net, twins = network(), X[:1].repeat(5, 1)
    shared = predict(net, twins, num_draws=4).draws
    torch.testing.assert_close(shared, shared[:, :1].expand_as(shared))
    own = predict(net, twins, num_draws=4, draws="independent")
    assert not torch.allclose(own.draws, own.draws[:, :1].expand_as(own.draws))
    torch.testing.assert_close(predict(net, twins, num_draws=4, draws="independent").draws, own.draws)
    with pytest.raises(ValueError, match="needs functions"):
        predict(net, twins, num_draws=4, draws="independent", likelihood=Gaussian(1.0)).joint_log_prob(
            torch.zeros(5, 2, dtype=torch.float64)
        )


def test_batches_of_independent_rows_have_noise_of_their_own() -> None:
    net, twins = network(), X[:1].repeat(6, 1)
    draws = predict(net, twins, num_draws=4, draws="independent", batch_size=3).draws
    assert not torch.allclose(draws[:, :3], draws[:, 3:])


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_left_switched(training: bool) -> None:
    net = network().train(training)
    net[3].train(not training)
    flags = {name: module.training for name, module in net.named_modules()}
    state = copy.deepcopy(net.state_dict())
    random = torch.get_rng_state()
    predict(net, X, num_draws=3)
    assert flags == {name: module.training for name, module in net.named_modules()}
    assert all(torch.equal(state[key], value) for key, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert torch.is_grad_enabled()


class Failing(nn.Module):
    calls = 0

    def __init__(self, at: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.at = at

    def forward(self, x: Tensor) -> Tensor:
        Failing.calls += 1
        torch.rand(1)
        x = self.dropout(x)
        if Failing.calls >= self.at:
            raise RuntimeError("on purpose")
        return x


@pytest.mark.parametrize("at", [1, 2])
def test_nothing_is_left_switched_after_an_exception(at: int) -> None:
    """In the pass that is only watched, and in that of the first draw."""
    Failing.calls = 0
    model = Failing(at=at).train()
    random = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="on purpose"):
        predict(model, X, num_draws=5)
    assert model.training
    assert model.dropout.training
    assert not model.dropout._forward_hooks
    assert not model._forward_pre_hooks
    assert torch.equal(torch.get_rng_state(), random)
    assert not torch.equal(model.dropout(X), model.dropout(X))


def test_a_model_that_uses_the_global_generator_leaves_it_as_it_was() -> None:
    model = Failing(at=1000)
    random = torch.get_rng_state()
    predict(model, X, num_draws=2)
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Dropout(0.4), (5, 6)),
        (nn.Dropout(0.4, inplace=True), (5, 6)),
        (nn.Dropout(0.4), (5, 3, 6)),
        (nn.Dropout1d(0.4), (5, 6, 4)),
        (nn.Dropout2d(0.4), (5, 6, 3, 3)),
        (nn.Dropout3d(0.4), (5, 6, 2, 2, 2)),
        (nn.AlphaDropout(0.4), (5, 6)),
        (nn.FeatureAlphaDropout(0.4), (5, 6, 3)),
    ],
    ids=str,
)
def test_draws_of_torch_modules_have_the_moments_of_torchs_own_noise(
    module: nn.Module, shape: tuple[int, ...]
) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    original = x.clone()
    num = 3000
    ours = predict(module, x, num_draws=num).draws
    assert torch.equal(x, original)
    theirs = torch.stack([module.train()(x.clone()) for _ in range(num)])
    error = (ours.var(0) / num + theirs.var(0) / num).sqrt()
    assert ((ours.mean(0) - theirs.mean(0)).abs() <= 5 * error + 1e-12).all()
    squares = [(draws - draws.mean(0)).square() for draws in (ours, theirs)]
    error = ((squares[0].var(0) + squares[1].var(0)) / num).sqrt()
    assert ((squares[0].mean(0) - squares[1].mean(0)).abs() <= 5 * error + 1e-9).all()
    # Whole channels go together where torch drops them together, and all rows share a draw.
    if isinstance(module, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
        dropped = (ours == 0).flatten(3)
        assert torch.equal(dropped.all(-1), dropped.any(-1))
    if not isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout):
        assert torch.equal((ours == 0).all(1), (ours == 0).any(1))


class Twice(nn.Module):
    """Calls one dropout module at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.dropout(x), self.dropout(x)], dim=1)


def test_a_module_that_is_called_twice_is_two_sites() -> None:
    x = torch.ones(2, 40)
    draws = predict(Twice(), x, num_draws=3).draws
    assert not torch.equal(draws[:, :, 0], draws[:, :, 1])
    torch.testing.assert_close(predict(Twice(), x, num_draws=3, batch_size=1).draws, draws)


def test_a_stochastic_layer_that_is_called_twice_has_one_set_of_weights() -> None:
    layer = BernoulliDropout(nn.Linear(6, 6), p=0.5)

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([self.layer(x), self.layer(x)], dim=1)

    draws = predict(Recurrent(), torch.ones(2, 6), num_draws=3).draws
    assert torch.equal(draws[:, :, 0], draws[:, :, 1])


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.dropout(left) + right


def test_inputs_may_be_tuples_mappings_and_loaders() -> None:
    model, left, right = TwoInputs(), torch.randn(7, 3), torch.randn(7, 3)
    expected = predict(model, (left, right), num_draws=4).draws
    named = {"right": right, "left": left}
    torch.testing.assert_close(predict(model, named, num_draws=4, batch_size=2).draws, expected)
    loader = DataLoader(TensorDataset(left, right), batch_size=3)
    torch.testing.assert_close(predict(model, loader, num_draws=4, items="inputs").draws, expected)
    batches = ({"left": left[i : i + 1], "right": right[i : i + 1]} for i in range(7))
    torch.testing.assert_close(predict(model, batches, num_draws=4).draws, expected)
    single = DataLoader(TensorDataset(left), batch_size=3)
    net = nn.Sequential(nn.Dropout(0.5))
    torch.testing.assert_close(predict(net, single, num_draws=4).mean, predict(net, left, num_draws=4).mean)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_scores_in_passing_are_those_of_kept_draws(batch_size: int | None) -> None:
    net = network()
    y, labels = torch.randn(11, 2, dtype=torch.float64), torch.randint(2, (11,))
    for likelihood, targets in ((Gaussian(0.5), y), (Categorical(), labels)):
        kept = predict(net, X, num_draws=20, likelihood=likelihood)
        passing = predict(
            net,
            X,
            num_draws=20,
            likelihood=likelihood,
            targets=targets,
            keep_draws=False,
            batch_size=batch_size,
        )
        torch.testing.assert_close(passing.log_prob(targets), kept.log_prob(targets))
        torch.testing.assert_close(passing.joint_log_prob(targets), kept.joint_log_prob(targets))
        for name in ("mean", "epistemic", "aleatoric", "standard_error"):
            torch.testing.assert_close(getattr(passing, name), getattr(kept, name))
    unscored = predict(net, X, num_draws=20, likelihood=Categorical(), keep_draws=False)
    torch.testing.assert_close(unscored.log_prob(labels), kept.log_prob(labels))
    for name in ("entropy", "expected_entropy", "mutual_information", "variation_ratio"):
        torch.testing.assert_close(getattr(passing, name), getattr(kept, name))
    with pytest.raises(ValueError, match="targets=y"):
        predict(net, X, num_draws=5, likelihood=Gaussian(0.5), targets=y, keep_draws=False).log_prob(y + 1)


def test_half_precision_outputs_are_gathered_in_single_precision() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)).to(torch.bfloat16)
    prediction = predict(net, X.to(torch.bfloat16), num_draws=5)
    assert prediction.mean.dtype == torch.float32


def test_draws_are_let_go_when_they_are_not_small() -> None:
    net = nn.Sequential(nn.Dropout(0.5))
    x = torch.ones(2**10, 2**10)
    large = predict(net, x, num_draws=20, batch_size=256)
    assert "not kept" in repr(large)
    assert "not kept" not in repr(predict(net, x[:16], num_draws=20))
    assert predict(net, x, num_draws=20, keep_draws=True).draws.shape == (20, 1024, 1024)


MEMORY = """
import resource, sys, torch
from torch import nn
import bayesdrop as bd
torch.set_num_threads(1)
first = bd.BernoulliDropout(nn.Linear(32, 64), p=0.2)
net = nn.Sequential(first, nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 8))
x = torch.randn(16, 32)
for likelihood in (bd.Gaussian(0.1), bd.Categorical()):
    bd.predict(net, x, num_draws=int(sys.argv[1]), likelihood=likelihood)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_number_of_draws() -> None:
    def peak(num_draws: int) -> int:
        command = [sys.executable, "-c", MEMORY, str(num_draws)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert peak(2000) <= 1.1 * peak(20)


def test_statistics_of_many_draws_hold_no_tensor_per_draw() -> None:
    """Live tensor bytes after 2000 draws against 20, counted rather than measured."""
    from bayesdrop.predict.statistics import DrawStatistics

    def live(num_draws: int) -> int:
        running = DrawStatistics(Categorical())
        for index in range(num_draws):
            running.update(torch.randn(16, 8, generator=torch.Generator().manual_seed(index)))
        return sum(
            value.numel() * value.element_size()
            for part in (running, running._moments, running._variance, running._entropy)
            for value in vars(part).values()
            if isinstance(value, Tensor)
        )

    assert live(2000) == live(20) > 0


def test_a_model_without_randomness_is_refused() -> None:
    with pytest.raises(NoRandomness, match=r"must contain a stochastic layer .* got none"):
        predict(nn.Linear(3, 2), torch.zeros(1, 3))
    still = nn.Sequential(nn.Dropout(0.0), BernoulliDropout(nn.Linear(3, 2), p=0.0))
    with pytest.raises(NoRandomness, match=r"got 0 \(p = 0\), 1 \(p = 0\)"):
        predict(still, torch.zeros(1, 3))


def test_what_is_off_is_said_once_and_by_name() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3), nn.Dropout(0.0), nn.Linear(3, 2), nn.Dropout(0.2))
    with pytest.warns(PartlyRandom, match=r"not random: 2 \(p = 0\), 4 \(excluded"):
        predict(net, torch.zeros(1, 3), num_draws=2, exclude="4")
    predict(net, torch.zeros(1, 3), num_draws=2)


def test_bad_input_is_refused() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2))
    x = torch.zeros(4, 3)
    for bad in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="`num_draws` must be a positive int"):
            predict(net, x, num_draws=bad)
    with pytest.raises(ValueError, match="`batch_size` must be a positive int"):
        predict(net, x, batch_size=0)
    with pytest.raises(ValueError, match="`draws` must be 'shared' or 'independent'"):
        predict(net, x, draws="both")
    with pytest.raises(TypeError, match="`likelihood` must be a Likelihood"):
        predict(net, x, likelihood="gaussian")
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module"):
        predict(lambda x: x, x)
    with pytest.raises(TypeError, match="`x` must be a tensor"):
        predict(net, 3)
    with pytest.raises(ValueError, match="`x` must be at least one row"):
        predict(net, torch.zeros(0, 3))
    with pytest.raises(ValueError, match="`x` must be at least one batch"):
        predict(net, [])
    with pytest.raises(ValueError, match="one common number of rows"):
        predict(TwoInputs(), (torch.zeros(4, 3), torch.zeros(5, 3)))
    with pytest.raises(ValueError, match="`batch_size` must be None for an iterable of batches"):
        predict(net, DataLoader(TensorDataset(x)), batch_size=2)
    with pytest.raises(ValueError, match="`targets` must be None without a likelihood"):
        predict(net, x, targets=x)
    for rows in (3, 5):
        with pytest.raises(ValueError, match="`targets` must be"):
            predict(net, x, num_draws=2, likelihood=Gaussian(1.0), targets=torch.zeros(rows, 2))

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> object:
            return self.dropout(x), x

    with pytest.raises(TypeError, match="a model that returns one tensor; got tuple"):
        predict(Pair(), x)
    with pytest.raises(ValueError, match="a model that returns 4 rows"):
        predict(nn.Sequential(nn.Dropout(0.5), nn.Flatten(0)), x)


def test_a_draw_cannot_be_opened_twice_at_once() -> None:
    draw = FunctionDraw(network())
    with draw, pytest.raises(RuntimeError, match="open already"):
        draw.__enter__()
    with draw:
        pass


def test_draws_of_two_models_do_not_mix() -> None:
    first, second = BernoulliDropout(nn.Linear(4, 3), p=0.5), BernoulliDropout(nn.Linear(4, 3), p=0.5)
    first.double().eval()
    second.double().eval()
    with FunctionDraw(first):
        torch.testing.assert_close(second(X), F.linear(X, second.layer.weight, second.layer.bias))
        with FunctionDraw(second, seed=1):
            assert not torch.equal(second(X), second.layer(X))
            inside = first(X)
        torch.testing.assert_close(first(X), inside)


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    predict(nn.Sequential(nn.Dropout(0.5)), torch.ones(2, 3), num_draws=3, progress=True)
    captured = capsys.readouterr()
    assert "predict" in captured.err
    assert captured.out == ""


def test_an_activation_that_calls_itself_by_another_name_leaves_its_input_alone() -> None:
    # F.threshold is seen as "_threshold".
    model = nn.Sequential(nn.Threshold(0.1, 20.0, inplace=True), nn.Dropout(0.5), nn.Linear(4, 1))
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    before = x.clone()
    predict(model, x, num_draws=5)
    assert torch.equal(x, before)
