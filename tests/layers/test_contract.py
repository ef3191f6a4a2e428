"""What every stochastic layer promises: one list of layers, the same checks for each."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from tests.layers.divergence import true_kl
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop import (
    BernoulliDropout,
    ConcreteDropout,
    DropConnect,
    FunctionDraw,
    GaussianDropout,
    LearnableDropout,
    Masksembles,
    MeanFieldGaussian,
    MixtureDropout,
    ScaledDropout,
    StochasticLayer,
    VariationalGaussianDropout,
    predict,
    rates,
    total_kl,
)
from bayesdrop.trace import RowDraw

RATES = [0.1, 0.5, 0.0, 0.3, 0.7, 0.2]


def fixed(layer: LearnableDropout) -> LearnableDropout:
    """Rates that are not trained: the gradient of the weights can be asked for in the usual way."""
    layer.logit_p.requires_grad_(False)
    return layer


LAYERS: dict[str, Callable[[], StochasticLayer]] = {
    "bernoulli": lambda: BernoulliDropout(nn.Linear(6, 5), p=0.4),
    "bernoulli per unit": lambda: BernoulliDropout(nn.Linear(6, 5), p=RATES),
    "bernoulli with bias": lambda: BernoulliDropout(nn.Linear(6, 5), p=0.4, bias_p=0.3),
    "bernoulli elementwise": lambda: BernoulliDropout(nn.Linear(6, 5), p=0.4, elementwise=True),
    "bernoulli no bias": lambda: BernoulliDropout(nn.Linear(6, 5, bias=False), p=0.4, scale_by_fan_in=True),
    "bernoulli conv1d": lambda: BernoulliDropout(nn.Conv1d(6, 4, 3, padding=1, groups=2), p=RATES),
    "bernoulli conv2d": lambda: BernoulliDropout(nn.Conv2d(6, 4, 3, stride=2, padding=1), p=0.4, bias_p=0.2),
    "bernoulli conv2d elementwise": lambda: BernoulliDropout(nn.Conv2d(6, 4, 3), p=RATES, elementwise=True),
    "bernoulli transposed1d": lambda: BernoulliDropout(
        nn.ConvTranspose1d(6, 4, 3, stride=2, groups=2, output_padding=1), p=RATES, bias_p=0.2
    ),
    "bernoulli transposed2d": lambda: BernoulliDropout(
        nn.ConvTranspose2d(6, 4, 3, padding=1, dilation=2, bias=False), p=0.4, scale_by_fan_in=True
    ),
    "bernoulli transposed3d": lambda: BernoulliDropout(nn.ConvTranspose3d(6, 4, 2), p=0.4, elementwise=True),
    "bernoulli words": lambda: BernoulliDropout(nn.Embedding(6, 5), p=0.4),
    "bernoulli words per unit": lambda: BernoulliDropout(nn.Embedding(6, 5, padding_idx=2), p=RATES),
    "bernoulli conv3d": lambda: BernoulliDropout(nn.Conv3d(6, 4, 2), p=0.4),
    "bernoulli bias without prior": lambda: BernoulliDropout(nn.Linear(6, 5), p=0.4, prior_on_bias=False),
    "gaussian": lambda: GaussianDropout(nn.Linear(6, 5), p=0.4),
    "gaussian with bias": lambda: GaussianDropout(nn.Linear(6, 5), p=0.4, bias_p=0.3, scale_by_fan_in=True),
    "gaussian per unit": lambda: GaussianDropout(nn.Linear(6, 5), p=RATES),
    "gaussian conv2d": lambda: GaussianDropout(nn.Conv2d(6, 6, 3, groups=3), p=0.4),
    "gaussian transposed2d": lambda: GaussianDropout(nn.ConvTranspose2d(6, 6, 3, groups=3), p=0.4),
    "gaussian words": lambda: GaussianDropout(nn.Embedding(6, 5), p=RATES),
    "dropconnect transposed2d": lambda: DropConnect(
        nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, groups=2), p=RATES, per_row=True, bias_p=0.2
    ),
    "dropconnect transposed3d": lambda: DropConnect(
        nn.ConvTranspose3d(6, 4, 2, bias=False), p=0.4, per_row=True
    ),
    "dropconnect words": lambda: DropConnect(nn.Embedding(6, 5, padding_idx=0), p=RATES, per_row=True),
    "dropconnect": lambda: DropConnect(nn.Linear(6, 5), p=0.4, per_row=True),
    "dropconnect per unit": lambda: DropConnect(nn.Linear(6, 5, bias=False), p=RATES, per_row=True),
    "dropconnect conv1d": lambda: DropConnect(nn.Conv1d(6, 4, 3, dilation=2, padding=1), p=0.4, per_row=True),
    "dropconnect conv2d": lambda: DropConnect(
        nn.Conv2d(6, 4, 3, stride=2, padding=1, groups=2, bias=False), p=RATES, per_row=True
    ),
    "dropconnect conv2d circular": lambda: DropConnect(
        nn.Conv2d(6, 4, 3, padding=1, padding_mode="circular"), p=0.4, per_row=True, bias_p=0.5
    ),
    "dropconnect conv3d": lambda: DropConnect(nn.Conv3d(6, 4, 3, padding="same"), p=0.4, per_row=True),
    "mixture": lambda: MixtureDropout(nn.Linear(6, 5), p=0.4, sigma=0.1, per_row=True),
    "mixture per unit": lambda: MixtureDropout(nn.Linear(6, 5), p=RATES, sigma=0.1, per_row=True),
    "mixture conv2d": lambda: MixtureDropout(
        nn.Conv2d(6, 4, 3, padding=1, groups=2), p=0.4, sigma=0.2, per_row=True
    ),
    "mixture of four": lambda: MixtureDropout(
        nn.Linear(6, 5), p=RATES, sigma=0.1, components=4, learn_sigma=True, per_row=True
    ),
    "mixture of low rank": lambda: MixtureDropout(
        nn.Linear(6, 5), p=0.4, sigma=0.1, rank=2, learn_sigma=True, per_row=True
    ),
    "mixture conv2d of both": lambda: MixtureDropout(
        nn.Conv2d(6, 4, 3, groups=2), p=RATES, sigma=0.1, components=3, rank=2, per_row=True
    ),
    "mixture words of both": lambda: MixtureDropout(
        nn.Embedding(6, 5, padding_idx=3), p=0.4, sigma=0.1, components=3, rank=2, per_row=True
    ),
    "mixture transposed1d": lambda: MixtureDropout(
        nn.ConvTranspose1d(6, 4, 3, groups=2), p=RATES, sigma=0.2, per_row=True
    ),
    "mixture words": lambda: MixtureDropout(nn.Embedding(6, 5), p=0.4, sigma=0.2, per_row=True),
    "concrete transposed2d": lambda: ConcreteDropout(
        nn.ConvTranspose2d(6, 4, 3, groups=2), 0.4, temperature=1e-3, masks="relaxed", per="unit"
    ),
    "concrete words": lambda: ConcreteDropout(nn.Embedding(6, 5), 0.4, per="unit"),
    "concrete words per layer": lambda: ConcreteDropout(nn.Embedding(6, 5, padding_idx=5), 0.4),
    "concrete": lambda: ConcreteDropout(nn.Linear(6, 5), 0.4, temperature=1e-3, masks="relaxed"),
    "concrete hard": lambda: ConcreteDropout(nn.Linear(6, 5), 0.4, masks="hard"),
    "concrete straight through": lambda: ConcreteDropout(nn.Linear(6, 5), 0.4, masks="straight-through"),
    "concrete per unit": lambda: ConcreteDropout(
        nn.Linear(6, 5), (0.1, 0.6), temperature=1e-3, per="unit", masks="relaxed"
    ),
    "concrete conv2d": lambda: ConcreteDropout(
        nn.Conv2d(6, 4, 3, padding=1, groups=2), 0.4, masks="hard", per="unit"
    ),
    "concrete conv3d": lambda: ConcreteDropout(nn.Conv3d(6, 4, 2), 0.4, temperature=1e-3, elementwise=True),
    "learnable": lambda: fixed(LearnableDropout(nn.Linear(6, 5), (0.1, 0.6))),
    "learnable per layer": lambda: fixed(LearnableDropout(nn.Linear(6, 5), 0.4, per="layer")),
    "learnable conv1d": lambda: fixed(LearnableDropout(nn.Conv1d(6, 4, 3), 0.4, elementwise=True)),
    "learnable conv2d": lambda: fixed(LearnableDropout(nn.Conv2d(6, 4, 3, groups=2), (0.1, 0.6))),
    "learnable transposed1d": lambda: fixed(LearnableDropout(nn.ConvTranspose1d(6, 4, 3, groups=2), 0.4)),
    "learnable words": lambda: fixed(LearnableDropout(nn.Embedding(6, 5, padding_idx=1), 0.4)),
    "variational transposed2d": lambda: VariationalGaussianDropout(
        nn.ConvTranspose2d(6, 4, 3, groups=2, stride=2), 0.3, per="unit"
    ),
    "variational transposed1d inputs": lambda: VariationalGaussianDropout(
        nn.ConvTranspose1d(6, 4, 3), 0.3, noise="inputs", per="unit"
    ),
    "mean field": lambda: MeanFieldGaussian(nn.Linear(6, 5), 0.3),
    "mean field per row": lambda: MeanFieldGaussian(nn.Linear(6, 5), 0.3, per_row=True, scale_by_fan_in=True),
    "mean field no bias": lambda: MeanFieldGaussian(nn.Linear(6, 5, bias=False), 0.3),
    "mean field bias a point": lambda: MeanFieldGaussian(nn.Linear(6, 5), 0.3, prior_on_bias=False),
    "mean field conv1d": lambda: MeanFieldGaussian(nn.Conv1d(6, 4, 3, dilation=2, padding=1), 0.3),
    "mean field conv2d": lambda: MeanFieldGaussian(nn.Conv2d(6, 4, 3, stride=2, groups=2, padding=1), 0.3),
    "mean field conv2d per row": lambda: MeanFieldGaussian(
        nn.Conv2d(6, 4, 3, padding=1, padding_mode="circular"), 0.3, per_row=True
    ),
    "mean field transposed2d": lambda: MeanFieldGaussian(
        nn.ConvTranspose2d(6, 4, 3, groups=2, stride=2), 0.3
    ),
    "mean field words": lambda: MeanFieldGaussian(nn.Embedding(6, 5, padding_idx=1), 0.3, per_row=True),
    "mean field conv3d": lambda: MeanFieldGaussian(nn.Conv3d(6, 4, 3, padding="same"), 0.3),
    "scaled": lambda: ScaledDropout(nn.Linear(6, 5), 0.4, scale=0.5),
    "scaled per unit": lambda: ScaledDropout(nn.Linear(6, 5), RATES, scale=2.0, scale_by_fan_in=True),
    "scaled conv2d": lambda: ScaledDropout(nn.Conv2d(6, 4, 3, groups=2), 0.3, scale=0.25),
    "scaled conv1d elementwise": lambda: ScaledDropout(nn.Conv1d(6, 4, 3), 0.3, elementwise=True, scale=0.7),
    "scaled words": lambda: ScaledDropout(nn.Embedding(6, 5, padding_idx=2), 0.3, scale=0.5),
    "masksembles": lambda: Masksembles(nn.Linear(6, 5)),
    "masksembles of three": lambda: Masksembles(nn.Linear(6, 5, bias=False), 0.5, num_masks=3),
    "masksembles conv1d": lambda: Masksembles(nn.Conv1d(6, 4, 3, padding=1, groups=2), scale=3.0),
    "masksembles conv2d": lambda: Masksembles(nn.Conv2d(6, 4, 3), num_masks=5, scale_by_fan_in=True),
    "masksembles words": lambda: Masksembles(nn.Embedding(6, 5, padding_idx=2), num_masks=8),
    "variational inputs": lambda: VariationalGaussianDropout(nn.Linear(6, 5), 0.4, noise="inputs"),
    "variational weights": lambda: VariationalGaussianDropout(nn.Linear(6, 5), 0.4, per="weight"),
    "variational conv2d": lambda: VariationalGaussianDropout(nn.Conv2d(6, 4, 3, groups=2), 0.3, per="unit"),
    "variational conv1d inputs": lambda: VariationalGaussianDropout(
        nn.Conv1d(6, 4, 3, padding=1), 0.3, noise="inputs", per="unit"
    ),
}

every_layer = pytest.mark.parametrize("name", LAYERS)


def inputs_for(layer: StochasticLayer, rows: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if isinstance(layer.layer, nn.Embedding):
        return torch.randint(6, (rows, 4), generator=generator)
    spatial = layer.layer.weight.dim() - 2
    x = torch.randn((rows, 6, *[4] * spatial), generator=generator, dtype=torch.float64)
    return x.to(dtype)


@every_layer
def test_a_draw_is_one_function(name: str) -> None:
    layer = LAYERS[name]().double()
    x = inputs_for(layer, 8)
    with FunctionDraw(layer, seed=3, index=5):
        whole = layer(x)
        backwards = layer(x.flip(0)).flip(0)
        single = torch.cat([layer(row.unsqueeze(0)) for row in x])
    with FunctionDraw(layer, seed=3, index=5):
        again = layer(x)
    assert torch.equal(whole, again)
    torch.testing.assert_close(whole, backwards)
    torch.testing.assert_close(whole, single)


@every_layer
def test_other_draws_and_other_seeds_are_other_functions(name: str) -> None:
    layer = LAYERS[name]().double()
    x = inputs_for(layer, 3)
    outputs = []
    for seed, index in [(0, 0), (0, 1), (1, 0)]:
        with FunctionDraw(layer, seed=seed, index=index):
            outputs.append(layer(x))
    assert not torch.equal(outputs[0], outputs[1])
    # Masks that are fixed are the same whatever the seed.
    assert torch.equal(outputs[0], outputs[2]) == isinstance(layer, Masksembles)


@every_layer
def test_training_noise_differs_between_rows_and_calls(name: str) -> None:
    layer = LAYERS[name]().double().train()
    one = inputs_for(layer, 1)
    x = one.repeat(16, *[1] * (one.dim() - 1))
    first, second = layer(x), layer(x)
    assert torch.equal(first, second) == isinstance(layer, Masksembles)  # whose masks the rows have in turn
    assert not torch.allclose(first, first[:1].expand_as(first))


@every_layer
def test_a_draw_holds_in_training_mode_too(name: str) -> None:
    layer = LAYERS[name]().double()
    x = inputs_for(layer, 4)
    with FunctionDraw(layer.eval(), seed=2):
        evaluated = layer(x)
    with FunctionDraw(layer.train(), seed=2):
        trained = layer(x)
    assert layer.training
    assert torch.equal(evaluated, trained)


@every_layer
def test_evaluation_is_the_wrapped_layer_itself(name: str) -> None:
    layer = LAYERS[name]().double().eval()
    x = inputs_for(layer, 4)
    torch.testing.assert_close(layer(x), layer.layer(x))


@every_layer
def test_noise_has_mean_one_so_that_draws_average_to_the_layer(name: str) -> None:
    layer = LAYERS[name]().double().eval()
    x = inputs_for(layer, 2)
    for kind in ("shared", "independent"):
        prediction = predict(layer, x, num_draws=800, draws=kind)
        error = (prediction.mean - layer.layer(x)).abs()
        assert (error <= 5 * prediction.standard_error + 1e-12).all()


@every_layer
def test_rows_of_their_own_have_the_same_moments_as_shared_draws(name: str) -> None:
    layer = LAYERS[name]().double().eval()
    x = inputs_for(layer, 2)
    num_draws = 1500
    variance = []
    for kind in ("shared", "independent"):
        draws = predict(layer, x, num_draws=num_draws, draws=kind).draws
        square = (draws - draws.mean(0)).square()
        variance.append((square.mean(0), square.std(0) / math.sqrt(num_draws)))
    (first, first_error), (second, second_error) = variance
    assert ((first - second).abs() <= 5 * (first_error**2 + second_error**2).sqrt() + 1e-12).all()


@every_layer
def test_kl_is_finite_pure_and_has_gradients(name: str) -> None:
    layer = LAYERS[name]().double()
    before = copy.deepcopy(layer.state_dict())
    state = torch.get_rng_state()
    value = layer.kl()
    assert value.shape == ()
    assert torch.isfinite(value)
    assert torch.equal(layer.kl(), value)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[key], tensor) for key, tensor in layer.state_dict().items())
    value.backward()
    # A log-uniform prior does not see the weights, only the noise.
    found = layer.log_alpha if isinstance(layer, VariationalGaussianDropout) else layer.layer.weight
    assert found.grad is not None
    assert torch.isfinite(found.grad).all()


@pytest.mark.parametrize("name", [name for name in LAYERS if not name.startswith("variational")])
def test_kl_takes_another_length_scale(name: str) -> None:
    layer, other = LAYERS[name]().double(), LAYERS[name]().double()
    other.load_state_dict(layer.state_dict())
    other.length_scale = 0.7
    torch.testing.assert_close(layer.kl(0.7), other.kl())
    assert not torch.equal(layer.kl(0.7), layer.kl())


def stirred(layer: StochasticLayer) -> StochasticLayer:
    """Weights, biases, rates and widths away from where they start, and a prior that tells in the sum."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in layer.double().parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    layer.length_scale = 0.9
    return layer


