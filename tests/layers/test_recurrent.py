"""Recurrent layers with one mask per sequence."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from bayesdrop import (
    BernoulliDropout,
    FunctionDraw,
    Gaussian,
    LearnableDropout,
    NegativeELBO,
    arm_loss,
    fit,
    load,
    predict,
    rates,
    save,
    total_kl,
)
from bayesdrop.layers import RecurrentDropout
from bayesdrop.trace import RowDraw

MODULES: dict[str, Callable[[], nn.RNNBase]] = {
    "lstm": lambda: nn.LSTM(3, 4),
    "lstm deep both ways": lambda: nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True),
    "lstm projected": lambda: nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2),
    "gru": lambda: nn.GRU(3, 4, 2, batch_first=True),
    "gru both ways": lambda: nn.GRU(3, 4, bidirectional=True, bias=False),
    "rnn": lambda: nn.RNN(3, 4, 2, bidirectional=True),
    "rnn relu": lambda: nn.RNN(3, 4, nonlinearity="relu", batch_first=True),
}
KINDS = ["bernoulli", "gaussian", "concrete", "learnable", "dropconnect", "mixture", "variational"]

every_module = pytest.mark.parametrize("name", MODULES)
every_kind = pytest.mark.parametrize("kind", KINDS)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sequences(module: Any, rows: int = 5, steps: int = 6, seed: int = 0) -> Tensor:
    shape = (rows, steps, 3) if module.batch_first else (steps, rows, 3)
    return torch.randn(shape, dtype=torch.float64, generator=seeded(seed))


def packed(module: Any, x: Tensor) -> PackedSequence:
    lengths = torch.tensor([2, 6, 4, 1, 6])
    return pack_padded_sequence(x, lengths, batch_first=module.batch_first, enforce_sorted=False)


def start(module: nn.RNNBase, rows: int = 5) -> Any:
    count = module.num_layers * (2 if module.bidirectional else 1)
    sizes = (module.proj_size or module.hidden_size, module.hidden_size)
    h, c = (
        torch.randn(count, rows, size, dtype=torch.float64, generator=seeded(i))
        for i, size in enumerate(sizes)
    )
    return (h, c) if isinstance(module, nn.LSTM) else h


def flat(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [tensor for part in result for tensor in flat(part)] if isinstance(result, tuple) else []


def assert_same(first: Any, second: Any) -> None:
    pairs = list(zip(flat(first), flat(second), strict=True))
    assert pairs
    for a, b in pairs:
        torch.testing.assert_close(a, b)


def calls(module: nn.RNNBase) -> Iterator[tuple[Any, Any]]:
    """Every layout of input and state."""
    x, hx = sequences(module), start(module)
    one = x[0] if module.batch_first else x[:, 0]
    alone = tuple(s[:, 0] for s in hx) if isinstance(hx, tuple) else hx[:, 0]
    yield from (
        (x, None),
        (x, hx),
        (packed(module, x), hx),
        (packed(module, x), None),
        (one, None),
        (one, alone),
    )


@every_module
@every_kind
def test_evaluation_is_the_wrapped_module_itself(name: str, kind: str) -> None:
    module = MODULES[name]().double()
    plain = copy.deepcopy(module)
    layer = RecurrentDropout(module, kind, 0.3).eval()
    for x, hx in calls(plain):
        for ours, theirs in zip(flat(layer(x, hx)), flat(plain(x, hx)), strict=True):
            assert torch.equal(ours, theirs)


@every_module
def test_both_ways_of_running_without_noise_are_the_wrapped_module(name: str) -> None:
    layer = RecurrentDropout(MODULES[name]().double(), p=0.0)
    plain = layer.layer
    for x, hx in calls(plain):
        expected = plain(x, hx)
        assert_same(layer.train()(x, hx), expected)  # noise of every row: step by step
        with FunctionDraw(layer):
            assert_same(layer(x, hx), expected)  # shared: torch's kernels


def with_masks(plain: nn.RNNBase, masks: dict[str, Tensor], row: int) -> nn.RNNBase:
    """A plain module whose weights are W diag(z) of one row."""
    module = copy.deepcopy(plain)
    with torch.no_grad():
        for key, mask in masks.items():
            getattr(module, key).mul_(mask[row])
    return module


@every_module
@pytest.mark.parametrize("is_packed", [False, True])
def test_every_sequence_has_its_own_weights_at_every_step(
    name: str, is_packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = RecurrentDropout(MODULES[name]().double(), p=0.5).train()
    plain, rows = layer.layer, 5
    masks = {}
    generator = seeded(3)
    for maps, role in ((layer.inputs, "ih"), (layer.recurrent, "hh")):
        for suffix, part in maps.items():
            units = part.layer.in_features
            mask = torch.rand(rows, units, dtype=torch.float64, generator=generator)
            masks[f"weight_{role}_{suffix}"] = mask
            monkeypatch.setattr(part, "multiplier", lambda x, mask=mask: mask)
    x, hx = sequences(plain), start(plain)
    lengths = [2, 6, 4, 1, 6] if is_packed else [6] * rows
    outputs, final = layer(packed(plain, x) if is_packed else x, hx)
    if is_packed:
        outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=plain.batch_first)
    by_row = outputs if plain.batch_first else outputs.transpose(0, 1)
    for row in range(rows):
        alone = with_masks(plain, masks, row)
        one = (x[row] if plain.batch_first else x[:, row])[: lengths[row]]
        own = tuple(s[:, row] for s in hx) if isinstance(hx, tuple) else hx[:, row]
        expected, last = alone(one, own)
        torch.testing.assert_close(by_row[row, : lengths[row]], expected)
        assert_same(tuple(s[:, row] for s in flat(final)), tuple(flat(last)))


def with_step_masks(
    layer: RecurrentDropout, monkeypatch: pytest.MonkeyPatch, rows: int = 5, steps: int = 6
) -> dict[str, Tensor]:
    """Put known masks, (rows, steps, units), in the place of random ones; by the weight's name."""
    masks, generator = {}, seeded(3)
    for maps, role in ((layer.inputs, "ih"), (layer.recurrent, "hh")):
        for suffix, part in maps.items():
            mask = torch.rand(rows, steps, part.layer.in_features, dtype=torch.float64, generator=generator)
            masks[f"weight_{role}_{suffix}"] = mask
            monkeypatch.setattr(part, "multiplier", lambda x, mask=mask: mask)
    return masks


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn relu"])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("with_gradient", [False, True])
def test_with_elementwise_noise_every_step_has_its_own_weights(
    name: str, is_packed: bool, with_gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = RecurrentDropout(MODULES[name]().double(), p=0.5, elementwise=True).train()
    plain = layer.layer
    masks = with_step_masks(layer, monkeypatch)
    x, hx = sequences(plain), start(plain)
    lengths = [2, 6, 4, 1, 6] if is_packed else [6] * 5
    with torch.set_grad_enabled(with_gradient):
        outputs, final = layer(packed(plain, x) if is_packed else x, hx)
    if is_packed:
        outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=plain.batch_first)
    by_row = outputs if plain.batch_first else outputs.transpose(0, 1)
    for row in range(5):
        one = x[row] if plain.batch_first else x[:, row]
        state = tuple(s[:, row] for s in hx) if isinstance(hx, tuple) else hx[:, row]
        for t in range(lengths[row]):
            now = with_masks(plain, {key: mask[:, t] for key, mask in masks.items()}, row)
            expected, state = now(one[t : t + 1], state)
            torch.testing.assert_close(by_row[row, t], expected[0])
        assert_same(tuple(s[:, row] for s in flat(final)), tuple(flat(state)))


