"""Masksembles: the masks are what their scale says, and every mask is one network."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.layers import Masksembles
from bayesdrop.layers.masksembles import kept_share, overlap_scale

SIZES = [(50, 4, 2.0), (64, 3, 1.5), (200, 8, 3.0), (30, 2, 2.5), (7, 5, 2.0)]
every_size = pytest.mark.parametrize(("units", "num_masks", "scale"), SIZES)


@every_size
def test_masks_are_of_one_size_and_leave_no_unit_out(units: int, num_masks: int, scale: float) -> None:
    layer = Masksembles(nn.Linear(units, 2), num_masks=num_masks, scale=scale)
    sizes = layer.keep.sum(1)
    assert layer.keep.shape == (num_masks, units)
    assert int(sizes.min()) == int(sizes.max()) == round((1 - float(layer.p)) * units)
    assert bool(layer.keep.any(0).all())
    torch.testing.assert_close(layer.masks.mean(0), torch.ones(units))


@pytest.mark.parametrize(("units", "num_masks", "scale"), SIZES[:-1])
def test_two_masks_share_as_many_units_as_the_scale_says(units: int, num_masks: int, scale: float) -> None:
    torch.manual_seed(0)
    shared = []
    for _ in range(200):
        kept = Masksembles(nn.Linear(units, 1), num_masks=num_masks, scale=scale).keep.double()
        common = (kept @ kept.T)[tuple(torch.triu_indices(num_masks, num_masks, 1))]
        shared.append(common.mean() / kept[0].sum())
    found = torch.stack(shared)
    error = float(found.std()) / math.sqrt(len(found))
    # The number of units is whole: half a unit more or less in every mask.
    rounding = 1 / units * num_masks
    assert abs(float(found.mean()) - 1 / scale) <= 5 * error + rounding


@pytest.mark.parametrize("num_masks", [2, 3, 4, 16])
def test_rate_and_scale_are_two_names_of_one_thing(num_masks: int) -> None:
    for scale in (1.01, 1.5, 2.0, 4.0, 50.0):
        share = kept_share(scale, num_masks)
        assert 1 / num_masks < share < 1
        assert overlap_scale(share, num_masks) == pytest.approx(scale)
    by_rate = Masksembles(nn.Linear(100, 1), 0.3, num_masks=num_masks)
    assert float(by_rate.p) == pytest.approx(0.3)


def test_draw_t_is_mask_t_in_every_layer() -> None:
    net = nn.Sequential(Masksembles(nn.Linear(6, 8)), nn.ReLU(), Masksembles(nn.Linear(8, 2))).double()
    x = torch.randn(5, 6, dtype=torch.double)
    first, last = net[0], net[2]
    by_hand = [last.layer(torch.relu(first.layer(x * first.masks[t])) * last.masks[t]) for t in range(4)]
    for plan in (None, "stacked", "kept units", "loop", "whole model"):
        draws = bd.predict(net, x, num_draws=10, seed=3, plan=plan).draws  # type: ignore[arg-type]
        torch.testing.assert_close(draws, torch.stack([by_hand[t % 4] for t in range(10)]).detach())
    torch.testing.assert_close(bd.compile(net, x, num_draws=6).draws(x), draws[:6])
    with bd.FunctionDraw(net, index=[2, 5]):
        both = net(torch.cat([x, x]))
    torch.testing.assert_close(both, torch.cat([by_hand[2], by_hand[1]]))


def test_training_gives_each_group_of_rows_its_mask() -> None:
    layer = Masksembles(nn.Linear(6, 3), num_masks=3).train()
    x = torch.randn(10, 6)
    groups = torch.arange(10) * 3 // 10
    torch.testing.assert_close(layer(x), layer.layer(x * layer.masks[groups]))
    assert torch.bincount(groups).tolist() == [4, 3, 3]


def test_a_draw_after_training_is_the_network_that_was_trained_with_its_mask() -> None:
    """Four groups of rows with four targets: each mask's network learns its own."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 60), nn.ReLU(), Masksembles(nn.Linear(60, 1), scale=4.0))
    x = torch.randn(40, 2).repeat(4, 1)
    y = torch.tensor([-2.0, -1.0, 1.0, 2.0]).repeat_interleave(40).unsqueeze(1)
    optimiser = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(300):
        optimiser.zero_grad()
        (net(x) - y).square().mean().backward()
        optimiser.step()
    found = bd.predict(net, x[:40], num_draws=4).draws.mean((1, 2))
    torch.testing.assert_close(found, torch.tensor([-2.0, -1.0, 1.0, 2.0]), atol=0.3, rtol=0)


