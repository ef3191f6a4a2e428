"""Large images in tiles: the maps of the whole image, without seams, in bounded memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesdrop as bd
from bayesdrop.noise import NoiseSource, PixelSource
from bayesdrop.noise.pixels import PixelNoise
from bayesdrop.noise.samplers import KeepNoise
from bayesdrop.predict.statistics import DrawStatistics
from bayesdrop.predict.tiles import Tiling

MAPS = (
    "mean",
    "epistemic",
    "aleatoric",
    "entropy",
    "expected_entropy",
    "mutual_information",
    "variation_ratio",
)


def network(*, channels: int = 5, dropout: nn.Module | None = None) -> nn.Sequential:
    """Pools once and comes back; its receptive field is 2 * 6 + 2 pixels wide."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Dropout2d(0.3) if dropout is None else dropout,
        nn.MaxPool2d(2),
        nn.BatchNorm2d(8),
        bd.BernoulliDropout(nn.Conv2d(8, 8, 3, padding=1), p=0.2),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(8, channels, 3, padding=1),
    )


def images(height: int, width: int, rows: int = 2) -> Tensor:
    return torch.randn(rows, 3, height, width, generator=torch.Generator().manual_seed(1))


def both(model: nn.Module, x: Any, tiles: Any = (48, 64), overlap: int = 16, **options: Any) -> Any:
    options = {"num_draws": 6, "likelihood": bd.Categorical(), **options}
    return bd.predict(model, x, **options), bd.predict(model, x, tiles=tiles, overlap=overlap, **options)


@pytest.mark.parametrize(("height", "width"), [(100, 132), (48, 64), (96, 70), (40, 50), (200, 66)])
def test_tiles_give_the_maps_of_the_whole_image(height: int, width: int) -> None:
    # The overlap is wider than the receptive field: every pixel that is kept sees what it would have seen.
    whole, tiled = both(network(), images(height, width))
    for name in (*MAPS, "draws"):
        torch.testing.assert_close(getattr(tiled, name), getattr(whole, name), atol=1e-5, rtol=0)
    assert torch.equal(tiled.label, whole.label)
    assert tiled.shared


def test_where_the_receptive_field_is_cut_tiles_differ_and_nowhere_else() -> None:
    whole, tiled = both(network(), images(96, 96), tiles=(64, 64), overlap=0)
    differs = (whole.mean - tiled.mean).abs().amax((0, 1)) > 1e-5
    assert bool(differs.any())
    inside = torch.zeros(96, 96, dtype=torch.bool)
    # 64 pixels, then the rest: within 7 of the seam, pixels see across it
    inside[57:71], inside[:, 57:71] = True, True
    assert not bool((differs & ~inside).any())


def test_a_draw_is_one_function_in_all_tiles_whatever_their_size() -> None:
    x = images(96, 96)
    model = network()
    several = [
        bd.predict(model, x, num_draws=4, tiles=tiles, overlap=16, keep_draws=True).draws
        for tiles in (32, 48, (64, 32), 96)
    ]
    for draws in several[1:]:
        torch.testing.assert_close(draws, several[0], atol=1e-5, rtol=0)


def around(kind: type[bd.StochasticLayer], **options: Any) -> nn.Module:
    torch.manual_seed(5)
    return kind(nn.Conv2d(8, 8, 3, padding=1), elementwise=True, **options)


@pytest.mark.parametrize(
    "kind",
    [
        nn.Dropout(0.4),
        nn.AlphaDropout(0.3),
        around(bd.BernoulliDropout, p=torch.linspace(0.1, 0.6, 8)),
        around(bd.GaussianDropout, p=0.3),
        around(bd.ConcreteDropout, p_init=0.3),
        around(bd.LearnableDropout, p_init=0.3),
        bd.DropConnect(nn.Conv2d(8, 8, 3, padding=1), p=0.3),
    ],
    ids=lambda kind: type(kind).__name__,
)
@pytest.mark.parametrize("rows", ["shared", "independent"])
def test_noise_of_every_pixel_goes_by_its_place(kind: nn.Module, rows: Any) -> None:
    # In one tile as large as the image, or in many: a pixel has the same noise.
    model = network(dropout=kind)
    x = images(128, 96)
    one, many, others = (
        bd.predict(model, x, num_draws=4, tiles=tiles, overlap=16, keep_draws=True, draws=rows).draws
        for tiles in ((128, 96), (48, 48), (64, 32))
    )
    torch.testing.assert_close(many, one, atol=1e-5, rtol=0)
    torch.testing.assert_close(others, one, atol=1e-5, rtol=0)
    assert not torch.equal(one[0], one[1])


