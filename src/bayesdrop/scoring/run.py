"""score_tables(): many tables, or large ones, in parts on an engine; what is finished is never done again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bayesdrop.engines import Engine, LocalEngine
from bayesdrop.errors import whole_number
from bayesdrop.progress import progress_bar
from bayesdrop.scoring.parts import (
    RECORDS,
    Part,
    PartRecord,
    ScoringJob,
    find_record,
    plan_parts,
    read_record,
    record_name,
    score_part,
)
from bayesdrop.scoring.places import Folder, Source, find_sources, open_folder
from bayesdrop.scoring.stored import folder_digest
from bayesdrop.storage import BadJson, from_json, to_json
from bayesdrop.tables import Rule, Schema, load_table_model
from bayesdrop.tables.reading import PARQUET
from bayesdrop.tables.score import Scored
from bayesdrop.version import __version__

__all__ = ["ScoredTables", "score_tables"]

_PLAN, _MANIFEST, _LOCK = "_plan.json", "_manifest.json", "_lock"
_FORMATS = {"parquet": ".parquet", "csv": ".csv", "csv.gz": ".csv.gz"}


@dataclass(frozen=True)
class ScoredTables:
    """What came of a scoring.

    Attributes:
        output: the folder.
        records: of all parts, in order.
        found: how many parts were finished before.
    """

    output: str
    records: tuple[PartRecord, ...]
    found: int

    @property
    def scored(self) -> Scored:
        """The counts of all parts together."""
        total = Scored()
        for record in self.records:
            one = record.scored
            total.rows += one.rows
            total.deferred += one.deferred
            total.outside += one.outside
            total.unseen += one.unseen
            total.filled += one.filled
            total.extra += [name for name in one.extra if name not in total.extra]
        return total

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed when tables were read, each once."""
        return tuple(dict.fromkeys(note for record in self.records for note in record.notes))


def score_tables(
    model: str | os.PathLike[str],
    data: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    engine: Engine | None = None,
    level: float | None = None,
    rule: Rule | None = None,
    schema: Schema | None = None,
    prefix: str = "",
    format: str | None = None,
    part_rows: int = 249_600,
    chunk_rows: int = 9_600,
    reading: Mapping[str, str | None] | None = None,
    force: bool = False,
    progress: bool = False,
) -> ScoredTables:
    """Score tables of any number and length into a folder of parts.

    Rows are read, scored and written `chunk_rows` at a time, so that memory does not grow with the tables. A
    part is a file that appears as a whole, and then its record; the same call again goes on with the parts
    that have none. At the end `_manifest.json` names all parts with their rows and SHA-256, in the order of
    the data, and the records are removed. The numbers are the same to the last bit for every engine, number
    of workers and size of parts.

    Args:
        model: a folder that `bayesdrop fit` wrote; on a cluster, one that all its machines see.
        data: files, folders or patterns; or addresses as `s3://bucket/*.parquet`, for which fsspec and the
            package of that store must be installed. Parquet files of this machine are cut into parts; any
            other file is one part, and is fetched as a whole if it is not of this machine.
        output: a folder, or an address of one; made if need be.
        engine: runs the parts; processes on all cores of this machine if None.
        level: coverage of the intervals; the model's own if None.
        rule: which rows go to a person; the model's own if None.
        schema: of tables that write numbers or dates in another way; the model's own if None.
        prefix: put before the names of the new columns.
        format: of the parts: "parquet", "csv" or "csv.gz"; if None, Parquet where all data are typed, and CSV
            where none are.
        part_rows: rows of a part.
        chunk_rows: rows that a worker holds at a time; a multiple of 960 wastes none.
        reading: options of `open_table`: separator, encoding, sheet.
        force: start again where the folder holds parts of another scoring, which are then removed.
        progress: show a bar.
    """
    whole_number("score_tables", "part_rows", part_rows, at_least=1)
    whole_number("score_tables", "chunk_rows", chunk_rows, at_least=1)
    path = Path(model).absolute()
    fitted = load_table_model(path)
    sources = find_sources(data)
    folder = open_folder(output)
    job = ScoringJob(
        model=str(path),
        digest=folder_digest(path),
        schema=fitted.schema if schema is None else schema,
        output=folder,
        ending=_ending(sources, format),
        level=level,
        rule=(fitted.rule if rule is None else rule).for_task(fitted.schema.task),
        prefix=prefix,
        chunk_rows=chunk_rows,
        reading=dict(reading or {}),
    )
    folder.make()
    with folder.only_one():
        plan = {
            "settings": job.settings(),
            "part_rows": part_rows,
            "sources": [asdict(source) for source in sources],
        }
        manifest = _settled(folder, plan, force=force)
        if manifest is not None:
            return ScoredTables(str(folder), manifest, len(manifest))
        parts = plan_parts(sources, part_rows)
        found = _finished(folder, job, parts)
        records = _run(job, parts, found, engine or LocalEngine(), progress)
        _conclude(folder, job, plan, records)
    return ScoredTables(str(folder), tuple(records), len(found))