def test_dropouts_become_masks_of_their_rate_and_files_hold_them(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Dropout(0.4), nn.Linear(40, 3)).eval()
    made = bd.convert(net, "masksembles", num_masks=5)
    assert float(bd.rates(made)["3"]) == pytest.approx(0.4)
    x = torch.randn(6, 4)
    torch.testing.assert_close(made(x), net(x))
    bd.save(made, tmp_path / "masks.safetensors")
    loaded = bd.load(tmp_path / "masks.safetensors")
    assert torch.equal(loaded[3].keep, made[3].keep)  # type: ignore[index]
    assert torch.equal(bd.predict(loaded, x, num_draws=5).draws, bd.predict(made, x, num_draws=5).draws)
    back = bd.convert(made, "none", where=bd.StochasticLayer)
    torch.testing.assert_close(back(x), net(x))


def test_masks_work_in_recurrent_networks_and_convolutions() -> None:
    lstm = bd.convert(nn.LSTM(5, 12, 2, batch_first=True), "masksembles", where="weights", scale=2.0)
    steps = torch.randn(4, 6, 5)
    draws = bd.predict(lstm, steps, num_draws=8, output=0).draws
    assert torch.equal(draws[:4], draws[4:])
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(draws[:4], 2))
    images = nn.Sequential(Masksembles(nn.Conv2d(6, 3, 3), num_masks=2), nn.Flatten())
    assert bd.predict(images, torch.randn(2, 6, 5, 5), num_draws=2).draws.shape == (2, 2, 27)


def test_a_model_trains_with_the_objective_and_rates_that_follow_from_masks_are_not_set() -> None:
    torch.manual_seed(0)
    net = bd.convert(
        nn.Sequential(nn.Linear(3, 30), nn.Tanh(), nn.Linear(30, 1)), "masksembles", where="last"
    )
    x = torch.randn(120, 3)
    y = x[:, :1].sin()
    history = bd.fit(net, (x, y), bd.NegativeELBO(bd.Gaussian(0.1), num_data=120), epochs=20, progress=False)
    assert history.loss[-1] < history.loss[0]
    with pytest.raises(
        ValueError, match="set_rates: `model` must be a model with rates that are not learned"
    ):
        bd.set_rates(net, 0.2)


def test_analytic_moments_are_refused_because_units_of_a_mask_depend_on_each_other() -> None:
    net = nn.Sequential(Masksembles(nn.Linear(6, 2)))
    with pytest.raises(ValueError, match="has no rule for the noise"):
        bd.predict(net, torch.randn(3, 6), method="moments")


def refused(**options: object) -> str:
    with pytest.raises(ValueError, match="Masksembles: `") as caught:
        Masksembles(nn.Linear(6, 5), **options)  # type: ignore[arg-type]
    return str(caught.value)


def test_bad_options_are_refused() -> None:
    assert "`p` must be above 0 and below 0.75" in refused(p=0.8)
    assert "`scale` must be a number above 1" in refused(scale=1.0)
    assert "`num_masks` must be" in refused(num_masks=1)


def last_by_hand(x: Tensor) -> list[str]:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.variance, self.body, self.mean = nn.Linear(8, 1), nn.Linear(3, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.body(x))
            out = x.new_zeros(len(x), 2)
            out[:, :1] = self.mean(h)
            out[:, 1:] = self.variance(h).tanh()
            return out

    return sorted(bd.rates(bd.convert(TwoHeads(), "bernoulli", where="last", x=x)))


def test_the_last_maps_are_those_of_all_heads() -> None:
    assert last_by_hand(torch.randn(4, 3)) == ["mean", "variance"]
    chain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Softplus())
    assert list(bd.rates(bd.convert(chain, "gaussian", where="last"))) == ["2"]
    with pytest.raises(ValueError, match="convert: `where` must be used with a model whose output comes"):
        bd.convert(nn.Sequential(nn.ReLU()), "gaussian", where="last")
