"""Rows and claims: what the critics say, what was measured, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bayesdrop.experiments.critics.labels import LABEL_METHODS
from bayesdrop.experiments.critics.off_data import CURVE_METHODS, EXACT
from bayesdrop.experiments.critics.two_kinds import DETECTED, KIND_METHODS, PARTS
from bayesdrop.experiments.row import Claim, Row, mean_and_error, told

__all__ = ["gather_arrays", "make_claims", "make_rows"]

#: the pieces of every seed or repeat, by "curve <method>", "size <fixed or learned> <N>", "kinds" and
#: "asked <method>"
Found = Mapping[str, Sequence[Mapping[str, Any]]]
FIXED_RATES = ("dropout, p = 0.05", "dropout, p = 0.2")
# The thresholds of the claims, fixed before any run.
#: a method whose spread grows less than this share of exact inference's, as a multiple of that at the data,
#: fails to follow it
FAILS = 0.5
#: from this rank correlation on, two estimates say the same
ALIKE = 0.8
#: a spread has shrunk that is less than this share of what it was with the fewest rows
SHRUNK = 0.5


def _growths(found: Found, method: str, place: str) -> list[float]:
    """The spread at a place as a multiple of that at the data, of every seed."""
    return [piece[place] / piece["data"] for piece in found[f"curve {method}"]]


def _kinds(found: Found, name: str) -> list[float]:
    """A number of the pieces on two kinds of uncertainty, of every seed; none if they were not run."""
    return [piece[name] for piece in found.get("kinds", ())]


def _mean_accuracies(found: Found, method: str) -> list[float]:
    """Mean accuracy over the numbers of labels, in per cent, of every repeat."""
    return [100 * float(np.mean(piece["accuracy"])) for piece in found.get(f"asked {method}", ())]


def make_rows(found: Found, config: Any) -> Iterator[Row]:
    """Means over seeds, and their standard errors."""
    for method in CURVE_METHODS:
        for place, words in (("gap", "in the gap"), ("far", "far away")):
            yield Row.of_runs(
                f"off the data, {method}", f"spread {words} / at the data", _growths(found, method, place)
            )
    for method in KIND_METHODS:
        yield Row.of_runs(
            f"two kinds, {method}", "rank correlation of the two", _kinds(found, f"{method} | correlation")
        )
        for part in PARTS:
            for place in (*DETECTED, "foreign against blends"):
                values = _kinds(found, f"{method} | {part} | {place}")
                yield Row.of_runs(f"two kinds, {method}, {part}", f"AUROC, {place}", values)
    for name in ("fixed", "learned"):
        for size in config.sizes:
            values = [piece["spread"] for piece in found[f"size {name} {size}"]]
            yield Row.of_runs(f"more data, {name} p, N = {size:,}", "epistemic standard deviation", values)
    for method in LABEL_METHODS:
        values = _mean_accuracies(found, method)
        metric = f"mean accuracy up to {config.most} labels (%)"
        yield Row.of_runs(f"labels, {method.replace('_', '-')}", metric, values)


def make_claims(found: Found, config: Any) -> Iterator[Claim]:
    """Judged by means over seeds. Sentences and thresholds were fixed before any run."""
    yield from _off_data(found)
    if found.get("kinds"):
        yield from _two_kinds(found)
    yield from _more_data(found, config.sizes)
    if found.get(f"asked {LABEL_METHODS[0]}"):
        yield from _labels(found)


def _off_data(found: Found) -> Iterator[Claim]:
    for place, words, arxiv in (
        ("far", "Far from the data", "extrapolation"),
        ("gap", "Between the data", "interpolation"),
    ):
        growth = {method: float(np.mean(_growths(found, method, place))) for method in CURVE_METHODS}
        exact = min(growth[method] for method in EXACT)
        approximate = [method for method in CURVE_METHODS if method not in EXACT]
        best = max(approximate, key=lambda method: growth[method])
        yield Claim(
            f"{words} the spread of dropout fails to grow as that of exact inference does ({arxiv}; arXiv "
            "2512.14851): at fixed rates less than half as much.",
            f"spread by that at the data: {told(growth, '.1f')}.",
            all(growth[method] < FAILS * exact for method in FIXED_RATES),
            "What to do: do not take a small spread for a sign that an input is familiar. Of the approximate "
            f"methods, {best} grows most here; a score of distance to the training inputs says it outright.",
        )


def _two_kinds(found: Found) -> Iterator[Claim]:
    correlation = {
        method: float(np.mean(_kinds(found, f"{method} | correlation"))) for method in KIND_METHODS
    }
    yield Claim(
        "No method keeps the two kinds apart (arXiv 2402.19460): their estimates have a rank correlation of "
        f"at least {ALIKE:g} for every method.",
        f"Spearman's correlation over clean, blended and foreign images: {told(correlation)}.",
        min(correlation.values()) >= ALIKE,
        "What to do: report the total uncertainty, and use the parts for what they detect, not as amounts of "
        "two things.",
    )
    for part, other, place, text in (
        ("epistemic", "aleatoric", "foreign images", "Epistemic uncertainty detects foreign images"),
        ("aleatoric", "epistemic", "blends", "Aleatoric uncertainty detects blends with two labels"),
    ):
        ours, theirs = (
            {
                method: float(np.mean(_kinds(found, f"{method} | {which} | {place}")))
                for method in KIND_METHODS
            }
            for which in (part, other)
        )
        yield Claim(
            f"{text} better than the other kind does, for every method.",
            f"AUROC against clean images, {part}: {told(ours, '.3f')}; {other}: {told(theirs, '.3f')}.",
            all(ours[method] > theirs[method] for method in KIND_METHODS),
            otherwise="Both parts rise on what the network does not know well: choose the score by what it "
            "detects on held-out examples of the kind that matters.",
        )


def _more_data(found: Found, sizes: Sequence[int]) -> Iterator[Claim]:
    few, many = min(sizes), max(sizes)

    def shrunk(name: str) -> tuple[float, str]:
        spreads = {
            f"N = {size:,}": float(np.mean([piece["spread"] for piece in found[f"size {name} {size}"]]))
            for size in sizes
        }
        return spreads[f"N = {many:,}"] / spreads[f"N = {few:,}"], told(spreads, ".3f", behind=True)

    share, spreads = shrunk("fixed")
    yield Claim(
        "At a fixed rate the spread does not shrink with data (Osband, 2016).",
        f"epistemic standard deviation {spreads}: {share:.2f} of what it was.",
        share >= SHRUNK,
        "What to do: learn the rate, or choose it again when there are more data.",
    )
    share, spreads = shrunk("learned")
    rates = {
        f"N = {size:,}": float(np.mean([np.mean(piece["rates"]) for piece in found[f"size learned {size}"]]))
        for size in sizes
    }
    yield Claim(
        "A learned rate (Concrete dropout) answers it: the spread shrinks to less than half.",
        f"epistemic standard deviation {spreads}: {share:.2f} of what it was; mean rate "
        f"{told(rates, '.3f', behind=True)}.",
        share < SHRUNK,
        otherwise="The rates fall as they should, and the spread by less than they do. What to do: compare "
        "spreads within one model, not between sizes of the data.",
    )


def _labels(found: Found) -> Iterator[Claim]:
    accuracies = {method: np.asarray(_mean_accuracies(found, method)) for method in LABEL_METHODS}
    means = {method.replace("_", "-"): float(values.mean()) for method, values in accuracies.items()}
    yield Claim(
        "Labels chosen by the zero-one epistemic uncertainty are worth more than labels at random "
        "(arXiv 2512.12341).",
        f"mean accuracy along the curve, in per cent: {told(means, '.2f')}.",
        means["zero-one"] > means["random"],
    )
    difference, error = mean_and_error(accuracies["zero_one"] - accuracies["bald"])
    yield Claim(
        "They are worth no less than labels chosen by mutual information (BALD), within a standard error.",
        f"zero-one less BALD: {difference:+.2f} +- {error or 0.0:.2f} per cent.",
        difference >= -(error or 0.0),
        "What to do: `acquire.zero_one` where the number of errors is what counts, `acquire.bald` where "
        "probabilities are.",
    )


def gather_arrays(found: Found, config: Any) -> dict[str, Any]:
    """For the picture: spreads on the grid, AUROCs, spreads by size, curves of active learning."""
    arrays: dict[str, Any] = {"curves": list(CURVE_METHODS), "sizes": list(config.sizes), "asked": []}
    for method in CURVE_METHODS:
        pieces = found[f"curve {method}"]
        arrays[f"spread {method}"] = np.mean(
            [np.asarray(piece["spread"]) / piece["data"] for piece in pieces], 0
        )
    for name in ("fixed", "learned"):
        arrays[f"size {name}"] = [
            float(np.mean([piece["spread"] for piece in found[f"size {name} {size}"]]))
            for size in config.sizes
        ]
    if found.get("kinds"):
        arrays["kinds"] = [
            [
                [float(np.mean(_kinds(found, f"{method} | {part} | {place}"))) for place in DETECTED]
                for part in PARTS
            ]
            for method in KIND_METHODS
        ]
    if found.get(f"asked {LABEL_METHODS[0]}"):
        arrays["asked"] = list(LABEL_METHODS)
        for method in LABEL_METHODS:
            pieces = found[f"asked {method}"]
            arrays[f"labels {method}"] = np.asarray(pieces[0]["labels"])
            arrays[f"accuracy {method}"] = 100 * np.mean([piece["accuracy"] for piece in pieces], 0)
    return arrays
