"""Rows, claims and notes on the dropouts of CIFAR-10."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bayesdrop.experiments.boluki2020_cifar.heads import METHODS
from bayesdrop.experiments.row import Claim, Row, mean_and_error

__all__ = ["make_claims", "make_notes", "make_rows"]

#: the pieces of every seed, by method
Found = Mapping[str, Sequence[Mapping[str, Any]]]
#: what is measured -> name in the table, factor
METRICS = {
    "accuracy": ("accuracy (%)", 100),
    "mean_pavpu": ("mean PAvPU (%)", 100),
    "log_likelihood": ("log-likelihood (nats)", 1),
    "ece": ("calibration error (%)", 100),
    "auroc": ("AUROC of errors by entropy", 1),
}
#: a difference counts that is at least so many paired standard errors from 0
_STANDARD_ERRORS = 2.0


def make_rows(methods: Iterable[str], found: Found) -> Iterator[Row]:
    """All measures of all methods, and the mean rates of the two layers where they are learned."""
    for method in methods:
        own, printed = found[method], METHODS[method].printed
        papers = {"accuracy": printed[0], "mean_pavpu": printed[1]}
        for name, (metric, factor) in METRICS.items():
            values = [factor * piece[name] for piece in own]
            note = "printed PAvPU is not comparable" if name == "mean_pavpu" and printed[1] else ""
            yield Row.of_runs(METHODS[method].title, metric, values, paper=papers.get(name), note=note)
        for place in (1, 2):
            if method in ("concrete", "unit", "layer", "one"):
                means = [float(np.mean(piece[f"rates {place}"])) for piece in own]
                yield Row.of_runs(METHODS[method].title, f"mean rate, layer {place}", means)


def make_claims(found: Found) -> Iterator[Claim]:
    """The paper's sentences, judged over paired seeds."""
    if "unit" in found and len(found) > 1:
        for name in ("accuracy", "mean_pavpu"):
            title, factor = METRICS[name]
            means = {
                method: factor * float(np.mean([piece[name] for piece in pieces]))
                for method, pieces in found.items()
            }
            own = means.pop("unit")
            best, method = max((mean, method) for method, mean in means.items())
            yield Claim(
                f"Table 1: learnable Bernoulli dropout has the highest {title.split(' (')[0]} of all.",
                f"{own:.2f} against {best:.2f} of {METHODS[method].title}, the best of the others.",
                own > best,
                otherwise=_difference(found, method, name),
            )
    if "unit" in found and "bernoulli" in found:
        for name in ("log_likelihood", "mean_pavpu"):
            difference, error = _paired(found, "unit", "bernoulli", name)
            yield Claim(
                f"Table 1: learned rates are no worse than a fixed rate of 0.5 in "
                f"{METRICS[name][0].split(' (')[0]}; here not worse by more than two paired standard "
                "errors.",
                _difference(found, "bernoulli", name),
                difference > -_STANDARD_ERRORS * error,
            )
    if "unit" in found and "one" in found:
        difference, error = _paired(found, "unit", "one", "accuracy")
        within = "The difference is within two of its standard errors: so few seeds do not tell."
        yield Claim(
            "3.2.1: one rate for all units gives up accuracy against a rate for every unit.",
            _difference(found, "one", "accuracy"),
            difference > 0,
            within if abs(difference) <= _STANDARD_ERRORS * error else "",
        )


def make_notes(config: Any, found: Found) -> list[str]:
    """What differs from the paper."""
    seconds = [piece["seconds"] for own in found.values() for piece in own]
    return [
        f"The paper's network is VGG-19 at 224 x 224 from weights of ImageNet; here convolutions "
        f"{config.channels} with BatchNorm, 32 x 32, {config.warm_epochs} shared epochs without dropout "
        f"for every seed and {config.epochs} of each method with a new head ({config.head}), all weights "
        "trained.",
        "Printed PAvPU cannot be compared: the published code sums the entropies of a whole batch. Here it "
        "is the mean over 21 thresholds, evenly spaced over the range of entropies of 5,000 validation "
        "images; it depends on that range, which is the method's own.",
        "Regular dropout predicts by one pass of the network of MC dropout, no dropout by its only one; the "
        f"others by {config.num_draws} draws. All train with random crops and flips.",
        f"A run, the shared epochs counted in full, took {np.mean(seconds) / 60:.1f} CPU minutes on average.",
        "The claims' thresholds were fixed before the run.",
    ]


def _paired(found: Found, one: str, other: str, name: str) -> tuple[float, float]:
    """Mean difference over seeds, and its standard error: infinite for one seed."""
    factor = METRICS[name][1]
    pairs = zip(found[one], found[other], strict=True)
    mean, error = mean_and_error([factor * (a[name] - b[name]) for a, b in pairs])
    return mean, math.inf if error is None else error


def _difference(found: Found, other: str, name: str) -> str:
    mean, error = _paired(found, "unit", other, name)
    spread = f" +- {error:.2g}" if math.isfinite(error) else ""
    return (
        f"Learnable minus {METHODS[other].title}, {METRICS[name][0]}: {mean:+.3g}{spread} over "
        f"{len(found['unit'])} paired seeds."
    )
