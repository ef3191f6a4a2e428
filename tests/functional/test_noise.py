from __future__ import annotations

import numpy as np
import torch

from bayesdrop.functional import gaussian_multiplier, keep_mask


def test_masks_drop_at_the_rate_and_have_mean_one() -> None:
    p = torch.tensor([0.0, 0.01, 0.3, 0.5, 0.99])
    num = 40_000
    mask = keep_mask(p, (num, 5), np.random.default_rng(1))
    dropped = (mask == 0).double().mean(0)
    error = (p * (1 - p) / num).sqrt()
    assert ((dropped - p).abs() <= 5 * error).all()
    kept = mask[mask != 0]
    assert set(kept.unique().tolist()) == set((1 / (1 - p)).unique().tolist())


def test_everything_is_dropped_at_one_and_nothing_is_nan() -> None:
    assert keep_mask(torch.tensor(1.0), (100,)).abs().sum() == 0


def test_gaussian_noise_matches_two_moments_of_the_mask() -> None:
    p, num = torch.tensor([0.0, 0.1, 0.5, 0.8], dtype=torch.float64), 40_000
    noise = gaussian_multiplier(p, (num, 4), np.random.default_rng(1))
    variance = p / (1 - p)
    assert ((noise.mean(0) - 1).abs() <= 5 * (variance / num).sqrt()).all()
    assert ((noise.var(0) - variance).abs() <= 5 * variance * (2 / num) ** 0.5).all()
    mask = keep_mask(p, (num, 4), np.random.default_rng(2))
    fourth = (mask - 1).pow(4).mean(0)
    # At p = 1/2 every (z - 1)^2 is the same: what is left is the square of the mean's error.
    allowed = 5 * ((fourth - variance**2) / num).clamp_min(0).sqrt() + 25 * variance / num
    assert ((mask.var(0) - variance).abs() <= allowed).all()


def test_a_generator_repeats_itself() -> None:
    p = torch.tensor(0.4)
    for sample in (keep_mask, gaussian_multiplier):
        first = sample(p, (50,), np.random.default_rng(3))
        assert torch.equal(first, sample(p, (50,), np.random.default_rng(3)))