@pytest.mark.parametrize("with_gradient", [False, True])
def test_masks_of_steps_are_read_backwards_with_their_steps(
    with_gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = RecurrentDropout(nn.GRU(3, 4, bidirectional=True).double(), p=0.5, elementwise=True).train()
    masks = with_step_masks(both, monkeypatch)
    alone = RecurrentDropout(nn.GRU(3, 4).double(), p=0.5, elementwise=True).train()
    names = [name for name, _ in alone.layer.named_parameters()]
    alone.layer.load_state_dict({name: both.layer.state_dict()[f"{name}_reverse"] for name in names})
    for part, role in ((alone.inputs["l0"], "ih"), (alone.recurrent["l0"], "hh")):
        flipped = masks[f"weight_{role}_l0_reverse"].flip(1)
        monkeypatch.setattr(part, "multiplier", lambda x, mask=flipped: mask)
    x = sequences(both)
    with torch.set_grad_enabled(with_gradient):
        torch.testing.assert_close(both(x)[0][..., 4:], alone(x.flip(0))[0].flip(0))


@pytest.mark.parametrize("kind", KINDS[:4])
def test_elementwise_noise_differs_from_step_to_step(kind: str) -> None:
    layer = RecurrentDropout(nn.RNN(3, 4, batch_first=True).double(), kind, 0.4, elementwise=True)
    with torch.no_grad():
        for part in layer.recurrent.values():
            part.layer.weight.zero_()
    x = torch.ones(2, 6, 3, dtype=torch.float64)
    trained = layer.train()(x)[0]
    with FunctionDraw(layer, seed=1):
        held, again = layer(x)[0], layer(x)[0]
    # Inputs and state say the same at every step: only the masks differ.
    assert not torch.allclose(trained[:, 1:], trained[:, :-1])
    assert not torch.allclose(trained[0], trained[1])
    assert not torch.allclose(held[:, 1:], held[:, :-1])
    assert torch.equal(held, again)
    torch.testing.assert_close(held[0], held[1])


@every_module
@every_kind
def test_a_draw_is_one_function_of_any_length(name: str, kind: str) -> None:
    layer = RecurrentDropout(MODULES[name]().double(), kind, 0.4)
    x = sequences(layer)
    rows = 0 if layer.batch_first else 1
    with FunctionDraw(layer, seed=3, index=5):
        whole = layer(x)[0]
        backwards = layer(x.flip(rows))[0].flip(rows)
        single = torch.cat([layer(part)[0] for part in x.split(1, rows)], rows)
        shorter = layer(x.narrow(1 - rows, 0, 3))[0]
    with FunctionDraw(layer, seed=3, index=6):
        other = layer(x)[0]
    torch.testing.assert_close(whole, backwards)
    torch.testing.assert_close(whole, single)
    assert not torch.allclose(whole, other)
    if not layer.bidirectional:
        # The masks are the same at every step, however many steps there are.
        torch.testing.assert_close(whole.narrow(1 - rows, 0, 3), shorter)


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_training_noise_differs_between_rows_and_calls(kind: str) -> None:
    options = {"per_row": True} if kind in ("dropconnect", "mixture") else {}
    layer = RecurrentDropout(nn.LSTM(3, 4, batch_first=True).double(), kind, 0.4, **options).train()
    x = sequences(layer, rows=1).repeat(8, 1, 1)
    first, second = layer(x)[0], layer(x)[0]
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, first[:1].expand_as(first))
    with RowDraw(layer, seed=1):
        held, again = layer(x)[0], layer(x)[0]
    assert torch.equal(held, again)
    assert not torch.allclose(held, held[:1].expand_as(held))