@every_layer
def test_kl_is_the_divergence_of_the_posterior_that_the_layer_states(name: str) -> None:
    layer = stirred(LAYERS[name]())
    truth, value = true_kl(layer), layer.kl().item()
    assert truth.agrees(value), f"kl is {value}, the posterior's {truth}"
    assert not [factor for factor in (2, -1, 0) if truth.agrees(factor * value)], "the truth tells nothing"


def test_kl_of_masks_that_are_not_divided_by_the_rate() -> None:
    layer = stirred(LearnableDropout(nn.Linear(6, 5), (0.1, 0.6), scaling="raw"))
    assert true_kl(layer).agrees(layer.kl().item())


def test_a_wrong_kl_does_not_keep_the_contract() -> None:
    """Typical slips, each a layer of its own."""

    class NoEntropy(BernoulliDropout):
        def kl(self, length_scale: float | None = None) -> Tensor:
            return super().kl(length_scale) + 6 * bd.functional.bernoulli_entropy(self.p)

    class NoBias(BernoulliDropout):
        def kl(self, length_scale: float | None = None) -> Tensor:
            return super().kl(length_scale) - self.bias_kl(length_scale)

    class OtherMean(BernoulliDropout):
        def kl(self, length_scale: float | None = None) -> Tensor:
            l = self.prior_length_scale(length_scale)
            return super().kl(length_scale) - 0.5 * l**2 * self.p * self.weight.square().sum()

    class NoHalf(BernoulliDropout):
        def kl(self, length_scale: float | None = None) -> Tensor:
            return super().kl(length_scale) + self.bias_kl(length_scale)

    class NoWidth(MeanFieldGaussian):
        def kl(self, length_scale: float | None = None) -> Tensor:
            return super().kl(length_scale) - 0.5 * 0.9**2 * (2 * self.log_std).exp().sum()

    class UnitsForWeights(VariationalGaussianDropout):
        def kl(self, length_scale: float | None = None) -> Tensor:
            return super().kl(length_scale) * 6 / self.layer.weight.numel()

    layers = [
        *(kind(nn.Linear(6, 5), p=0.4) for kind in (NoEntropy, NoBias, OtherMean, NoHalf)),
        NoWidth(nn.Linear(6, 5), 0.3),
        UnitsForWeights(nn.Linear(6, 5), 0.3),
    ]
    unseen = [type(one).__name__ for one in map(stirred, layers) if true_kl(one).agrees(one.kl().item())]
    assert not unseen


