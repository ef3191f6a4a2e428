"""Noise on transposed convolutions and on tables of words: all masks, loops by hand, and what is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import (
    BernoulliDropout,
    ConcreteDropout,
    DropConnect,
    FunctionDraw,
    GaussianDropout,
    LearnableDropout,
    MixtureDropout,
    StochasticLayer,
    VariationalGaussianDropout,
    convert,
    predict,
)
from bayesdrop.functional import bernoulli_entropy, gaussian_dropout_kl


class Texts(nn.Module):
    """Words, a dropout, and a linear map of their mean."""

    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3, padding_idx=padding_idx)
        self.drop: nn.Module = nn.Dropout(0.2)
        self.out = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.drop(torch.tanh(self.words(x)).mean(1)))


def all_masks(p: Tensor) -> tuple[Tensor, Tensor]:
    masks = torch.tensor(list(product([0.0, 1.0], repeat=len(p))), dtype=torch.float64)
    return masks, torch.where(masks > 0, 1 - p, p).prod(-1)


def assert_moments(model: nn.Module, x: Tensor, outputs: Tensor, chances: Tensor) -> None:
    """Mean and variance of draws against the sums over (M, N, ...) outputs of all masks."""
    num_draws = 3000
    chances = chances.reshape(-1, *[1] * (outputs.dim() - 1))
    mean = (chances * outputs).sum(0)
    square = (outputs - mean).square()
    variance = (chances * square).sum(0)
    spread = (chances * (square - variance).square()).sum(0).sqrt()
    assert (variance > 0).any()
    for kind in ("shared", "independent"):
        found = predict(model, x, num_draws=num_draws, seed=1, draws=kind)
        assert ((found.mean - mean).abs() <= 5 * (variance / num_draws).sqrt() + 1e-12).all()
        allowed = 5 * spread / num_draws**0.5 + 25 * variance / num_draws + 1e-12
        assert ((found.epistemic - variance).abs() <= allowed).all()


def test_transposed_convolutions_drop_whole_channels_with_the_sums_over_all_masks() -> None:
    layer = BernoulliDropout(
        nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1, groups=2), p=[0.3, 0.1, 0.5, 0.2]
    )
    net = nn.Sequential(layer, nn.Tanh(), nn.Flatten()).double()
    x = torch.randn(3, 4, 3, 3, dtype=torch.float64)
    masks, chances = all_masks(layer.p)
    with torch.no_grad():
        scaled = (masks / (1 - layer.p)).reshape(-1, 1, 4, 1, 1)
        outputs = torch.stack([net[1:](layer.layer(x * z)) for z in scaled])
    assert_moments(net, x, outputs, chances)


def test_words_are_dropped_wherever_they_occur_with_the_sums_over_all_masks() -> None:
    model = Texts().double()
    model.drop = nn.Identity()
    p = torch.tensor([0.3, 0.1, 0.5, 0.2, 0.6], dtype=torch.float64)
    net = convert(model, "bernoulli", where=nn.Embedding, p=p)
    x = torch.tensor([[0, 1, 0, 2], [4, 4, 4, 4], [2, 3, 2, 1]])
    masks, chances = all_masks(p)
    table = model.words.weight.detach()
    with torch.no_grad():
        tables = [table * (z / (1 - p)).unsqueeze(1) for z in masks]
        outputs = torch.stack([model.out(torch.tanh(t[x]).mean(1)) for t in tables])
    assert_moments(net, x, outputs, chances)


def test_every_draw_of_words_is_a_table_times_a_held_mask() -> None:
    layer = BernoulliDropout(nn.Embedding(7, 3), p=0.4).double()
    every = torch.arange(7)
    x = torch.randint(7, (6, 4))
    draws = predict(layer, x, num_draws=9, seed=5, likelihood=None, keep_draws=True).draws
    seen = set()
    for index, draw in enumerate(draws):
        with torch.no_grad(), FunctionDraw(layer, seed=5, index=index):
            table = layer(every)
        kept = (table / layer.layer.weight).detach()
        torch.testing.assert_close(kept, kept[:, :1].expand_as(kept))
        assert {round(float(k), 6) for k in kept[:, 0]} <= {0.0, round(1 / 0.6, 6)}
        seen.add(tuple(kept[:, 0].tolist()))
        torch.testing.assert_close(draw, table[x])
    assert len(seen) > 5


@pytest.mark.parametrize("kind", [BernoulliDropout, GaussianDropout, ConcreteDropout, LearnableDropout])
def test_in_training_a_row_has_one_noise_for_a_word_and_rows_differ(kind: type[StochasticLayer]) -> None:
    layer = kind(nn.Embedding(5, 2), 0.5).double().train()
    if isinstance(layer, LearnableDropout):
        layer.logit_p.requires_grad_(False)
    out = layer(torch.tensor([[1, 2, 1, 1]] * 40))
    torch.testing.assert_close(out[:, 0], out[:, 2])
    torch.testing.assert_close(out[:, 0], out[:, 3])
    assert out[:, 0].unique(dim=0).shape[0] > 1
    assert not torch.equal(out[:, 0] / layer.layer.weight[1], out[:, 1] / layer.layer.weight[2])


@pytest.mark.parametrize(
    "name", ["bernoulli", "gaussian", "concrete", "learnable", "learnable raw", "dropconnect", "mixture"]
)
def test_padding_is_a_constant_without_noise_and_divergence(name: str) -> None:
    name, _, scaling = name.partition(" ")
    options = {"scaling": scaling} if scaling else {}
    table = nn.Embedding(5, 3, padding_idx=2).double()
    with torch.no_grad():
        table.weight[2] = 7.0
    without = nn.Embedding(4, 3).double()
    without.weight.data = torch.cat([table.weight.data[:2], table.weight.data[3:]])
    layer = convert(table, name, where="", p=0.5, **options)
    other = convert(without, name, where="", p=0.5, **options)
    assert layer.layer.weight[2].tolist() == [7.0] * 3
    x = torch.tensor([[2, 0, 2, 1]])
    sevens = torch.full((3,), 7.0, dtype=torch.float64)
    for index in range(8):
        with FunctionDraw(layer, index=index):
            assert torch.equal(layer(x)[0, 0], sevens)
    torch.testing.assert_close(layer.eval()(x), table(x) if not scaling else layer.weight[x])
    assert torch.equal(layer.eval()(x)[0, 2], sevens)
    if name == "learnable":
        layer.logit_p.requires_grad_(False)
    assert torch.equal(layer.train()(x)[0, 2], sevens)
    torch.testing.assert_close(layer.kl(), other.kl())


def test_divergences_are_sums_over_channels_and_words() -> None:
    l, p = 0.3, torch.tensor([0.3, 0.1, 0.5, 0.2], dtype=torch.float64)
    conv = nn.ConvTranspose2d(4, 6, 3, groups=2).double()
    words = nn.Embedding(4, 3).double()
    for layer in (conv, words):
        squares = layer.weight.detach().flatten(1).square().sum(1)
        bias = 0.0 if layer is words else 0.5 * l**2 * conv.bias.detach().square().sum()
        expected = (0.5 * l**2 * squares / (1 - p) - bernoulli_entropy(p)).sum() + bias
        torch.testing.assert_close(BernoulliDropout(layer, p=p, length_scale=l).kl(), expected)
        concrete = ConcreteDropout(layer, p, per="unit", length_scale=l)
        torch.testing.assert_close(concrete.kl(), expected)
        one = (0.5 * l**2 * squares / 0.7).sum() - 4 * bernoulli_entropy(p[0]) + bias
        torch.testing.assert_close(BernoulliDropout(layer, p=0.3, length_scale=l).kl(), one)
        torch.testing.assert_close(LearnableDropout(layer, 0.3, length_scale=l).kl(), one)
        gaussian = gaussian_dropout_kl(squares, p, l).sum() + bias
        torch.testing.assert_close(GaussianDropout(layer, p=p, length_scale=l).kl(), gaussian)
        size = layer.weight.numel()
        each = 0.5 * l**2 * squares.sum() / 0.7 - size * bernoulli_entropy(p[0]) + bias
        torch.testing.assert_close(DropConnect(layer, p=0.3, length_scale=l).kl(), each)


def test_the_inputs_of_a_transposed_output_are_counted_in_the_mean() -> None:
    """A map of ones: each output is the number of inputs that it sums over."""
    conv = nn.ConvTranspose2d(4, 6, (3, 4), stride=(2, 3), groups=2, bias=False).double()
    nn.init.ones_(conv.weight)
    layer = BernoulliDropout(conv, p=0.1, length_scale=0.5, scale_by_fan_in=True)
    counts = conv(torch.ones(1, 4, 20, 20, dtype=torch.float64))[0, 0, 6:24, 6:24]
    assert layer.prior_length_scale() == pytest.approx(0.5 * counts.mean().item() ** 0.5)


@pytest.mark.parametrize("kind", [BernoulliDropout, ConcreteDropout, DropConnect, MixtureDropout])
def test_the_output_size_is_handed_on(kind: type[StochasticLayer]) -> None:
    conv = nn.ConvTranspose1d(3, 2, 3, stride=2).double()
    layer, x = kind(conv, 0.3), torch.randn(4, 3, 5, dtype=torch.float64)
    for size in (11, 12):
        assert layer.train()(x, output_size=(size,)).shape == (4, 2, size)
        torch.testing.assert_close(layer.eval()(x, output_size=(size,)), conv(x, [size]))
        with FunctionDraw(layer):
            assert layer(x, output_size=(size,)).shape == (4, 2, size)


def test_moments_without_draws_of_a_transposed_convolution_and_not_of_words() -> None:
    """Var h = p / (1 - p) sum_k (W_k x_k)^2, channel by channel."""
    conv = nn.ConvTranspose1d(3, 2, 3, stride=2).double()
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    found = predict(BernoulliDropout(conv, p=0.3), x, method="moments")
    with torch.no_grad():
        apart = [conv(x * mask.reshape(3, 1)) - conv(0 * x) for mask in torch.eye(3, dtype=torch.float64)]
        torch.testing.assert_close(found.mean, conv(x))
    torch.testing.assert_close(found.epistemic, 0.3 / 0.7 * torch.stack(apart).square().sum(0))
    with pytest.raises(ValueError, match="use method='draws'"):
        predict(BernoulliDropout(nn.Embedding(3, 2)), torch.tensor([[0, 1]]), method="moments")


@pytest.mark.parametrize(
    "layer",
    [
        BernoulliDropout(nn.Embedding(6, 3, padding_idx=0), 0.3),
        DropConnect(nn.Embedding(6, 3, padding_idx=0), 0.3),
        MixtureDropout(nn.Embedding(6, 3), 0.3, components=3, rank=2),
        DropConnect(nn.ConvTranspose1d(4, 3, 2), 0.3),
    ],
    ids=lambda layer: f"{type(layer).__name__} of {type(layer.layer).__name__}",
)
def test_the_engine_runs_many_draws_together_and_they_are_those_of_single_passes(
    layer: StochasticLayer,
) -> None:
    net = nn.Sequential(layer.double(), nn.Tanh(), nn.Flatten())
    words = isinstance(layer.layer, nn.Embedding)
    x = torch.randint(6, (5, 4)) if words else torch.randn(5, 4, 3, dtype=torch.float64)
    prediction = predict(net, x, num_draws=30, seed=2)
    assert "stacked" in prediction.plan
    for index in (0, 13, 29):
        with torch.no_grad(), FunctionDraw(net, seed=2, index=index):
            torch.testing.assert_close(net(x), prediction.draws[index])


def test_learned_rates_of_words_have_the_gradient_of_the_sum_over_masks() -> None:
    """Mean loss over all masks, differentiated, against the mean of many estimates, within five errors."""
    torch.manual_seed(0)
    layer = LearnableDropout(nn.Embedding(3, 2), torch.tensor([0.3, 0.5, 0.6])).double()
    likelihood = bd.Gaussian(1.0)
    objective = bd.NegativeELBO(likelihood, num_data=10)
    x = torch.tensor([[0, 1, 0], [1, 2, 2]])
    y = torch.randn(2, 3, 2, dtype=torch.float64)
    p = torch.sigmoid(layer.logit_p)
    masks, _ = all_masks(p.detach())
    chances = torch.where(masks > 0, 1 - p, p).prod(-1)
    losses = []
    for z in masks:
        f = (layer.layer.weight * (z / (1 - p)).unsqueeze(1))[x]
        losses.append(-likelihood.log_prob(f, y).mean())
    exact = (chances * torch.stack(losses)).sum() + layer.kl() / 10
    (expected,) = torch.autograd.grad(exact, [layer.logit_p])
    found = []
    for _ in range(600):
        layer.zero_grad()
        objective(layer.train(), x, y).loss.backward()
        assert layer.logit_p.grad is not None
        found.append(layer.logit_p.grad.clone())
    estimates = torch.stack(found)
    error = estimates.std(0) / len(found) ** 0.5
    assert ((estimates.mean(0) - expected).abs() <= 5 * error).all()


def test_convert_finds_transposed_convolutions_and_leaves_tables_unless_they_are_named() -> None:
    net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Dropout1d(0.3), nn.ConvTranspose1d(4, 2, 3))
    new = convert(net, "concrete")
    assert isinstance(new[3], ConcreteDropout)
    assert new[3].p.item() == pytest.approx(0.3)
    assert not new[3].elementwise
    assert isinstance(convert(net, "dropconnect", where=nn.ConvTranspose1d)[3], DropConnect)
    everywhere = convert(net, "mixture", where="weights")
    assert isinstance(everywhere[3], MixtureDropout)
    plain = convert(new, "dropout")
    assert isinstance(plain[2], nn.Dropout1d)

    text = Texts()
    assert isinstance(convert(text, "bernoulli", where="weights").words, nn.Embedding)
    x = torch.tensor([[0, 1, 4]])
    for where in (nn.Embedding, "words", lambda path, module: path == "words", ["weights", nn.Embedding]):
        new = convert(text, "concrete", where=where)
        assert isinstance(new.words, ConcreteDropout)
        torch.testing.assert_close(new.eval()(x), text.eval()(x))
    assert isinstance(convert(new, "gaussian", where=nn.Embedding).words, GaussianDropout)
    assert isinstance(convert(new, "none", where=nn.Embedding).words, nn.Embedding)
    with pytest.raises(ValueError, match=r"cannot become nn.Dropout: nn.Dropout cannot drop a word"):
        convert(new, "dropout", where=nn.Embedding)
    after = nn.Sequential(nn.Embedding(5, 3), nn.Dropout(0.2), nn.LayerNorm(3))
    assert convert(after, "concrete")[1].num_units == 3


def test_words_and_transposed_convolutions_are_saved_audited_and_listed(tmp_path: Path) -> None:
    words = BernoulliDropout(nn.Embedding(6, 4, padding_idx=0), p=[0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    net = nn.Sequential(
        words,
        nn.Flatten(),
        nn.Unflatten(1, (4, 3)),
        ConcreteDropout(nn.ConvTranspose1d(4, 2, 3, stride=2), 0.2),
    )
    x = torch.randint(6, (5, 3))
    bd.save(net, tmp_path / "net.pt")
    again = bd.load(tmp_path / "net.pt")
    assert torch.equal(predict(net, x, num_draws=5).draws, predict(again, x, num_draws=5).draws)
    rates = bd.rates(again)
    assert rates["0"].tolist() == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert rates["3"].item() == pytest.approx(0.2)
    torch.testing.assert_close(bd.total_kl(again), words.kl() + net[3].kl())
    told = str(bd.audit(net, x))
    assert "BernoulliDropout" in told
    assert "ConcreteDropout" in told


def test_several_functions_at_once_have_their_own_words() -> None:
    for layer in (BernoulliDropout(nn.Embedding(6, 3), 0.4), DropConnect(nn.Embedding(6, 3), 0.4)):
        net = nn.Sequential(layer, nn.Flatten(), nn.Linear(6, 2)).double()
        x = torch.randint(6, (4, 2))
        with torch.no_grad(), FunctionDraw(net, index=[3, 8]):
            both = net(torch.cat([x, x]))
        for k, index in enumerate((3, 8)):
            with torch.no_grad(), FunctionDraw(net, index=index):
                torch.testing.assert_close(net(x), both[4 * k : 4 * k + 4])


def test_a_word_network_learns_by_fit() -> None:
    torch.manual_seed(0)
    x = torch.randint(5, (64, 4))
    y = (x == 3).any(1).long()
    model = convert(Texts(), "concrete", where=nn.Embedding)
    result = bd.fit(model, (x, y), bd.NegativeELBO(bd.Categorical(), num_data=64), epochs=60, lr=0.02)
    prediction = predict(model, x, num_draws=50, likelihood=bd.Categorical())
    assert (prediction.label == y).double().mean() > 0.9
    assert result is not None


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`elementwise` must be False for an nn\.Embedding"):
        BernoulliDropout(nn.Embedding(3, 2), elementwise=True)
    with pytest.raises(ValueError, match=r"`layer` must be an nn\.Embedding without max_norm"):
        BernoulliDropout(nn.Embedding(3, 2, max_norm=1.0))
    with pytest.raises(TypeError, match="`layer` must be a map of numbers"):
        VariationalGaussianDropout(nn.Embedding(3, 2))
    with pytest.raises(ValueError, match="`bias_p` must be None for a layer without bias"):
        DropConnect(nn.Embedding(3, 2), bias_p=0.2)
    with pytest.raises(ValueError, match="one per input unit"):
        BernoulliDropout(nn.Embedding(3, 2), p=[0.1, 0.2])
    with pytest.raises(IndexError):
        BernoulliDropout(nn.Embedding(3, 2)).train()(torch.tensor([[3]]))


def test_one_word_and_the_gradient_in_the_table() -> None:
    layer = BernoulliDropout(nn.Embedding(4, 3), p=0.5).double()
    with FunctionDraw(layer):
        torch.testing.assert_close(layer(torch.tensor(2)), layer(torch.tensor([[2]]))[0, 0])
    x = torch.tensor([[0, 1, 1]])
    with FunctionDraw(layer, seed=4):
        layer(x).sum().backward()
        kept = (layer(torch.arange(4)) / layer.layer.weight)[:, 0].detach()
    counts = torch.tensor([1.0, 2.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(layer.layer.weight.grad[:, 0], counts * kept)
    assert F.embedding(x, layer.weight).shape == (1, 3, 3)
