"""Parts of a large scoring: which rows each has, how one is scored, and the record that it is finished."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bayesdrop.scoring.places import Folder, Source
from bayesdrop.scoring.stored import file_digest, folder_digest, loaded_once
from bayesdrop.storage import BadJson, from_json, to_json
from bayesdrop.tables import Rule, Schema, load_table_model, open_table, score_file
from bayesdrop.tables.reading import PARQUET
from bayesdrop.tables.score import Scored

__all__ = [
    "RECORDS",
    "Part",
    "PartRecord",
    "ScoringJob",
    "find_record",
    "plan_parts",
    "read_record",
    "record_name",
    "score_part",
]

#: the folder of the records, in the folder of the parts
RECORDS = "_parts"


@dataclass(frozen=True)
class Part:
    """Some rows of a table.

    Attributes:
        number: counted from 0, over all tables.
        source: the table.
        span: its first row and the row after its last, of a Parquet file; None for the whole table.
    """

    number: int
    source: Source
    span: tuple[int, int] | None

    def __str__(self) -> str:
        rows = "" if self.span is None else f", rows {self.span[0]:,} to {self.span[1] - 1:,}"
        return f"{self.source.address}{rows}"


@dataclass(frozen=True)
class ScoringJob:
    """What is the same for all parts: small, to be sent to workers.

    Attributes:
        model: the folder of a table model.
        digest: its checksum.
        schema: the model's, for a table that writes numbers or dates in another way.
        output: where parts go.
        ending: of the parts, as ".parquet".
        level: coverage of intervals; the model's own if None.
        rule: which rows go to a person.
        prefix: put before the names of the new columns.
        chunk_rows: rows that are held at a time.
        reading: options of `open_table`.
    """

    model: str
    digest: str
    schema: Schema
    output: Folder
    ending: str
    level: float | None
    rule: Rule
    prefix: str
    chunk_rows: int
    reading: Mapping[str, str | None]

    def name(self, part: Part) -> str:
        """The file of a part."""
        return f"part-{part.number:06d}{self.ending}"

    def settings(self) -> dict[str, Any]:
        """What parts depend on, as JSON has it."""
        schema = json.dumps(self.schema.as_dict(), sort_keys=True)
        return {
            "model": self.digest,
            "schema": hashlib.sha256(schema.encode()).hexdigest(),
            "ending": self.ending,
            "level": self.level,
            "rule": asdict(self.rule),
            "prefix": self.prefix,
            "reading": dict(self.reading),
        }


@dataclass(frozen=True)
class PartRecord:
    """A finished part.

    Attributes:
        part: its number.
        file: its name.
        sha256: of the file.
        size: bytes of the file.
        source: address of the table.
        span: rows of the table.
        rows: how many were scored.
        deferred: of these, rows to be deferred.
        outside: rows that lie outside what was learned.
        extra: columns that the model does not know.
        unseen: cells with a category that is new, by column.
        filled: missing cells of columns that never lacked one, by column.
        notes: what was assumed when the table was read.
        cpu_seconds: of the process, for this part.
    """

    part: int
    file: str
    sha256: str
    size: int
    source: str
    span: tuple[int, int] | None
    rows: int
    deferred: int
    outside: int
    extra: tuple[str, ...]
    unseen: dict[str, int]
    filled: dict[str, int]
    notes: tuple[str, ...]
    cpu_seconds: float

    @property
    def scored(self) -> Scored:
        """The counts, for the summary."""
        return Scored(
            self.rows,
            self.deferred,
            list(self.extra),
            Counter(self.unseen),
            Counter(self.filled),
            self.outside,
        )


def plan_parts(sources: Sequence[Source], part_rows: int) -> list[Part]:
    """Parquet files of this machine in parts of so many rows; every other table is one part.

    Args:
        sources: the tables, in order.
        part_rows: rows of a part.
    """
    spans: list[tuple[Source, tuple[int, int] | None]] = []
    for source in sources:
        rows = None
        if source.name.lower().endswith(PARQUET) and not source.is_remote:
            rows = open_table(source.address).num_rows
        if rows is None or rows <= part_rows:
            spans.append((source, None))
        else:
            spans += [(source, (start, min(start + part_rows, rows))) for start in range(0, rows, part_rows)]
    return [Part(number, source, span) for number, (source, span) in enumerate(spans)]


def score_part(job: ScoringJob, part: Part) -> PartRecord:
    """Score a part, write it and then its record, each as a whole; a part with a record is finished.

    Args:
        job: what all parts have in common.
        part: the rows.
    """
    # A worker may have finished it and died, or lost its driver, before it could say so.
    finished = find_record(job, part)
    if finished is not None:
        return finished
    start = time.process_time()
    model = replace(_model(job), schema=job.schema)
    part.source.check_unchanged()
    name = job.name(part)
    with part.source.local() as path, job.output.draft(name) as draft:
        table = open_table(path, span=part.span, **job.reading)
        scored = score_file(
            model,
            table,
            draft,
            level=job.level,
            rule=job.rule,
            prefix=job.prefix,
            force=True,
            chunk_rows=job.chunk_rows,
        )
        size, digest = draft.stat().st_size, file_digest(draft)
    part.source.check_unchanged()
    record = PartRecord(
        part=part.number,
        file=name,
        sha256=digest,
        size=size,
        source=part.source.address,
        span=part.span,
        rows=scored.rows,
        deferred=scored.deferred,
        outside=scored.outside,
        extra=tuple(scored.extra),
        unseen=dict(scored.unseen),
        filled=dict(scored.filled),
        notes=table.notes,
        cpu_seconds=time.process_time() - start,
    )
    job.output.write(record_name(part.number), to_json(asdict(record)))
    return record


def record_name(number: int) -> str:
    """The file of the record of a part."""
    return f"{RECORDS}/{number:06d}.json"


def find_record(job: ScoringJob, part: Part) -> PartRecord | None:
    """The record of a part that is finished, and whose file is there as it was written; else None."""
    name = record_name(part.number)
    if job.output.size(name) is None:
        return None
    record = read_record(job.output.read(name))
    if record is None or (record.source, record.span) != (part.source.address, part.span):
        return None
    return record if record.file == job.name(part) and job.output.size(record.file) == record.size else None


def read_record(content: bytes | Mapping[str, Any]) -> PartRecord | None:
    """The record of a file's content or of a manifest's entry; None if it is not whole."""
    try:
        found = dict(from_json(content)[0] if isinstance(content, bytes) else content)
        found.pop("checksum", None)
        span = found["span"]
        found |= {"span": None if span is None else (int(span[0]), int(span[1]))}
        found |= {name: tuple(found[name]) for name in ("extra", "notes")}
        return PartRecord(**found)
    except (BadJson, KeyError, TypeError, ValueError, IndexError):
        return None


def _model(job: ScoringJob) -> Any:
    def make() -> Any:
        if folder_digest(job.model) != job.digest:
            raise ValueError(f"the model {job.model} was changed while tables were scored by it.")
        return load_table_model(job.model)

    return loaded_once(("job", job.model, job.digest), make)