@every_layer
def test_the_state_dict_round_trips(name: str) -> None:
    layer, other = LAYERS[name]().double(), LAYERS[name]().double()
    other.load_state_dict(layer.state_dict())
    x = inputs_for(layer, 3)
    with FunctionDraw(layer):
        expected = layer(x)
    with FunctionDraw(other):
        assert torch.equal(other(x), expected)


@every_layer
def test_dtype_follows_the_input(name: str) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        layer = LAYERS[name]().to(dtype)
        x = inputs_for(layer, 3, dtype)
        assert layer.train()(x).dtype == dtype
        with FunctionDraw(layer):
            assert layer(x).dtype == dtype


@every_layer
def test_double_and_single_precision_draw_the_same_function(name: str) -> None:
    layer = LAYERS[name]()
    x = inputs_for(layer, 3)
    with FunctionDraw(layer):
        single = layer(x.float() if x.is_floating_point() else x)
    layer.double()
    with FunctionDraw(layer):
        torch.testing.assert_close(single.double(), layer(x), rtol=1e-4, atol=1e-5)


@every_layer
def test_one_row_without_a_row_axis(name: str) -> None:
    layer = LAYERS[name]().double()
    x = inputs_for(layer, 1)
    with FunctionDraw(layer):
        torch.testing.assert_close(layer(x[0]), layer(x)[0])
    assert layer.train()(x[0]).shape == layer(x)[0].shape


