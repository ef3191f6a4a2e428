"""Rows, claims and notes of the attacks on digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bayesdrop.experiments.adversarial_mnist.trial import ATTACKS, FIXED, LEARNED, NETWORKS, PLAIN, name_of
from bayesdrop.experiments.row import Claim, Row

__all__ = ["gather_arrays", "make_claims", "make_notes", "make_rows"]

#: the pieces of every seed, by network
Found = Mapping[str, Sequence[Mapping[str, float]]]

_SHOWN = (
    "AUROC, attacked, max softmax",
    "AUROC, attacked, entropy",
    "AUROC, attacked, mutual information",
    "AUROC, wrong, max softmax",
    "AUROC, wrong, entropy",
    "AUROC, wrong, mutual information",
)
_UNAWARE = ("FGSM", "PGD")


def _attacks_of(network: str) -> list[str]:
    return [name for name, how in ATTACKS.items() if network != PLAIN or how["through"] == "mean"]


def _values(found: Found, network: str, name: str) -> list[float]:
    """A number of a piece, for every seed that has it."""
    return [piece[name] for piece in found[network] if name in piece]


def _mean(found: Found, network: str, name: str) -> float:
    return float(np.mean(_values(found, network, name)))


def _row(found: Found, network: str, setting: str, name: str, metric: str, note: str = "") -> Row:
    values = _values(found, network, name) if found else []
    return Row.of_runs(setting, metric, values, note=note or ("" if values else "not run"))


def make_rows(found: Found, config: Any) -> Iterator[Row]:
    """Means over seeds and their standard errors; rows without numbers are "not run"."""
    for network in NETWORKS:
        yield _row(found, network, f"{network}, clean", name_of(0, "clean", "accuracy"), "accuracy (%)")
        for radius in config.radii:
            for attack in _attacks_of(network):
                yield from _rows_of(found, network, radius, attack)
    if found:
        for name in found[LEARNED][0]:
            if name.startswith("rate | "):
                layer = name.removeprefix("rate | ")
                yield _row(found, LEARNED, f"{LEARNED}, layer {layer}", name, "learned rate")


def _rows_of(found: Found, network: str, radius: float, attack: str) -> Iterator[Row]:
    setting = f"{network}, {attack}, eps {radius:g}"
    unseen = ""
    if found:
        score = "max softmax" if network == PLAIN else "entropy"
        share = _mean(found, network, name_of(radius, attack, f"unseen, {score}"))
        unseen = f"{share:.1f} % unseen by {score}"
    yield _row(found, network, setting, name_of(radius, attack, "accuracy"), "accuracy (%)", unseen)
    for measure in _SHOWN:
        if network == PLAIN and "max softmax" not in measure:
            continue
        name = name_of(radius, attack, measure)
        known = bool(found) and bool(_values(found, network, name))
        note = "" if known or not found else "all images were right, or all wrong"
        yield _row(found, network, setting, name, measure, note)


def make_claims(found: Found, config: Any) -> Iterator[Claim]:
    """Judged by means over seeds. Sentences and thresholds were fixed before any run."""
    drawn = (FIXED, LEARNED)
    places = [(network, radius) for network in drawn for radius in config.radii]

    def auroc(network: str, radius: float, attack: str, score: str) -> float:
        return _mean(found, network, name_of(radius, attack, f"AUROC, attacked, {score}"))

    seen = {place: auroc(*place, "FGSM", "mutual information") for place in places}
    yield _every(
        "Section 1: uncertainty detects adversarial examples. The mutual information tells images after an "
        "FGSM that does not know of dropout from clean ones, with an AUROC above 0.8 at every eps.",
        {_named(place): f"{value:.3f}" for place, value in seen.items()},
        {_named(place): value > 0.8 for place, value in seen.items()},
    )
    pairs = {
        (*place, attack): (auroc(*place, attack, "entropy"), auroc(*place, attack, "max softmax"))
        for place in places
        for attack in _UNAWARE
    }
    yield _every(
        "The entropy of draws tells images after attacks that do not know of dropout from clean ones better "
        "than the largest probability of the averaged weights (AUROC of the one, of the other).",
        {_named(place): f"{a:.3f}, {b:.3f}" for place, (a, b) in pairs.items()},
        {_named(place): a > b for place, (a, b) in pairs.items()},
    )
    accuracies = {
        place: tuple(
            _mean(found, place[0], name_of(place[1], attack, "accuracy")) for attack in ("PGD, aware", "PGD")
        )
        for place in places
    }
    yield _every(
        "An attack that knows of dropout does more harm: accuracy under PGD through draws is not above that "
        "under PGD through averaged weights (%; aware, unaware).",
        {_named(place): f"{a:.1f}, {b:.1f}" for place, (a, b) in accuracies.items()},
        {_named(place): a <= b for place, (a, b) in accuracies.items()},
    )
    largest = [(network, max(config.radii)) for network in drawn]
    fooled = {place: auroc(*place, "PGD, aware and sure", "mutual information") for place in largest}
    yield _every(
        "Uncertainty does not protect from who attacks it: under PGD that knows of dropout and wants to be "
        "sure, at the largest eps, attacked images have less mutual information than clean ones (AUROC below "
        "0.5).",
        {_named(place): f"{value:.3f}" for place, value in fooled.items()},
        {_named(place): value < 0.5 for place, value in fooled.items()},
    )


def _named(place: tuple[Any, ...]) -> str:
    network, radius, *attack = place
    return ", ".join([network, f"eps {radius:g}", *attack])


def _every(text: str, shown: Mapping[str, str], holds: Mapping[str, bool]) -> Claim:
    """A claim that must hold at every place."""
    others = [place for place, value in holds.items() if not value]
    instead = "It holds at none of these."
    if not others:
        instead = ""
    elif len(others) < len(holds):
        instead = f"It does not at {'; '.join(others)}."
    return Claim(
        text, "; ".join(f"{place} {value}" for place, value in shown.items()) + ".", not others, instead
    )


def gather_arrays(found: Found, config: Any) -> dict[str, Any]:
    """For the picture: every number of every seed."""
    values = {
        f"{network} | {name}": _values(found, network, name)
        for network, pieces in found.items()
        for name in pieces[0]
    }
    return {"radii": list(config.radii), "norm": config.norm, **values}


def make_notes() -> Iterator[str]:
    """What a reader must know."""
    yield (
        "The paper names the use and prints no numbers; it refers to Li & Gal (2017), with other networks."
    )
    yield (
        "The claims and their thresholds were fixed before any run. A gradient of the aware attacks had 8 "
        "draws until a run of the quick preset, with 4, showed them to be weaker than the unaware ones on a "
        "network that drops half of its units: few draws are a noisy direction, averaged weights a good one."
    )
    yield (
        "What is seen here is seen of these attacks. That a stronger one is not seen is to be expected: "
        "uncertainty is a function of the input like any other, and an attacker can climb it too. Dropout's "
        "uncertainty is no defence against an attacker who knows the network."
    )
