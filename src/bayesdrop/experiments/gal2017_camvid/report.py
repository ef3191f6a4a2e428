"""Rows, claims and notes on Concrete dropout in all layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bayesdrop.experiments.camvid.loss import length_scale
from bayesdrop.experiments.camvid.notes import shared_notes
from bayesdrop.experiments.row import Claim, Row, mean_and_error, paired, told

__all__ = ["make_claims", "make_notes", "make_rows"]

#: by method, a piece for every seed
Found = Mapping[str, Sequence[Mapping[str, Any]]]
#: what is measured -> name in the table, factor
METRICS = {
    "mean_iou": ("IoU (%)", 100),
    "accuracy": ("pixel accuracy (%)", 100),
    "calibration": ("calibration RMSE", 1),
    "log_likelihood": ("log-likelihood (nats a pixel)", 1),
}
#: method and way of predicting -> title, printed IoU
VARIANTS = {
    ("none", "single"): ("no dropout", 65.8),
    ("bernoulli", "single"): ("dropout {p:g}", 67.1),
    ("bernoulli", "draws"): ("dropout {p:g}, MC", 67.2),
    ("concrete", "single"): ("Concrete", 67.2),
    ("concrete", "draws"): ("Concrete, MC", 67.4),
}
#: the layers of figure 8, in the order in which a frame passes them
FIGURE_8 = ("first", "second", "middle", "last but one", "last")
#: thresholds, fixed before the run: by how many points of IoU learned rates may be behind, and how far apart
#: rates from different starts may end, on average
POINTS, APART = 1.0, 0.1


def figure_8(rates: Any) -> dict[str, float]:
    """The rates of the layers of figure 8, from those of all, in their order.

    >>> figure_8([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    {'first': 0.1, 'second': 0.2, 'middle': 0.4, 'last but one': 0.6, 'last': 0.7}
    """
    values = [float(rate) for rate in rates]
    return dict(zip(FIGURE_8, (values[i] for i in (0, 1, len(values) // 2, -2, -1)), strict=True))


def make_rows(config: Any, found: Found) -> Iterator[Row]:
    """The five rows of table 1 in all measures, and rates of the layers of figure 8."""
    for (method, way), (title, printed) in VARIANTS.items():
        for name, (metric, _) in METRICS.items():
            paper = printed if name == "mean_iou" else None
            values = _values(found, method, way, name)
            yield Row.of_runs(title.format(p=config.p), metric, values, paper=paper)
    for method, title in _learned(config):
        layers = [figure_8(piece["rates"]) for piece in found[method]]
        for layer in FIGURE_8:
            yield Row.of_runs(title, f"rate, {layer} layer", [one[layer] for one in layers])
        means = [float(np.mean(piece["rates"])) for piece in found[method]]
        yield Row.of_runs(title, "rate, mean", means)


def make_claims(config: Any, found: Found) -> Iterator[Claim]:
    """The paper's sentences; the thresholds were fixed before the run."""
    fixed = f"dropout {config.p:g}"

    def iou(method: str, way: str) -> list[float]:
        return _values(found, method, way, "mean_iou")

    gain, text = paired(iou("bernoulli", "single"), iou("none", "single"))
    yield Claim(
        "Table 1: dropout in all layers raises the IoU (by 1.3 points).",
        f"{fixed} less no dropout, single pass: {text} points of IoU",
        gain > 0,
    )
    for way, named in (("single", "single pass"), ("draws", "MC")):
        gain, text = paired(iou("concrete", way), iou("bernoulli", way))
        yield Claim(
            "Table 1: Concrete dropout is as good as the hand-tuned rate, or marginally better; here, "
            f"not more than {POINTS:g} point of IoU behind.",
            f"Concrete less {fixed}, {named}: {text} points",
            gain >= -POINTS,
        )
    gains = [paired(iou(method, "draws"), iou(method, "single")) for method in ("bernoulli", "concrete")]
    yield Claim(
        "Table 1: MC raises the IoU over the single pass (by 0.1 and 0.2 points).",
        f"MC less single pass: {fixed} {gains[0][1]}, Concrete {gains[1][1]} points",
        all(gain > 0 for gain, _ in gains),
    )
    for method, title in (("bernoulli", fixed), ("concrete", "Concrete")):
        drawn, single = (_values(found, method, way, "calibration") for way in ("draws", "single"))
        gap, text = paired(drawn, single)
        yield Claim(
            f"Draws are better calibrated than the single pass: {title}.",
            f"calibration RMSE of MC less that of the single pass: {text}",
            gap < 0,
        )
    errors = {
        title.format(p=config.p): mean_and_error(_values(found, method, way, "calibration"))[0]
        for (method, way), (title, _) in VARIANTS.items()
        if way == "draws" or method == "none"
    }
    yield Claim(
        "Table 2: Concrete dropout reduces the calibration RMSE compared to the baselines.",
        told(errors, ".3f"),
        min(errors, key=lambda title: errors[title]) == "Concrete, MC",
    )
    yield from _figure_8_claims(config, found)


def _figure_8_claims(config: Any, found: Found) -> Iterator[Claim]:
    if len(config.starts) > 1:
        ends = [np.stack([piece["rates"] for piece in found[f"start {start:g}"]]) for start in config.starts]
        far = float(np.mean([np.abs(end - ends[0]).mean() for end in ends[1:]]))
        most = float(max(np.abs(end - ends[0]).max() for end in ends[1:]))
        yield Claim(
            f"Figure 8: rates end alike from initial values between {min(config.starts):g} and "
            f"{max(config.starts):g}; here, within {APART:g} of each other on average.",
            f"mean distance of the rates of a layer {far:.3f}, largest {most:.3f}",
            far <= APART,
        )
    layers = [figure_8(piece["rates"]) for piece in found["concrete"]]
    mean = {layer: float(np.mean([one[layer] for one in layers])) for layer in FIGURE_8}
    yield Claim(
        "4.4: the second and the last layers have larger rates; the first and the middle ones hardly drop.",
        told(mean, ".3f"),
        min(mean["second"], mean["last"]) > max(mean["first"], mean["middle"]),
    )


def make_notes(config: Any, found: Found) -> list[str]:
    """What differs from the paper, and how its regularisers were read."""
    pixels = (360 // config.shrink) * (480 // config.shrink)
    scale = length_scale(config.weight_regularizer, config.dropout_regularizer, config.num_train, pixels)
    return [
        *shared_notes(config, found),
        f"Dropout, Concrete dropout too, is of {'single pixels' if config.elementwise else 'whole channels'} "
        "and stands behind every convolution of the blocks and of the transitions down.",
        'The dropout regulariser is printed as "0.01 x N x H x W" and read as 0.01 / (N H W): per pixel the '
        "evidence bound has the entropies with 1 / (N H W), so that this is the bound with its divergence "
        f"multiplied by 0.01; the weight regulariser of 1e-8 then is a prior length scale of {scale:.1f}.",
        "IoU is over the whole test set, void left out; the calibration plot is of all classes of all pixels "
        f"(Kendall & Gal, 2017), and MC is of {config.num_draws} draws.",
        "Maps are of test frames that were chosen by their place in the set, before the run.",
        "Noise of single pixels was chosen over that of whole channels after short runs of a smaller network "
        "with both (150 frames, 2 epochs of each method), which were scored on 40 of the test frames; so "
        "were the 16 epochs of each method (12 before) and the 100 shared ones (120 before).",
    ]


def _learned(config: Any) -> list[tuple[str, str]]:
    starts = [(f"start {start:g}", f"Concrete from {start:g}") for start in config.starts]
    return [("concrete", "Concrete"), *starts]


def _values(found: Found, method: str, way: str, name: str) -> list[float]:
    return [METRICS[name][1] * piece[f"{way}: {name}"] for piece in found[method]]
