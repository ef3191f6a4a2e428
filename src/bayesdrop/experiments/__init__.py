"""Published tables and figures, run again: one file and one registry line each.

An experiment is a module `experiments/<author><year>_<what>.py` and a line in `experiments/registry.py`.
It has

- a docstring whose first line is its title: who, when, which table or figure, what;
- `Config`, a frozen dataclass whose defaults *are* the reproduction, at a scale that a CPU can bear. Its
  fields are numbers, strings, booleans, None, and tuples of those, so that the command line can set them;
- `SMOKE: Config`, a run of seconds, which the tests make;
- optionally `PRESETS: dict[str, Config]`, further settings by name, as "quick" or "paper";
- optionally `REVISION: int`, 1 if absent: raise it when pieces computed before must not be used again;
- optionally `TAKES_EARLIER = True`: `cache.earlier` may hold records of earlier runs, whose numbers it
  uses where nothing that they depend on has changed; the outcome says which they are, and of which commit;
- `run(config: Config, *, cache: PieceCache, progress: bool) -> Outcome`. What takes long is made of pieces (a
  split, a seed, a setting), each through `cache.get(key, compute)`, or all of them through `run_pieces(keys,
  function, cache=cache, progress=progress)`, so that an interrupted run goes on where it was. A data set that
  raises `bayesdrop.data.DataNotFound` becomes rows with `ours=None`, shown as "not run". No number is ever
  made up;
- `draw(outcome: Outcome) -> Figure`, one picture, from the outcome alone. It is drawn again from the results
  file without running anything, so all it needs is in `outcome.rows` and `outcome.arrays`. Make the figure
  with `bayesdrop.plots.new_figure`.

What many of them do is written once: `run_groups` for several seeds of every method; `picked` and `all_but`
(`settings.py`) for the settings of a key; `Row.of_runs`, `mean_and_error`, `paired`, `listed` and `told`
(`row.py`) for means over runs and for sentences with numbers; `Claim(..., otherwise=...)` for what is said
where a claim fails; `one_pass` for a network without its noise; `plot_runs`, `plot_estimates` and
`finish_axes` of `bayesdrop.plots` for pictures.

`run_experiment(name)` runs one and writes `<name>.json` and `<name>.png`. A preset other than the default,
or settings of one's own, go to files with other names, so that they never replace the reproduction.
"""

from bayesdrop.experiments.pieces import PieceCache, run_groups, run_pieces
from bayesdrop.experiments.record import Record, read_record
from bayesdrop.experiments.registry import EXPERIMENTS, Experiment, load_experiment
from bayesdrop.experiments.row import Claim, Outcome, Row
from bayesdrop.experiments.runner import run_experiment

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Experiment",
    "Outcome",
    "PieceCache",
    "Record",
    "Row",
    "load_experiment",
    "read_record",
    "run_experiment",
    "run_groups",
    "run_pieces",
]
