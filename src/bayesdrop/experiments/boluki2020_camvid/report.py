"""Rows, claims and notes on dropouts in the middle of a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bayesdrop.experiments.camvid.notes import shared_notes
from bayesdrop.experiments.row import Claim, Row, mean_and_error, paired, told

__all__ = ["TABLE_ROWS", "make_claims", "make_notes", "make_rows"]

#: the pieces of every seed, by method
Found = Mapping[str, Sequence[Mapping[str, Any]]]
#: what is measured -> name in the table, factor
METRICS = {
    "accuracy": ("pixel accuracy (%)", 100),
    "mean_iou": ("IoU over the set (%)", 100),
    "mean_iou_by_image": ("IoU, mean of images (%)", 100),
    "mean_pavpu": ("mean PAvPU, 2 x 2 (%)", 100),
    "calibration": ("calibration RMSE", 1),
    "log_likelihood": ("log-likelihood (nats a pixel)", 1),
}


class TableRow(NamedTuple):
    """A row of table 1."""

    title: str
    method: str  #: how its network is trained
    way: str  #: "single" predicts by one pass without noise, "draws" by draws
    printed: tuple[float, float, float] | None  #: accuracy, IoU and PAvPU in percent


TABLE_ROWS = {
    "regular": TableRow("regular dropout", "bernoulli", "single", (86.65, 53.62, 81.17)),
    "bernoulli": TableRow("MC dropout", "bernoulli", "draws", (87.80, 54.40, 84.39)),
    "gaussian": TableRow("Gaussian dropout", "gaussian", "draws", (88.04, 54.85, 85.02)),
    "concrete": TableRow("Concrete dropout", "concrete", "draws", (88.64, 55.95, 83.81)),
    "layer": TableRow("learnable, every layer", "layer", "draws", (89.18, 60.42, 85.16)),
    "channel": TableRow("learnable, every channel", "channel", "draws", None),
}
#: fixed before the run: points of IoU that learned rates may be behind
POINTS = 1.0
_LEARNED = ("concrete", "layer", "channel")


def make_rows(found: Found) -> Iterator[Row]:
    """All measures of all methods, and the mean rates of those that are learned."""
    for name, row in _present(found).items():
        printed = row.printed or (None, None, None)
        papers = {"accuracy": printed[0], "mean_iou_by_image": printed[1], "mean_pavpu": printed[2]}
        for measure, (metric, factor) in METRICS.items():
            values = _values(found, row, measure, factor)
            note = "printed PAvPU is not comparable" if measure == "mean_pavpu" and row.printed else ""
            yield Row.of_runs(row.title, metric, values, paper=papers.get(measure), note=note)
        if name in _LEARNED:
            means = [float(np.mean(piece["rates"])) for piece in found[row.method]]
            yield Row.of_runs(row.title, "mean rate", means)


def make_claims(found: Found) -> Iterator[Claim]:
    """The paper's sentences; the thresholds were fixed before the run."""
    present = _present(found)
    means = {
        measure: {
            name: mean_and_error(_values(found, row, measure, METRICS[measure][1]))[0]
            for name, row in present.items()
            if name != "channel"
        }
        for measure in ("accuracy", "mean_iou", "mean_pavpu")
    }
    if "layer" in present:
        for measure, values in means.items():
            others = {name: value for name, value in values.items() if name != "layer"}
            best = max(others, key=lambda name: others[name])
            text = METRICS[measure][0].removesuffix(" (%)")
            yield Claim(
                f"Table 1: learnable Bernoulli dropout has the highest {text} of all.",
                f"{values['layer']:.2f} against {others[best]:.2f} of {present[best].title}, the best of "
                "the others",
                values["layer"] > others[best],
            )
        ours, theirs = (_values(found, present[name], "mean_iou", 100) for name in ("layer", "bernoulli"))
        gain, text = paired(ours, theirs)
        yield Claim(
            "Table 1: learned rates are no worse than the hand-tuned rate of 0.2; here, not more than "
            f"{POINTS:g} point of IoU behind.",
            f"learnable less MC dropout: {text} points of IoU over the set",
            gain >= -POINTS,
        )
    order = [name for name in ("layer", "concrete", "gaussian", "bernoulli", "regular") if name in present]
    if len(order) > 2:
        values = means["accuracy"]
        best_first = sorted(order, key=lambda name: -values[name])
        yield Claim(
            "Table 1, order of the accuracies: " + ", ".join(present[name].title for name in order) + ".",
            told({present[name].title: values[name] for name in best_first}),
            all(values[a] > values[b] for a, b in pairwise(order)),
        )
    learned = [name for name in ("concrete", "layer") if name in present]
    if learned:
        values = means["mean_pavpu"]
        yield Claim(
            "3.2.2: methods that learn the rates have a better PAvPU than MC and regular dropout.",
            told({present[name].title: value for name, value in values.items()}),
            min(values[name] for name in learned) > max(values["bernoulli"], values["regular"]),
        )


def make_notes(config: Any, found: Found) -> list[str]:
    """What differs from the paper."""
    return [
        *shared_notes(config, found),
        "Noise is of whole channels, in the middle block and nowhere else; the paper keeps dropout of 0.2 in "
        "all other layers.",
        "The published code averages the IoU of the classes that an image has, image by image: printed IoU "
        "stands beside that. The IoU over the whole set is another number.",
        "Printed PAvPU cannot be compared: the patches of the published code are strips of whole rows. Here "
        "they are squares of 2 x 2 pixels, and the mean is over 21 thresholds, evenly spaced over the range "
        f"of entropies of {config.num_validation} validation frames; it depends on that range, which is the "
        "method's own.",
        "Gaussian dropout has the fixed variance of dropout at the same rate. The divergence is that of the "
        "evidence bound, 1 / (N H W) a pixel, as in the published code.",
        f"Regular dropout predicts by the single pass; the others by {config.num_draws} draws.",
    ]


def _present(found: Found) -> dict[str, TableRow]:
    """The rows whose methods were run."""
    return {name: row for name, row in TABLE_ROWS.items() if row.method in found}


def _values(found: Found, row: TableRow, measure: str, factor: float) -> list[float]:
    return [factor * piece[f"{row.way}: {measure}"] for piece in found[row.method]]
