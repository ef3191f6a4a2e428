"""66 tables: likelihood, CRPS, errors and coverage beside NGBoost, CatBoost, LightGBM and others.

`bayesdrop fit` with its defaults, on real tables of 100 to 3,000 rows with categories, missing cells and
dates among them, against what else one would reach for: NGBoost (Normal), CatBoost (RMSEWithUncertainty),
LightGBM with split conformal intervals, a Gaussian process on up to 2,000 rows, and ridge or logistic
regression. Nobody is tuned; boosting stops early by a tenth of its rows. Every contender has the same random
split, 80 % to 20 %, and one thread; all are measured by the same functions of `bayesdrop.metrics`. Of longer
tables 3,000 rows are taken at random. `--set num_splits=5 --set max_rows=10000` takes hours.
One split of a small table has a few dozen test rows, which tell little of how many targets an interval holds:
our intervals are judged on as many splits as hold 1,000 test rows, ten at most (`coverage_splits`).

A third of the tables, chosen by a hash of their names, is for development. The others are kept aside: claims
are judged on them alone. Ranks are means over tables, with intervals from resampling the tables.

The tables are read from `$BAYESDROP_DATA` (UCI), scikit-learn, statsmodels and small packages that hold CSV
files, which the extra "bench" brings; the boosting libraries live in an environment of their own, which
`make tables-peers` makes (`$BAYESDROP_PEERS` names another Python that has them). What is not there is "not
run". Single tables and contenders: `--set datasets=boston,cars --set contenders=ours,quick,ngboost`.
`--from results/tables.json` runs only those contenders that have changed since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bayesdrop.data import DataNotFound
from bayesdrop.experiments.pieces import PieceCache, run_groups
from bayesdrop.experiments.row import Outcome, Row
from bayesdrop.experiments.tables.catalogue import CATALOGUE, DEVELOPMENT, Entry, entry_of
from bayesdrop.experiments.tables.contenders import CONTENDERS, contender_of, peers_python, trial
from bayesdrop.experiments.tables.known import known_pieces
from bayesdrop.experiments.tables.picture import draw
from bayesdrop.experiments.tables.report import Board, make_arrays, make_claims, make_notes, make_rows
from bayesdrop.experiments.tables.sources import load_table
from bayesdrop.experiments.tables.split import num_tested

__all__ = ["PRESETS", "SMOKE", "TAKES_EARLIER", "Config", "draw", "run"]

TAKES_EARLIER = True

#: of how rows are split and measured; contenders have revisions of their own
REVISION = 1
#: test rows of a table that coverage is judged on, where so many splits are allowed: 1 % at a level of 95 %
_COVERAGE_ROWS = 1000
_PEERS = ("ngboost", "catboost", "lightgbm", "process", "linear")


@dataclass(frozen=True)
class Config:
    """All tables, one split."""

    datasets: tuple[str, ...] = tuple(CATALOGUE)
    contenders: tuple[str, ...] = ("ours", "quick", *_PEERS)
    num_splits: int = 1
    coverage_splits: int = 10  #: of tables of numbers, for the coverage of our first contender, at most
    max_rows: int = 3000  #: of a table; longer ones give rows chosen at random, always the same


SMOKE = Config(
    datasets=("yacht", "iris"), contenders=("quick", "linear"), num_splits=1, coverage_splits=2, max_rows=150
)
PRESETS = {
    "quick": Config(
        datasets=("boston", "cars", "penguins", "tips", "iris", "glass", "survey", "womenlf"),
        coverage_splits=1,
    ),
    "development": Config(datasets=DEVELOPMENT),
}


def run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome:
    """Every contender on every split of every table; ranks, coverage, and the claims."""
    entries, absent = _at_hand(config)
    python = peers_python()
    missing = [name for name in config.contenders if contender_of(name).where == "apart" and python is None]
    contenders = tuple(name for name in config.contenders if name not in missing)
    same = {"num_splits": config.num_splits, "max_rows": config.max_rows}
    known: dict[tuple[str, str], dict[str, Any]] = {}
    notes = []
    for record in cache.earlier:
        new = {place: piece for place, piece in known_pieces(record, same).items() if place not in known}
        known |= new
        titles = dict.fromkeys(CONTENDERS[name].title for _, name in new)
        if new:
            notes.append(
                f"Of an earlier run, commit {(record.commit or 'unknown')[:7]}: {', '.join(titles)}."
            )
    ours = next((name for name in contenders if contender_of(name).where == "ours"), None)
    splits = {
        (entry.name, name): (
            max(config.num_splits, _coverage_splits(entry, config))
            if name == ours and entry.kind == "regression"
            else config.num_splits
        )
        for entry in entries
        for name in contenders
    }
    groups = {
        (table, name): [
            {
                "table": table,
                "contender": name,
                "revision": contender_of(name).revision,
                "split": split,
                "max_rows": config.max_rows,
            }
            for split in range(count)
        ]
        for (table, name), count in splits.items()
        if count > config.num_splits or (table, name) not in known
    }
    pieces = run_groups(groups, trial, cache=cache, progress=progress, label="tables")
    made = {place: pieces[place] if place in pieces else [known[place]] for place in splits}
    board = Board(tuple(entries), contenders, made, config.num_splits)
    rows = [*make_rows(board, missing), *absent]
    return Outcome(rows, make_claims(board), make_arrays(board), [*make_notes(board), *notes])


def _coverage_splits(entry: Entry, config: Config) -> int:
    """How many splits hold as many test rows as coverage is judged on."""
    each = num_tested(len(load_table(entry, config.max_rows)))
    return min(config.coverage_splits, -(-_COVERAGE_ROWS // each))


def _at_hand(config: Config) -> tuple[list[Entry], list[Row]]:
    """Tables that can be read, and rows for those that cannot."""
    entries, absent = [], []
    for name in config.datasets:
        entry = entry_of(name)
        try:
            load_table(entry, config.max_rows)
            entries.append(entry)
        except DataNotFound as error:
            absent.append(Row(name, "all", None, None, note=error.brief))
    return entries, absent