def _run(
    job: ScoringJob, parts: Sequence[Part], found: Mapping[int, PartRecord], engine: Engine, progress: bool
) -> list[PartRecord]:
    records = dict(found)
    missing = [part for part in parts if part.number not in found]
    with progress_bar("parts", len(parts), show=progress) as advance:
        rows = sum(record.rows for record in found.values())
        advance(len(found), f"{rows:,} rows" if found else "")
        for place, record in engine.run(partial(score_part, job), missing):
            records[missing[place].number] = record
            rows += record.rows
            advance(1, f"{rows:,} rows")
    return [records[part.number] for part in parts]


def _ending(sources: Sequence[Source], format: str | None) -> str:
    if format is not None:
        if format not in _FORMATS:
            raise ValueError(f"--format must be one of {', '.join(_FORMATS)}; got {format!r}.")
        return _FORMATS[format]
    typed = [source.name.lower().endswith((*PARQUET, ".feather", ".arrow")) for source in sources]
    if any(typed) and not all(typed):
        raise ValueError("the data are typed files and texts: say with --format what the parts shall be.")
    return ".parquet" if all(typed) else ".csv"


def _settled(folder: Folder, plan: Mapping[str, Any], *, force: bool) -> tuple[PartRecord, ...] | None:
    """The records of a scoring that is done; None if there is something to do.

    Raises where the folder holds something else, unless it is another scoring and `force` is set.
    """
    names = folder.names()
    ours = {_PLAN, _MANIFEST, _LOCK, RECORDS}
    other = sorted(name for name in names if name not in ours and not name.startswith("part-"))
    begun = _read(folder, _MANIFEST, names) or _read(folder, _PLAN, names)
    # A process that was killed before it had a plan leaves the lock alone.
    if other or (begun is None and names.keys() - {_LOCK}):
        shown = ", ".join((other or sorted(names.keys() - {_LOCK}))[:3])
        raise ValueError(f"{folder} holds files of something else ({shown}); they are not touched.")
    wanted = json.loads(json.dumps(plan))
    if begun is not None and begun.get("plan") != wanted and not force:
        what = _difference(begun.get("plan"), wanted)
        raise ValueError(
            f"{folder} holds parts of another scoring: {what}. Choose another folder, or remove them "
            "with --force."
        )
    if begun is not None and begun.get("plan") == wanted:
        records = [read_record(entry) for entry in begun.get("parts", ())]
        whole = [record for record in records if record is not None and names.get(record.file) == record.size]
        if "parts" in begun and len(whole) == len(records):
            _clear_records(folder)
            return tuple(whole)
        if "parts" in begun:
            # Parts of a finished scoring are gone: those that are there keep their records.
            for record in whole:
                folder.write(record_name(record.part), to_json(asdict(record)))
            folder.write(_PLAN, to_json({"plan": wanted}))
            folder.remove(_MANIFEST)
        return None
    # The plan goes last: without it nothing else would be taken for ours.
    for name in folder.names(RECORDS):
        folder.remove(f"{RECORDS}/{name}")
    for name in sorted(names):
        if name.startswith("part-"):
            folder.remove(name)
    folder.remove(_MANIFEST)
    folder.write(_PLAN, to_json({"plan": wanted}))
    return None


def _read(folder: Folder, name: str, names: Mapping[str, int]) -> dict[str, Any] | None:
    if name not in names:
        return None
    try:
        return from_json(folder.read(name))[0]
    except BadJson as error:
        raise ValueError(f"{folder}/{name} is damaged: {error}.") from error


def _difference(old: Any, new: Mapping[str, Any]) -> str:
    if not isinstance(old, dict):
        return "its plan is not known"
    before, now = old.get("settings", {}), new["settings"]
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        return f"its {', '.join(changed)} differ"
    return "its data differ" if old.get("sources") != new["sources"] else "its parts have another size"


def _finished(folder: Folder, job: ScoringJob, parts: Sequence[Part]) -> dict[int, PartRecord]:
    """Records of parts that are there, as they were written."""
    names = folder.names(RECORDS)
    some = [part for part in parts if Path(record_name(part.number)).name in names]
    found = {part.number: find_record(job, part) for part in some}
    return {number: record for number, record in found.items() if record is not None}


def _conclude(
    folder: Folder, job: ScoringJob, plan: Mapping[str, Any], records: Sequence[PartRecord]
) -> None:
    total = {
        "rows": sum(record.rows for record in records),
        "deferred": sum(record.deferred for record in records),
        "bytes": sum(record.size for record in records),
    }
    content = {
        "format": "bayesdrop-scored-tables",
        "format_version": 1,
        "bayesdrop_version": __version__,
        "total": total,
        "plan": plan,
        "parts": [asdict(record) for record in records],
    }
    folder.write(_MANIFEST, to_json(content))
    _clear_records(folder)


def _clear_records(folder: Folder) -> None:
    """Remove what the manifest has made needless."""
    folder.remove(_PLAN)
    for name in folder.names(RECORDS):
        folder.remove(f"{RECORDS}/{name}")