def test_dropped_weights_serve_a_whole_batch() -> None:
    layer = RecurrentDropout(nn.GRU(3, 4, batch_first=True).double(), "dropconnect", 0.4).train()
    x = sequences(layer, rows=1).repeat(8, 1, 1)
    first = layer(x)[0]
    torch.testing.assert_close(first, first[:1].expand_as(first))
    assert not torch.allclose(first, layer(x)[0])


def test_raw_masks_shrink_the_mean() -> None:
    layer = RecurrentDropout(nn.GRU(3, 4).double(), "learnable", 0.4, scaling="raw").eval()
    shrunk = copy.deepcopy(layer.layer)
    with torch.no_grad():
        shrunk.weight_ih_l0.mul_(0.6)
        shrunk.weight_hh_l0.mul_(0.6)
    x = sequences(layer)
    assert_same(layer(x), shrunk(x))


# truths by enumeration


class Last(nn.Module):
    """The output of a recurrent module after the last step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][:, -1]


def tiny(kind: str = "bernoulli", **options: Any) -> tuple[nn.LSTM, Last, Tensor]:
    torch.manual_seed(0)
    plain = nn.LSTM(2, 2, batch_first=True).double()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.mul_(2)
    model = Last(RecurrentDropout(copy.deepcopy(plain), kind, 0.3, recurrent_p=0.4, **options))
    return plain, model, torch.randn(4, 3, 2, dtype=torch.float64, generator=seeded(1))


def enumerated(
    plain: nn.LSTM, x: Tensor, logits: dict[str, Tensor], loss: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Values of `loss` (of the last output) for all 16 masks, and the chance of each."""
    p = {key: torch.sigmoid(value) for key, value in logits.items()}
    values, chances = [], []
    for kept in itertools.product([0.0, 1.0], repeat=4):
        z = torch.tensor(kept, dtype=torch.float64).reshape(2, 2)
        weights, chance = {}, torch.ones((), dtype=torch.float64)
        for mask, key in zip(z, ("weight_ih_l0", "weight_hh_l0"), strict=True):
            weights[key] = getattr(plain, key) * (mask / (1 - p[key]))
            chance = chance * torch.where(mask > 0, 1 - p[key], p[key]).prod()
        state = {**dict(plain.named_parameters()), **weights}
        output, _ = torch.func.functional_call(plain, state, (x,))
        values.append(loss(output[:, -1]))
        chances.append(chance)
    return torch.stack(values), torch.stack(chances)


