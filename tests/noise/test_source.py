"""The noise source: order-free, uniform, and independent between draws, sites, seeds and units."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from bayesdrop.functional import keep_mask
from bayesdrop.noise.samplers import KeepNoise
from bayesdrop.noise.source import NoiseSource, block_size

HALF = torch.tensor(0.5)


def bits(shape: tuple[int, ...], generator: np.random.Generator) -> Tensor:
    """Fair coins."""
    return (keep_mask(HALF, shape, generator) > 0).float()


@pytest.mark.parametrize("shape", [(1, 3), (1, 500), (1, 20_000), ()])
def test_draws_do_not_depend_on_order_or_number(shape: tuple[int, ...]) -> None:
    whole = NoiseSource(1).rows("site", 0, 600, shape, bits)
    assert whole.shape == (600, *shape)
    source = NoiseSource(1)
    for first, count in [(590, 10), (3, 1), (256, 256), (0, 600), (255, 2), (599, 1)]:
        assert torch.equal(source.rows("site", first, count, shape, bits), whole[first : first + count])


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.05, 0.1, 0.5, 1 - 2**-20, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masks_are_those_of_the_sampler_itself(p: float, dtype: torch.dtype) -> None:
    noise = KeepNoise(torch.tensor(p, dtype=dtype))
    for shape in [(1, 3), (1, 5000), (1, 501), ()]:
        # A method, which the source cannot know to be a mask, makes its blocks whole.
        whole = NoiseSource(1).rows("site", 0, 530, shape, noise.__call__)
        masks = NoiseSource(1).rows("site", 0, 530, shape, noise)
        assert masks.dtype == whole.dtype == dtype
        assert torch.equal(masks, whole)


@pytest.mark.parametrize("most", [None, 40, 300])
@pytest.mark.parametrize("shape", [(1, 3), (1, 500), (1, 501), (1, 20_000), ()])
def test_how_many_draws_are_expected_changes_none(most: int | None, shape: tuple[int, ...]) -> None:
    noise = KeepNoise(torch.tensor(0.3))
    whole = NoiseSource(1).rows("site", 0, 600, shape, noise.__call__)
    source = NoiseSource(1, most=most)
    chunks = [(first, min(64, 600 - first)) for first in range(0, 600, 64)]
    for first, count in [*chunks, (590, 10), (3, 1), (31, 64), (256, 256), (0, 600), (255, 2), (599, 1)]:
        assert torch.equal(source.rows("site", first, count, shape, noise), whole[first : first + count])


def test_threads_have_generators_of_their_own() -> None:
    noise = KeepNoise(torch.tensor(0.3))
    truth = {name: NoiseSource(0).rows(name, 0, 3000, (1, 100), noise) for name in "abcd"}
    same: dict[str, bool] = {}

    def work(name: str) -> None:
        made = [NoiseSource(0).rows(name, 0, 3000, (1, 100), noise) for _ in range(5)]
        same[name] = all(torch.equal(one, truth[name]) for one in made)

    threads = [threading.Thread(target=work, args=(name,)) for name in truth]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == dict.fromkeys(truth, True)


def test_blocks_depend_on_the_shape_alone() -> None:
    assert block_size((1, 10)) == 256
    assert block_size((1, 100_000)) == 1
    assert block_size(()) == 256


def correlation(first: Tensor, second: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1])


def test_sites_seeds_draws_and_units_are_independent() -> None:
    base = NoiseSource(0).rows("a", 0, 400, (1, 300), bits)[:, 0]
    others = {
        "another site": NoiseSource(0).rows("b", 0, 400, (1, 300), bits)[:, 0],
        "a site with a longer name": NoiseSource(0).rows("a/0", 0, 400, (1, 300), bits)[:, 0],
        "another seed": NoiseSource(1).rows("a", 0, 400, (1, 300), bits)[:, 0],
        "the next draw": base.roll(1, 0),
        "the draw of the next block": base.roll(block_size((1, 300)), 0),
        "the next unit": base.roll(1, 1),
        "the unit after the next": base.roll(2, 1),
    }
    for name, other in others.items():
        # A correlation of n independent pairs has the standard error 1 / sqrt(n).
        assert abs(correlation(base, other)) <= 5 / math.sqrt(base.numel()), name


def test_every_unit_and_every_draw_is_kept_at_the_rate() -> None:
    p = 0.3
    noise = NoiseSource(3).rows("site", 0, 500, (1, 400), lambda s, g: keep_mask(torch.tensor(p), s, g))[:, 0]
    kept = (noise > 0).double()
    for axis, count in ((0, 500), (1, 400)):
        z = (kept.mean(axis) - (1 - p)) / math.sqrt(p * (1 - p) / count)
        # The standardised shares are themselves standard normal.
        assert (
            stats.kstest(z.numpy() + 1e-3 * np.random.default_rng(0).standard_normal(len(z)), "norm").pvalue
            > 1e-4
        )


def test_bytes_are_uniform() -> None:
    source = NoiseSource(5)
    words = source.rows("site", 0, 64, (256,), lambda s, g: torch.from_numpy(g.integers(0, 256, s)))
    counts = torch.bincount(words.flatten(), minlength=256).numpy()
    assert stats.chisquare(counts).pvalue > 1e-4


class FixedWords:
    """A generator whose random words are given."""

    def __init__(self, values: list[int]) -> None:
        words = np.array(values, dtype=np.uint32)
        self.bit_generator: Any = SimpleNamespace(random_raw=lambda count: words.view(np.uint64)[:count])


@pytest.mark.parametrize("p", [2.0**-32, 1e-9, 1e-3, 0.1, 0.5, 0.999, 1 - 2.0**-32])
def test_a_rate_is_resolved_to_32_bits(p: float) -> None:
    """The smallest word that is kept is round(p 2^32)."""
    threshold = round(p * 2**32)
    words = [max(threshold - 1, 0), threshold, min(threshold + 1, 2**32 - 1), 2**32 - 1]
    mask = keep_mask(torch.tensor(p, dtype=torch.float64), (4,), FixedWords(words))  # type: ignore[arg-type]
    assert (mask > 0).tolist() == [word >= threshold for word in words]
    torch.testing.assert_close(mask[1].item(), 1 / (1 - p))


def test_draws_are_the_same_on_every_machine() -> None:
    """The numbers themselves: a change of the source would change everybody's seeds."""
    noise = NoiseSource(0).rows("layer.input", 0, 2, (1, 16), lambda s, g: keep_mask(HALF, s, g))
    assert (noise[:, 0] > 0).int().tolist() == EXPECTED


EXPECTED = [
    [0, 0, 1, 0, 1, 1, 1, 1, 0, 1, 1, 0, 1, 0, 0, 0],
    [0, 0, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1, 0],
]