@every_layer
def test_gradients_reach_weights_and_inputs_in_training(name: str) -> None:
    layer = LAYERS[name]().double().train()
    x = inputs_for(layer, 4)
    words = isinstance(layer.layer, nn.Embedding)
    layer(x if words else x.requires_grad_()).square().sum().backward()
    assert layer.layer.weight.grad is not None
    assert layer.layer.weight.grad.abs().sum() > 0
    if words:
        return  # numbers of words have no gradient
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


@every_layer
def test_row_draws_are_seeded(name: str) -> None:
    layer = LAYERS[name]().double()
    x = inputs_for(layer, 4)
    outputs = []
    for offset in (0, 0, 4):
        with RowDraw(layer, seed=1, index=2, offset=offset):
            outputs.append(layer(x))
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2]) == isinstance(layer, Masksembles)


def test_every_layer_says_its_rate() -> None:
    layers = {name: make() for name, make in LAYERS.items()}
    assert not [name for name, layer in layers.items() if "p=0" not in repr(layer)]
    assert not [name for name, layer in layers.items() if not torch.equal(rates(layer)[""], layer.p)]


def test_total_kl_is_the_sum_over_layers() -> None:
    layers = [LAYERS["bernoulli"](), DropConnect(nn.Linear(5, 6), p=0.1), LAYERS["gaussian"]()]
    total = sum(layer.kl().item() for layer in layers)
    assert total_kl(nn.Sequential(*layers)).item() == pytest.approx(total, rel=1e-6)
    assert total_kl(nn.Linear(2, 2)).item() == 0.0