def test_noise_of_pixels_after_pooling_goes_by_their_place_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.MaxPool2d(4),
        nn.Dropout(0.5),
        nn.Upsample(scale_factor=4),
        nn.Conv2d(8, 2, 1),
    )
    x = images(96, 80, rows=1)
    one, many = (
        bd.predict(model, x, num_draws=4, tiles=tiles, overlap=8, keep_draws=True).draws for tiles in (96, 24)
    )
    torch.testing.assert_close(many, one, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match=r"multiple of 4 pixels.*'2'"):
        bd.predict(model, x, num_draws=4, tiles=24, overlap=2)


def test_windows_of_pixel_noise_agree_where_they_overlap() -> None:
    source = PixelSource(3)
    sample = PixelNoise(KeepNoise(torch.tensor(0.3)))
    source.window = (0, 0, 100, 90)
    whole = source.rows("0:0", 2, 3, (1, 4, 100, 90), sample)
    for top, left, height, width in ((0, 0, 32, 32), (17, 40, 50, 50), (96, 64, 4, 26)):
        source.window = (top, left, height, width)
        part = source.rows("0:0", 2, 3, (1, 4, height, width), sample)
        assert torch.equal(part, whole[..., top : top + height, left : left + width])
    assert float((whole == 0).float().mean()) == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / whole.numel()))
    # no other noise is changed
    for shape, plain in (
        ((1, 4, 1, 1), KeepNoise(torch.tensor(0.3))),
        ((2, 5), KeepNoise(torch.tensor(0.3))),
    ):
        assert torch.equal(source.rows("1", 0, 4, shape, plain), NoiseSource(3).rows("1", 0, 4, shape, plain))


def test_targets_are_scored_over_all_pixels_once() -> None:
    x = images(96, 80)
    y = torch.randint(5, (2, 96, 80))
    model = network()
    options = {"num_draws": 6, "likelihood": bd.Categorical(), "targets": y, "keep_draws": False}
    whole = bd.predict(model, x, **options)
    tiled = bd.predict(model, x, tiles=48, overlap=16, **options)
    torch.testing.assert_close(tiled.log_prob(y), whole.log_prob(y), atol=1e-5, rtol=0)
    torch.testing.assert_close(tiled.joint_log_prob(y), whole.joint_log_prob(y))
    with pytest.raises(ValueError, match="`targets` must be maps of 96 x 80 pixels"):
        bd.predict(model, x, tiles=48, overlap=16, **{**options, "targets": y[:, :40]})


@pytest.mark.parametrize(
    ("channels", "likelihood", "last"),
    [
        (3, None, False),
        (1, bd.Bernoulli(), False),
        (1, bd.Gaussian(0.1), False),
        (4, bd.HeteroscedasticGaussian(), True),
        (4, bd.Categorical(class_axis=-1), True),
        (2, bd.Bernoulli(), True),
    ],
)
def test_outputs_may_be_laid_out_in_any_way(channels: int, likelihood: Any, last: bool) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network(channels=channels)

        def forward(self, x: Tensor) -> Tensor:
            maps: Tensor = self.body(x)
            return maps.movedim(1, -1) if last else maps

    whole, tiled = both(Last(), images(80, 96), tiles=48, likelihood=likelihood)
    assert tiled.mean.shape == whole.mean.shape
    names = ["mean", "epistemic", "aleatoric", "draws"]
    if isinstance(likelihood, bd.Bernoulli | bd.Categorical):
        names += ["entropy", "expected_entropy", "class_probs"]
    for name in names:
        torch.testing.assert_close(getattr(tiled, name), getattr(whole, name), atol=1e-5, rtol=0)


def test_batches_mappings_arrays_and_rows_of_their_own_work_in_tiles() -> None:
    class Conditioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network()

        def forward(self, image: Tensor, shift: Tensor) -> Tensor:
            maps: Tensor = self.body(image) + shift.reshape(-1, 1, 1, 1)
            return maps

    x = images(80, 96, rows=3)
    whole, tiled = both(
        Conditioned(), {"image": x, "shift": torch.arange(3.0)}, batch_size=2, likelihood=None
    )
    torch.testing.assert_close(tiled.mean, whole.mean, atol=1e-5, rtol=0)
    whole, tiled = both(network(), x.numpy(), draws="independent")
    torch.testing.assert_close(tiled.mean, whole.mean, atol=1e-5, rtol=0)
    assert not tiled.shared
    whole, tiled = both(network(), [x[:2], x[2:]], num_draws=1)
    torch.testing.assert_close(tiled.probs, whole.probs, atol=1e-5, rtol=0)


