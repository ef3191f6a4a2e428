"""run_experiment(): run one, write what it found, draw it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayesdrop.engines import Engine, running_on
from bayesdrop.errors import must, require
from bayesdrop.experiments.pieces import PieceCache
from bayesdrop.experiments.record import Record, read_record, write_record
from bayesdrop.experiments.registry import load_experiment
from bayesdrop.experiments.settings import with_settings
from bayesdrop.plots import save_figure
from bayesdrop.storage import check_writable
from bayesdrop.version import __version__

__all__ = ["earlier_record", "run_experiment"]


def run_experiment(
    name: str,
    *,
    preset: str = "default",
    overrides: Mapping[str, Any] | None = None,
    fresh: bool = False,
    processes: int = 1,
    engine: Engine | None = None,
    output: str | os.PathLike[str] = "results",
    cache: str | os.PathLike[str] | None = None,
    earlier: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    progress: bool = False,
) -> Record:
    """Run an experiment; write `<name>.json` and `<name>.png`.

    A preset other than "default" writes `<name>-<preset>`, and settings of one's own `...-custom`: neither
    replaces the reproduction. Both files appear whole or not at all.

    Args:
        name: one of `EXPERIMENTS`.
        preset: "default" is the reproduction; "smoke" takes seconds; an experiment may have more.
        overrides: settings that differ from the preset's, by the field's name.
        fresh: compute everything anew instead of going on with finished pieces.
        processes: how many pieces are computed at a time.
        engine: where pieces are computed instead, as `bayesdrop.engines.RayEngine()`; it is not closed.
        output: the folder of both files; it is made if need be.
        cache: the folder of finished pieces; `runs` in the user's cache if None.
        earlier: results files, or one, for experiments with `TAKES_EARLIER`: numbers of the same version and
            settings are taken from the first file that has them, instead of computing them again. The record
            tells which commit they are of.
        progress: show bars (needs the extra "cli").

    Returns: the record, as its file gives it.
    """
    experiment = load_experiment(name)
    overrides = dict(overrides or {})
    config = with_settings(experiment.config(preset), overrides)
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise ValueError(must("run_experiment", "output", "a folder", str(output)))
    # What can be missing is asked for before a run that may take hours.
    require("matplotlib.figure", extra="plot", owner=f"The picture of {name}")
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / f"{name}.json", owner="run_experiment")
    files = [earlier] if isinstance(earlier, str | os.PathLike) else earlier
    pieces = PieceCache(
        name,
        folder=cache,
        revision=experiment.revision,
        fresh=fresh,
        processes=processes if engine is None else engine.workers,
        earlier=[earlier_record(name, path) for path in files],
        engine=engine,
    )
    commit, start = _commit(), time.perf_counter()
    with running_on(engine):
        outcome = experiment.run(config, cache=pieces, progress=progress)
    record = Record(
        experiment=name,
        title=experiment.title,
        preset=preset,
        overrides={field: getattr(config, field) for field in overrides},
        config=asdict(config),
        version=__version__,
        commit=commit,
        seconds=time.perf_counter() - start + pieces.found_seconds,
        outcome=outcome,
    )
    path = write_record(record, folder)
    # The picture is drawn from the file, as it will be the next time.
    record = read_record(path)
    save_figure(experiment.draw(record.outcome), path.with_suffix(".png"), colors=256)
    return record


def earlier_record(name: str, path: str | os.PathLike[str]) -> Record:
    """The record of an earlier run that an experiment can go on from.

    Args:
        name: of the experiment.
        path: of its results file.
    """
    if not load_experiment(name).takes_earlier:
        raise ValueError(must(name, "earlier", "None: it cannot use a results file", str(path)))
    if not Path(path).is_file():
        raise ValueError(must(name, "earlier", "a results file", f"{path}, which is not there"))
    record = read_record(path)
    if record.experiment != name:
        raise ValueError(must(name, "earlier", "a results file of its own", f"one of {record.experiment}"))
    return record


def _commit() -> str | None:
    """The commit of the checkout that this code runs from, "-modified" if the code is not that commit's."""
    source = Path(__file__).parents[2]
    if not (source.parent / ".git").exists():
        return None
    # No optional locks: to look must not write.
    git = ["git", "--no-optional-locks", "-C", str(source.parent)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = [*git, "status", "--porcelain", "--", str(source)]
        status = subprocess.run(changed, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("-modified" if status.stdout.strip() else "")