@pytest.mark.parametrize("kind", [BernoulliDropout, GaussianDropout, DropConnect, MixtureDropout])
@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, math.nan, [0.1, 0.2], [[0.1]], [0.1, 0.2, 1.0]])
def test_bad_rates_are_refused(kind: type[StochasticLayer], p: object) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__}: `p` must be"):
        kind(nn.Linear(3, 2), p=p)


@pytest.mark.parametrize("kind", [BernoulliDropout, GaussianDropout, DropConnect, MixtureDropout])
def test_bad_layers_and_length_scales_are_refused(kind: type[StochasticLayer]) -> None:
    with pytest.raises(TypeError, match=r"`layer` must be an nn\.Linear, .* or nn\.Embedding; got ReLU"):
        kind(nn.ReLU(), p=0.1)
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="`length_scale` must be a positive number"):
            kind(nn.Linear(3, 2), p=0.1, length_scale=bad)


def test_other_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="`bias_p` must be None for a layer without bias"):
        BernoulliDropout(nn.Linear(3, 2, bias=False), p=0.1, bias_p=0.1)
    with pytest.raises(ValueError, match="`sigma` must be a positive number"):
        MixtureDropout(nn.Linear(3, 2), p=0.1, sigma=0.0)
    with pytest.raises(ValueError, match=r"`x` must be an input with 3 units on axis 1; got \(5, 4\)"):
        BernoulliDropout(nn.Linear(3, 2), p=0.1).train()(torch.zeros(5, 4))
    with pytest.raises(TypeError, match="a layer with weights"):
        BernoulliDropout(nn.LazyLinear(2), p=0.1)


@pytest.mark.parametrize("kind", [BernoulliDropout, GaussianDropout, DropConnect, MixtureDropout])
def test_a_rate_that_is_one_in_single_precision_is_refused(kind: type[StochasticLayer]) -> None:
    """1 - 1e-9 is 1 in float32, where the noise, divided by 1 - p, and the divergence were infinite."""
    with pytest.raises(ValueError, match="`p` must be below 1 when it is rounded to float32"):
        kind(nn.Linear(3, 2), 1 - 1e-9)
    doubles = kind(nn.Linear(3, 2).double(), 1 - 1e-9)
    assert torch.isfinite(doubles.kl())
    assert torch.isfinite(doubles.train()(torch.ones(4, 3, dtype=torch.float64))).all()


def test_what_is_no_module_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="total_kl: `model` must be"):
        bd.total_kl("net")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="rates: `model` must be"):
        bd.rates({})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="total_kl: `length_scale` must be a positive number"):
        bd.total_kl(nn.Sequential(BernoulliDropout(nn.Linear(2, 2))), -1.0)
