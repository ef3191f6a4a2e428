"""Fits that an earlier results file holds, so that they need not be made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesdrop.data import UCI
from bayesdrop.errors import must
from bayesdrop.experiments.record import NotReusable, Record
from bayesdrop.experiments.uci.fits import ESTIMATOR, METRICS, OURS, REVISION, SECONDS, labels_of
from bayesdrop.experiments.uci.sets import load_set
from bayesdrop.version import __version__

__all__ = ["FEW_ROWS", "KnownFits", "Plan", "SetFits", "moved_by_seed"]

Array = NDArray[np.float64]

#: Commits whose results files do not tell the revision of their fits. Noise was held back by then, which is
#: what revision 2 stands for, and training has not changed since. Inputs beyond what was seen are bounded
#: now, and no test row of these sets has any. Noise that is chosen later is a tenth of the targets' spread
#: meanwhile; it weighs a prior that is below a hundredth of the loss on all sets but naval, which they lack.
_REVISIONS = {"54be11a43c680eba7fb49217e7e320e5be5bd21f": 2, "69f1248274b1d7398302a4f10db7faff8880e39c": 2}


#: rows of a set from which on one fit to every split is enough
FEW_ROWS = 1500


def moved_by_seed(name: str, method: str) -> bool:
    """Whether the seed of a fit moves the mean over splits by half its standard error: a small set."""
    return method not in ("default", "quick") and len(load_set(name)) < FEW_ROWS


@dataclass(frozen=True)
class Plan:
    """How sets are fitted, as far as their scores depend on it.

    Args:
        splits: at most so many of every set.
        repeats: fits of one network to every split of a set of fewer than 1,500 rows, where the seed moves a
            mean over splits by half its standard error; a split's score is their mean.
        num_draws: T when scoring; the methods' own if None.
        steps: of a method and a set's number of rows, the most steps of training a network; None for the
            method's own.
    """

    splits: int
    repeats: int
    num_draws: int | None
    steps: Callable[[str, int], int | None]

    def repeats_of(self, name: str, method: str) -> int:
        """How many fits every split of a set has."""
        return self.repeats if moved_by_seed(name, method) else 1

    def of(self, name: str, method: str) -> tuple[int | None, ...]:
        """What the fits of a set by a method depend on."""
        table = load_set(name)
        splits = min(self.splits, table.num_splits)
        return splits, self.repeats_of(name, method), self.num_draws, self.steps(method, len(table))


class SetFits(NamedTuple):
    """What is known of all splits of a set, fitted by one method."""

    scores: dict[str, Array]  #: (splits, metrics) by label
    averaged: dict[str, Array]  #: (splits,) RMSE of the mean weights, by label; empty in the first records
    rates: Array | None  #: (fits, layers), of methods with one network a fit
    seconds: float  #: of the processor, a split
    commit: str  #: of the code that fitted them


class KnownFits:
    """The fits in a results file that are what would be fitted now: same version, revision and settings.

    Args:
        record: of either table.
        plan: that of the record.

    Raises `NotReusable` if the record is of another version or revision: nothing of it could be used.
    """

    def __init__(self, record: Record, plan: Plan) -> None:
        owner = f"the results file of {record.experiment}"
        revision = record.outcome.arrays.get("revision", _REVISIONS.get(record.commit or ""))
        for what, want, found in (
            ("version", __version__, record.version),
            ("revision of its fits", REVISION, revision),
        ):
            if want != found:
                raise NotReusable(
                    must(owner, what, repr(want), found, "Run without --from to fit all again.")
                )
        self._record, self._plan = record, plan

    def find(self, name: str, method: str, plan: Plan) -> SetFits | None:
        """The fits of a set by a method; None if the record has none, or none by this plan."""
        arrays = self._record.outcome.arrays
        keys = {label: f"{name}/{label}" for label in labels_of(method)}
        # A file of one's own may have changed since.
        if name not in UCI or any(key not in arrays["scores"] for key in keys.values()):
            return None
        if method in OURS and arrays.get("estimator", 1) != ESTIMATOR:
            return None
        wanted = plan.of(name, method)
        scores = {label: np.array(arrays["scores"][key]) for label, key in keys.items()}
        if self._plan.of(name, method) != wanted or any(
            values.shape != (wanted[0], len(METRICS)) for values in scores.values()
        ):
            return None
        averaged = arrays.get("averaged", {})
        rates = arrays["rates"].get(f"{name}/{method}")
        seconds = self._record.outcome.row(f"{name}, {method}", SECONDS).ours
        assert seconds is not None
        commit = arrays.get("commits", {}).get(f"{name}/{method}") or self._record.commit or "unknown"
        return SetFits(
            scores,
            {label: np.array(averaged[key]) for label, key in keys.items() if key in averaged},
            None if rates is None else np.array(rates),
            seconds,
            commit,
        )