def test_no_tile_is_larger_than_asked_and_kept_pixels_cover_the_image_once() -> None:
    for height, width, size, overlap in (
        (2048, 2048, 256, 32),
        (1000, 777, 256, 32),
        (301, 97, 90, 7),
        (50, 400, 96, 0),
    ):
        tiling = Tiling(size, overlap)
        seen = torch.zeros(height, width, dtype=torch.int)
        step = size - overlap
        aligned = min(64, step & -step)
        for tile in tiling.over(torch.zeros(1, 1, height, width), None):
            top, left, down, across = tile.window
            seen[tile.down.place, tile.across.place] += 1
            assert top % aligned == left % aligned == 0
            assert min(height, size) - aligned < down <= size
            assert min(width, size) - aligned < across <= size
            # what is kept is half an overlap away from every edge that is not the image's
            for span, length in ((tile.down, height), (tile.across, width)):
                assert span.start == 0 or span.first - span.start >= overlap // 2
                assert span.stop == length or span.stop - span.last >= overlap // 2
        assert bool((seen == 1).all())


def test_memory_holds_one_tile_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a draw makes has the size of a tile, however many draws and tiles there are.
    largest: list[int] = []
    original = DrawStatistics.update_many

    def watched(self: Any, outputs: Tensor) -> None:
        largest.append(outputs[0].numel())
        original(self, outputs)

    monkeypatch.setattr(DrawStatistics, "update_many", watched)
    seen: list[int] = []
    model = network()
    model.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape[-1] * args[0].shape[-2]))
    prediction = bd.predict(
        model,
        images(256, 320, rows=1),
        num_draws=5,
        likelihood=bd.Categorical(),
        tiles=64,
        overlap=16,
        keep_draws=False,
    )
    assert prediction.mean.shape == (1, 5, 256, 320)
    assert max(seen) <= 64**2
    assert max(largest) <= 5 * 64**2
    assert "tiles of 64 x 64 pixels" in prediction.plan


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tiles": (64, 64, 3)}, "`tiles` must be a height and a width"),
        ({"tiles": 0}, "`tiles` must be a positive int"),
        ({"tiles": 32, "overlap": 32}, "`overlap` must be an int from 0 to 31"),
        ({"tiles": 32, "overlap": -1}, "`overlap`"),
        ({"tiles": 48, "tolerance": 0.1}, "`tolerance` must be None with tiles"),
        ({"tiles": 48, "method": "moments", "likelihood": None}, "`tiles` must be None for method='moments'"),
        (
            {"tiles": 48, "likelihood": bd.Gaussian(1.0), "targets": torch.zeros(2, 5, 64, 64)},
            "`targets` must be None with tiles",
        ),
    ],
)
def test_options_that_do_not_go_with_tiles_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        bd.predict(network(), images(64, 64), **{"num_draws": 3, "likelihood": bd.Categorical(), **options})


def test_what_has_no_maps_is_refused() -> None:
    classifier = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Dropout2d(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    with pytest.raises(ValueError, match="maps of 32 x 32 pixels"):
        bd.predict(classifier, images(64, 64), num_draws=3, tiles=32, overlap=8)
    with pytest.raises(ValueError, match=r"images \(N, C, H, W\) of one size"):
        bd.predict(nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2)), torch.randn(4, 3), tiles=32, overlap=0)
    smaller = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Dropout2d(0.5))
    with pytest.raises(ValueError, match="as many pixels as it takes"):
        bd.predict(smaller, images(64, 64), num_draws=3, tiles=32, overlap=8)


def test_what_is_not_random_is_warned_of_where_predict_was_called() -> None:
    model = network()
    model.append(nn.Dropout2d(0.0))
    for tiles in (None, 48):
        fresh = network()
        fresh.append(nn.Dropout2d(0.0))
        with pytest.warns(bd.PartlyRandom) as told:
            bd.predict(fresh, images(64, 64), num_draws=3, tiles=tiles, overlap=16)
        assert [warning.filename for warning in told] == [__file__]