def fixed_logits() -> dict[str, Tensor]:
    return {
        "weight_ih_l0": torch.logit(torch.full((2,), 0.3, dtype=torch.float64)),
        "weight_hh_l0": torch.logit(torch.full((2,), 0.4, dtype=torch.float64)),
    }


@pytest.mark.parametrize("draws", ["shared", "independent"])
def test_mean_and_variance_are_sums_over_all_masks(draws: Any) -> None:
    plain, model, x = tiny()
    with torch.no_grad():
        outputs, chances = enumerated(plain, x, fixed_logits(), lambda h: h)
    assert chances.sum().item() == pytest.approx(1.0)
    weights = chances.reshape(-1, 1, 1)
    mean = (weights * outputs).sum(0)
    variance = (weights * (outputs - mean).square()).sum(0)
    sampled = predict(model, x, num_draws=3000, draws=draws, keep_draws=True).draws
    square = (sampled - mean).square()
    error = sampled.std(0) / 3000**0.5, square.std(0) / 3000**0.5
    assert ((sampled.mean(0) - mean).abs() <= 5 * error[0]).all()
    assert ((square.mean(0) - variance).abs() <= 5 * error[1]).all()


@pytest.mark.parametrize("draws", ["shared", "independent"])
def test_with_masks_of_each_step_the_mean_is_the_sum_over_all_of_them(draws: Any) -> None:
    plain, model, x = tiny(elementwise=True)
    x = x[:, :2]
    outputs, chances = [], []
    with torch.no_grad():
        # Two inputs at two steps, and the state before the second: that before the first is 0.
        for kept in itertools.product([0.0, 1.0], repeat=6):
            first, second, recurrent = torch.tensor(kept, dtype=torch.float64).reshape(3, 2)
            state = None
            for z in (first, second):
                weights = {
                    "weight_ih_l0": plain.weight_ih_l0 * z / 0.7,
                    "weight_hh_l0": plain.weight_hh_l0 * recurrent / 0.6,
                }
                step = x[:, :1] if state is None else x[:, 1:]
                parameters = {**dict(plain.named_parameters()), **weights}
                output, state = torch.func.functional_call(plain, parameters, (step, state))
            outputs.append(output[:, -1])
            ones = int(first.sum() + second.sum()), int(recurrent.sum())
            chances.append(0.7 ** ones[0] * 0.3 ** (4 - ones[0]) * 0.6 ** ones[1] * 0.4 ** (2 - ones[1]))
    assert sum(chances) == pytest.approx(1.0)
    mean = sum(chance * output for chance, output in zip(chances, outputs, strict=True))
    sampled = predict(model, x, num_draws=3000, draws=draws, keep_draws=True).draws
    assert ((sampled.mean(0) - mean).abs() <= 5 * sampled.std(0) / 3000**0.5).all()


