"""Quantiles of mixtures: the distribution function is the truth."""

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from torch import Tensor

from bayesdrop.likelihoods import HeteroscedasticGaussian, NumberLikelihood, Warp, WarpedGaussian
from bayesdrop.likelihoods.mixture import normal_mixture_quantiles

LEVELS = (1e-9, 0.025, 0.3, 0.5, 0.5 + 1e-12, 0.975, 1 - 1e-9)


def components(kind: str) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    mean = torch.randn(40, 25, 2, generator=source, dtype=torch.float64)
    std = (0.5 * torch.randn(40, 25, 2, generator=source, dtype=torch.float64)).exp()
    if kind == "two narrow heaps":
        mean, std = 1e3 * mean.sign() + 1e-3 * mean, 1e-3 * std
    elif kind == "stds of all sizes":
        std = (6 * torch.randn(40, 25, 2, generator=source, dtype=torch.float64)).exp()
    elif kind == "far from zero":
        mean = 1e6 + mean
    elif kind == "one component":
        mean, std = mean[:1], std[:1]
    elif kind == "equal components":
        mean, std = mean[:1].expand_as(mean), std[:1].expand_as(std)
    elif kind == "one far away":
        mean[0] += 1e4
    return mean, std


@pytest.mark.parametrize(
    "kind",
    [
        "random", "two narrow heaps", "stds of all sizes", "far from zero", "one component",
        "equal components", "one far away",
    ],
)  # fmt: skip
def test_the_distribution_function_crosses_the_level_at_the_quantile(kind: str) -> None:
    mean, std = components(kind)
    found = normal_mixture_quantiles(mean, std, LEVELS)
    spread = (std.square().mean(0) + mean.var(0, correction=0)).sqrt()
    near = 1e-10 * spread + 1e-15 * mean.abs().amax(0)
    for q, value in zip(LEVELS, found, strict=True):
        side = 1 if q <= 0.5 else -1  # the smaller tail, as a float knows it
        tail = min(q, 1 - q)
        # SciPy's, whose tails have all their digits.
        below, above = (
            ndtr(((side * value + step - side * mean) / std).numpy()).mean(0) for step in (-near, near)
        )
        assert np.all(below <= tail * (1 + 1e-12)), q
        assert np.all(above >= tail * (1 - 1e-12)), q


def test_one_component_has_the_quantile_of_its_own() -> None:
    mean, std = components("one component")
    for q, value in zip(LEVELS, normal_mixture_quantiles(mean, std, LEVELS), strict=True):
        score = math.copysign(
            float(torch.special.ndtri(torch.tensor(min(q, 1 - q), dtype=mean.dtype))), q - 0.5
        )
        torch.testing.assert_close(value, mean[0] + std[0] * score, rtol=0, atol=1e-11)


def test_no_row_depends_on_the_others() -> None:
    """A row that takes long must not move those that are found."""
    mean, std = components("random")
    slow_mean, slow_std = components("stds of all sizes")
    alone = normal_mixture_quantiles(mean, std, LEVELS)
    together = normal_mixture_quantiles(
        torch.cat([mean, slow_mean], 1), torch.cat([std, slow_std], 1), LEVELS
    )
    # A mean over components may add them up in another order, no more.
    torch.testing.assert_close(alone, together[:, : mean.shape[1]], rtol=1e-12, atol=1e-12)


def test_what_is_not_a_number_stays_so_and_hurts_no_other() -> None:
    mean, std = components("random")
    broken = mean.clone()
    broken[3, 7, 0] = math.nan
    found = normal_mixture_quantiles(broken, std, [0.1])
    assert bool(found[0, 7, 0].isnan())
    whole = normal_mixture_quantiles(mean, std, [0.1])
    keep = torch.ones_like(whole, dtype=torch.bool)
    keep[0, 7, 0] = False
    assert torch.equal(found[keep], whole[keep])


@pytest.mark.parametrize(
    "likelihood",
    [
        HeteroscedasticGaussian(),
        WarpedGaussian(Warp("asinh", scale=0.5)),
        WarpedGaussian(Warp("logit", low=-2.0, high=3.0)),
        WarpedGaussian(Warp("asinh", low=0.0, whole=True)),
    ],
    ids=["gaussian", "asinh", "logit", "whole"],
)
def test_shortcuts_agree_with_the_search_by_the_distribution_function(likelihood: NumberLikelihood) -> None:
    mean, std = components("random")
    outputs = torch.cat([mean, 2 * std.log()], -1)
    levels = [0.025, 0.4, 0.9]
    slow = NumberLikelihood.mixture_quantiles(likelihood, outputs, levels)
    torch.testing.assert_close(likelihood.mixture_quantiles(outputs, levels), slow, rtol=1e-9, atol=1e-9)
