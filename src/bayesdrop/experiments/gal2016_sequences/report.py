"""Rows, claims and notes of the runs on sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bayesdrop.experiments.gal2016_sequences.networks import FRESH, LEARNED, NONE, OUTER, SHARED, VARIANTS
from bayesdrop.experiments.row import Claim, Row, mean_and_error

__all__ = ["gather_arrays", "make_claims", "make_notes", "make_rows"]

#: the pieces of every seed, by problem, cell and variant
Found = Mapping[tuple[str, str, str], Sequence[Mapping[str, float]]]

_HELD_OUT = "log-likelihood, held out (nats)"
#: by the name in a piece, what a table calls it
_METRICS = {
    "held out": _HELD_OUT,
    "trained on": "log-likelihood, trained on (nats)",
    "calibration": "calibration error (%)",
}


def _metric(name: str, variant: str) -> str | None:
    """What a table calls a number of a piece; None if it is in no row of its own."""
    kind, _, rest = name.partition(" ")
    if kind == "rate":
        return f"learned rate of the {rest}"
    if kind != "AUROC":
        return _METRICS.get(name)
    score, _, outside = rest.partition(" ")
    if score == "entropy" and variant != NONE:
        return None
    return f"AUROC, {outside}, {score.replace('_', ' ')}"


def _note(problem: str, pieces: Sequence[Mapping[str, float]]) -> str:
    """The note of the held-out likelihood: perplexity or accuracy, and averaged weights."""
    means = {name: float(np.mean([piece[name] for piece in pieces])) for name in pieces[0]}
    parts = [f"{means['held out, averaged weights']:.4g} with averaged weights"]
    if problem == "text":
        parts.insert(0, f"perplexity {math.exp(-means['held out']):.2f}")
    elif "accuracy" in means:
        parts.insert(0, f"accuracy {means['accuracy']:.1f} %")
    return "; ".join(parts)


def make_rows(found: Found, absent: Mapping[str, str], cells: Sequence[str]) -> Iterator[Row]:
    """Means over seeds and their standard errors."""
    for (problem, cell, variant), pieces in found.items():
        for name in pieces[0]:
            metric = _metric(name, variant)
            if metric is None:
                continue
            note = _note(problem, pieces) if name == "held out" else ""
            values = [piece[name] for piece in pieces]
            yield Row.of_runs(f"{problem}, {cell}, {variant}", metric, values, note=note)
    for problem, why in absent.items():
        for cell in cells:
            for variant in VARIANTS:
                yield Row(f"{problem}, {cell}, {variant}", _HELD_OUT, None, None, None, why)


def _groups(found: Found) -> list[tuple[str, str]]:
    return list(dict.fromkeys((problem, cell) for problem, cell, _ in found))


def _differences(found: Found, first: str, second: str, name: str) -> dict[str, tuple[float, float]]:
    """For every problem and cell, the mean of `first` minus `second` over seeds, and its standard error."""
    pairs = {}
    for problem, cell in _groups(found):
        ours, theirs = found[problem, cell, first], found[problem, cell, second]
        mean, error = mean_and_error([a[name] - b[name] for a, b in zip(ours, theirs, strict=True)])
        pairs[f"{problem}, {cell}"] = (mean, error or 0.0)
    return pairs


def _compared(
    found: Found,
    text: str,
    pair: tuple[str, str],
    holds: Callable[[float, float], bool],
    *,
    name: str = "held out",
) -> Claim:
    """A claim about the difference of two variants, which must hold on every problem and with every cell.

    Args:
        found: the pieces.
        text: of the claim.
        pair: the two variants, the second to be subtracted.
        holds: (mean difference, its standard error) -> whether the claim holds.
        name: of the number that is compared.
    """
    differences = _differences(found, *pair, name)
    shown = "; ".join(f"{place} {mean:+.3f} ± {error:.3f}" for place, (mean, error) in differences.items())
    where = [place for place, value in differences.items() if holds(*value)]
    every = len(where) == len(differences)
    others = [place for place in differences if place not in where]
    instead = f"It does not on {'; '.join(others)}." if where else "It holds on none of these."
    what = "nats, held out" if name == "held out" else name
    return Claim(text, f"{pair[0]} less {pair[1]} ({what}): {shown}.", every, otherwise=instead)


def make_claims(found: Found) -> Iterator[Claim]:
    """Sentences and thresholds were fixed before any run; errors are paired by seed."""
    if not found:
        return
    yield _compared(
        found,
        "Section 4.2: noise that is applied again at every step leaves a weak signal. One mask for all steps "
        "is no worse than fresh masks, by two standard errors of the difference.",
        (SHARED, FRESH),
        lambda mean, error: mean >= -2 * error,
    )
    yield _compared(
        found,
        "Fresh masks inside the recurrence lower the held-out likelihood, against fresh masks outside it.",
        (FRESH, OUTER),
        lambda mean, error: mean < 0,
    )
    yield _compared(
        found,
        "Section 4.2: to integrate over the parameters is to avoid over-fitting. One mask has a higher "
        "held-out likelihood than no dropout.",
        (SHARED, NONE),
        lambda mean, error: mean > 0,
    )
    gaps = {
        place: [dict(p, gap=p["trained on"] - p["held out"]) for p in pieces]
        for place, pieces in found.items()
    }
    yield _compared(
        gaps,
        "The likelihood of what was trained on exceeds that of what was held out by less with one mask than "
        "without dropout.",
        (SHARED, NONE),
        lambda mean, error: mean < 0,
        name="gap",
    )
    yield _compared(
        found,
        "Learned rates are no worse than fixed ones, by two standard errors of the difference.",
        (LEARNED, SHARED),
        lambda mean, error: mean >= -2 * error,
    )
    yield _spread_claim(found)


def _spread_claim(found: Found) -> Claim:
    """The AUROC of the spread with one mask is above a half, by two standard errors, for every kind."""
    shown, below = [], []
    for problem, cell in _groups(found):
        pieces = found[problem, cell, SHARED]
        for name in pieces[0]:
            if not name.startswith(("AUROC mutual_information", "AUROC epistemic")):
                continue
            outside = " ".join(name.split(" ")[2:])
            mean, error = mean_and_error([piece[name] for piece in pieces])
            shown.append(f"{problem}, {cell}, {outside} {mean:.3f}")
            if mean <= 0.5 + 2 * (error or 0.0):
                below.append(f"{problem}, {cell}, {outside}")
    return Claim(
        "Draws of one mask disagree more about sequences from outside: the AUROC of their spread is above "
        "0.5 by two standard errors, for every kind.",
        f"{'; '.join(shown)}.",
        not below,
        otherwise=f"It is not for {'; '.join(below)}.",
    )


def gather_arrays(found: Found) -> dict[str, Any]:
    """For the picture: every number of every seed, by problem, cell, variant and name."""
    values = {
        f"{problem} | {cell} | {variant} | {name}": [piece[name] for piece in pieces]
        for (problem, cell, variant), pieces in found.items()
        for name in pieces[0]
    }
    return {"groups": [list(group) for group in _groups(found)], **values}


def make_notes(config: Any, absent: Mapping[str, str]) -> Iterator[str]:
    """What a reader must know."""
    yield (
        "The paper proposes the use and prints no numbers. The claims, their thresholds and the fixed rate "
        "were set before any run, and nothing was tuned to them; but sets were made smaller and epochs more "
        "after a run of the quick preset, in which no network had over-fitted."
    )
    if "text" in config.problems:
        yield (
            "The text differs a little from one version of Python to the next. A seed chooses the pages to "
            "train on and those held out; white space is made single, characters outside ASCII a '?'."
        )
    if {"CO2", "solar"} & set(config.problems):
        yield (
            "Of a series there is one past and one future: its standard errors are over initial weights and "
            "noise alone. The spread of numbers with one noise level says nothing without dropout."
        )
    yield from absent.values()