@pytest.mark.parametrize("estimator", ["disarm", "arm"])
@pytest.mark.parametrize("per", ["unit", "layer"])
def test_the_gradient_of_learned_rates_is_that_of_all_masks(estimator: Any, per: Any) -> None:
    plain, model, x = tiny("learnable", per=per)
    y = torch.ones(4, 2, dtype=torch.float64)

    def per_row(h: Tensor) -> Tensor:
        return (h - y).square().sum(1)

    layer: Any = model.layer
    parts = {"weight_ih_l0": layer.inputs["l0"], "weight_hh_l0": layer.recurrent["l0"]}
    logits = {key: part.logit_p.detach().clone().requires_grad_() for key, part in parts.items()}
    spread = {key: value.expand(2) for key, value in logits.items()}
    losses, chances = enumerated(plain, x, spread, lambda h: per_row(h).mean())
    (losses * chances).sum().backward()
    found: dict[str, list[Tensor]] = {key: [] for key in parts}
    weights = []
    torch.manual_seed(2)
    # Rows have masks of their own: many copies of the batch are as many samples.
    num, copies = 40, 100
    wide, wide_y = x.repeat(copies, 1, 1), y.repeat(copies, 1)
    for _ in range(num):
        model.zero_grad()
        loss = arm_loss(model, lambda net: (net(wide) - wide_y).square().sum(1), estimator=estimator)
        loss.backward()
        for key, part in parts.items():
            found[key].append(part.logit_p.grad.clone())
        weights.append(layer.layer.weight_hh_l0.grad.clone())
    for key, gradients in found.items():
        stacked = torch.stack(gradients)
        exact = logits[key].grad
        assert exact is not None
        assert ((stacked.mean(0) - exact).abs() <= 5 * stacked.std(0) / num**0.5).all()
    stacked = torch.stack(weights)
    assert plain.weight_hh_l0.grad is not None
    error = 5 * stacked.std(0) / num**0.5
    assert ((stacked.mean(0) - plain.weight_hh_l0.grad).abs() <= error).all()


@pytest.mark.parametrize("masks", ["relaxed", "hard"])
def test_the_gradient_of_a_relaxed_rate_is_its_slope(masks: Any) -> None:
    _, model, x = tiny("concrete", masks=masks, temperature=0.5)
    layer: Any = model.layer

    def loss(shift: float) -> Tensor:
        torch.manual_seed(5)
        for part in (layer.inputs["l0"], layer.recurrent["l0"]):
            part.logit_p.data.add_(shift)
        value: Tensor = model(x).square().sum()
        for part in (layer.inputs["l0"], layer.recurrent["l0"]):
            part.logit_p.data.sub_(shift)
        return value

    loss(0.0).backward()
    slope = (loss(1e-5) - loss(-1e-5)).item() / 2e-5
    gradient = layer.inputs["l0"].logit_p.grad + layer.recurrent["l0"].logit_p.grad
    assert gradient.item() == pytest.approx(slope, rel=1e-5)


# living with the rest


def test_divergence_and_rates_are_those_of_the_maps() -> None:
    module = nn.LSTM(3, 4, 2, bidirectional=True)
    layer = RecurrentDropout(module, p=0.2, recurrent_p=0.1, length_scale=0.3)
    names = ["l0", "l0_reverse", "l1", "l1_reverse"]
    assert list(rates(layer)) == [*(f"inputs.{n}" for n in names), *(f"recurrent.{n}" for n in names)]
    assert rates(layer)["inputs.l1"].item() == pytest.approx(0.2)
    assert rates(layer)["recurrent.l1_reverse"].item() == pytest.approx(0.1)
    alone = [
        BernoulliDropout(part.layer, part.p, length_scale=0.3).kl()
        for part in layer.modules()
        if hasattr(part, "p")
    ]
    assert len(alone) == 8
    torch.testing.assert_close(total_kl(layer), torch.stack(alone).sum())
    assert {id(p) for p in layer.parameters()} == {id(p) for p in module.parameters()}


