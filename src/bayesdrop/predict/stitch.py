"""The draws of a batch of large images, tile by tile, put together to maps of whole images."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from bayesdrop.draws import PixelSource
from bayesdrop.errors import told_by
from bayesdrop.inputs import Inputs
from bayesdrop.likelihoods import Likelihood, SoftmaxLikelihood
from bayesdrop.predict.accumulate import ClassStatistics, DrawStatistics, Statistics
from bayesdrop.predict.keeper import Keeper
from bayesdrop.predict.ranks import Ranks
from bayesdrop.predict.sampler import DrawSampler
from bayesdrop.predict.tiles import Tile, Tiling, cut, image_size, map_axes, pixels_are_last

__all__ = ["Stitcher"]

_Axes = tuple[int, int]


@dataclass(frozen=True)
class Stitcher:
    """Runs all draws of every tile, and puts the tiles together.

    Args:
        tiling: how images are cut.
        sampler: of the draws.
        source: where its noise comes from.
        likelihood: what outputs mean.
        keeper: of the draws themselves.
        ranks: who else has draws of this prediction.
        advance: told of every stack of draws.
        covariance: gather the covariance between the classes of a pixel, too.
    """

    tiling: Tiling
    sampler: DrawSampler
    source: PixelSource
    likelihood: Likelihood | None
    keeper: Keeper
    ranks: Ranks
    advance: Callable[[int, str], None]
    covariance: bool

    def batch(
        self, batch: Inputs, rows: int, offset: int, y: Tensor | None
    ) -> tuple[Statistics, list[float]]:
        """The statistics of a batch, and of every draw the log-probability of all its targets.

        Args:
            batch: images.
            rows: how many.
            offset: number of the first.
            y: label maps, if they are scored.
        """
        canvas = _Canvas(image_size(batch))
        joint: list[float] = []
        for tile in self.tiling.over(batch, y):
            running, axes = self._drawn(tile, canvas, batch, rows, offset, y)
            if self.ranks.share == "draws":
                self.ranks.merge_draws(running)
            # Without their class axis, maps of labels have their pixels on the last axes.
            is_softmax = isinstance(self.likelihood, SoftmaxLikelihood)
            canvas.put(tile, running.result(), axes, (-2, -1) if is_softmax else axes)
            joint = [a + b for a, b in zip(joint, running.joint, strict=True)] if joint else running.joint
        if canvas.draws is not None:
            self.keeper.add(canvas.draws)
        return canvas.result(), joint

    def _drawn(
        self, tile: Tile, canvas: _Canvas, batch: Inputs, rows: int, offset: int, y: Tensor | None
    ) -> tuple[DrawStatistics, _Axes]:
        """All draws of one tile, and the axes of its pixels."""
        self.source.window = tile.window
        running = DrawStatistics(self.likelihood, tile.targets(y), covariance=self.covariance)
        axes: _Axes = (-2, -1)
        for outputs in self.sampler.batch(tile.seen(batch), rows, offset):
            shape = tuple(outputs.shape[1:])
            axes = map_axes(shape, tile.window[2:], last=pixels_are_last(self.likelihood, shape))
            kept = tile.kept(outputs, axes)
            canvas.keep(tile, kept, running.count, axes, self.keeper, self.sampler.num_draws)
            with nullcontext() if y is None else told_by("predict", "targets"):
                running.update_many(kept)
            self.advance(outputs.shape[0], "")
        return running, axes


class _Canvas:
    """Maps of whole images, written tile by tile.

    Args:
        size: height and width.

    Attributes:
        draws: (T, N, ...) the outputs of all draws, if they are kept.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.draws: Tensor | None = None
        self._maps: dict[str, Tensor] = {}
        self._used: Tensor | None = None
        self._asked = False

    def put(self, tile: Tile, statistics: Statistics, axes: _Axes, of_labels: _Axes) -> None:
        """Write the statistics of a tile.

        Args:
            tile: which.
            statistics: of the pixels that it keeps.
            axes: those of the pixels in outputs.
            of_labels: those of the pixels in maps of one value a label.
        """
        self._used = statistics.draws_used
        for name in ("mean", "epistemic", "aleatoric"):
            self._add(tile, name, getattr(statistics, name), axes)
        if statistics.log_prob is not None:
            self._add(tile, "log_prob", statistics.log_prob, of_labels)
        if statistics.covariance is not None:
            # (N, H, W, K, K): only classes have covariances in maps
            self._add(tile, "covariance", statistics.covariance, (1, 2))
        classes = statistics.classes
        if classes is not None:
            self._add(tile, "expected_entropy", classes.expected_entropy, of_labels)
            self._add(tile, "variation_ratio", classes.variation_ratio, of_labels)
            if classes.complement is not None:
                self._add(tile, "complement", classes.complement, of_labels)

    def keep(self, tile: Tile, outputs: Tensor, first: int, axes: _Axes, keeper: Keeper, total: int) -> None:
        """Write the outputs of some draws, from number `first` on, if draws are kept."""
        if not self._asked:
            self._asked = True
            shape = self._shape(outputs, axes)
            shape[0] = total
            if keeper.wants(torch.Size(shape).numel() * outputs.element_size()):
                self.draws = torch.empty(shape, dtype=outputs.dtype)
        if self.draws is not None:
            some = self.draws[first : first + outputs.shape[0]]
            cut(some, axes, tile.down.place, tile.across.place).copy_(outputs)

    def _add(self, tile: Tile, name: str, value: Tensor, axes: _Axes) -> None:
        if name not in self._maps:
            self._maps[name] = torch.empty(self._shape(value, axes), dtype=value.dtype)
        cut(self._maps[name], axes, tile.down.place, tile.across.place).copy_(value)

    def _shape(self, value: Tensor, axes: _Axes) -> list[int]:
        shape = list(value.shape)
        shape[axes[0]], shape[axes[1]] = self.size
        return shape

    def result(self) -> Statistics:
        """The statistics of whole images."""
        maps = self._maps
        assert self._used is not None
        classes = None
        if "expected_entropy" in maps:
            classes = ClassStatistics(
                expected_entropy=maps["expected_entropy"],
                variation_ratio=maps["variation_ratio"],
                complement=maps.get("complement"),
            )
        return Statistics(
            mean=maps["mean"],
            epistemic=maps["epistemic"],
            aleatoric=maps["aleatoric"],
            draws_used=self._used,
            classes=classes,
            log_prob=maps.get("log_prob"),
            covariance=maps.get("covariance"),
        )