def test_what_users_ask_a_recurrent_module_for() -> None:
    layer = RecurrentDropout(nn.LSTM(3, 4, 2, batch_first=True, dropout=0.5))
    layer.flatten_parameters()
    found = (layer.input_size, layer.hidden_size, layer.num_layers, layer.batch_first, layer.bidirectional)
    assert found == (3, 4, 2, True, False)
    assert layer.layer.dropout == 0
    assert layer.is_random()
    assert not RecurrentDropout(nn.GRU(3, 4), p=0.0).is_random()


@every_kind
def test_copies_dtypes_and_files_keep_the_maps_tied(kind: str, tmp_path: Path) -> None:
    options = {} if kind == "variational" else {"length_scale": 0.5}
    model = Last(RecurrentDropout(nn.LSTM(3, 4, 2, batch_first=True), kind, 0.3, **options))
    x = sequences(model.layer)
    twin = copy.deepcopy(model).double()
    layer: Any = twin.layer
    assert layer.inputs["l1"].layer.weight is layer.layer.weight_ih_l1
    whole = nn.Sequential(layer)
    save(whole, tmp_path / "model.safetensors")
    loaded: Any = load(tmp_path / "model.safetensors")
    assert loaded[0].inputs["l1"].layer.weight is loaded[0].layer.weight_ih_l1
    assert loaded[0].recurrent["l0"].length_scale == layer.recurrent["l0"].length_scale
    with FunctionDraw(whole, seed=1):
        expected = whole(x)
    with FunctionDraw(loaded, seed=1):
        assert_same(loaded(x), expected)
    other = copy.deepcopy(twin)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    other.load_state_dict(twin.state_dict())
    with FunctionDraw(twin), torch.no_grad():
        expected = twin(x)
    with FunctionDraw(other), torch.no_grad():
        assert torch.equal(other(x), expected)


@pytest.mark.parametrize("kind", ["concrete", "learnable"])
def test_fit_learns_the_rates(kind: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Last(RecurrentDropout(nn.GRU(3, 4, batch_first=True), kind, 0.3)), nn.Linear(4, 1))
    before = {name: p.clone() for name, p in rates(model).items()}
    x = torch.randn(32, 5, 3)
    data = torch.utils.data.TensorDataset(x, x.sum((1, 2)).unsqueeze(1))
    history = fit(model, data, NegativeELBO(Gaussian(), num_data=32), epochs=3, batch_size=16)
    assert list(history.rates) == ["0.layer.inputs.l0", "0.layer.recurrent.l0"]
    for name, p in rates(model).items():
        assert not torch.allclose(p, before[name])


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"`layer` must be an nn.LSTM, nn.GRU or nn.RNN; got LSTMCell"):
        RecurrentDropout(nn.LSTMCell(2, 3))
    with pytest.raises(ValueError, match=r"`kind` must be one of 'bernoulli', .*; got 'dropout'"):
        RecurrentDropout(nn.LSTM(2, 3), "dropout")
    with pytest.raises(TypeError, match=r"`kind` must be one of .*, or such a class; got Linear"):
        RecurrentDropout(nn.LSTM(2, 3), nn.Linear)
    with pytest.raises(
        TypeError, match=r"`options` must be options of BernoulliDropout .*; got 'temperature'"
    ):
        RecurrentDropout(nn.LSTM(2, 3), temperature=0.1)
    with pytest.raises(ValueError, match="`noise` must be 'weights'"):
        RecurrentDropout(nn.LSTM(2, 3), "variational", noise="inputs")
    layer = RecurrentDropout(nn.LSTM(2, 3), LearnableDropout)
    with pytest.raises(ValueError, match=r"`input` must be a tensor with 2 or 3 axes"):
        layer(torch.zeros(2))
    with pytest.raises(ValueError, match=r"`input` must be sequences of 2 features; got 4"):
        layer(torch.zeros(5, 1, 4))
    with pytest.raises(ValueError, match=r"`hx` must be of shapes \[\(1, 6, 3\), \(1, 6, 3\)\]"):
        layer(torch.zeros(5, 6, 2), (torch.zeros(1, 5, 3), torch.zeros(1, 6, 3)))
