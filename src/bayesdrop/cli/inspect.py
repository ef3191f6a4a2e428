"""`bayesdrop inspect`: how a table would be read, before anything is fitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bayesdrop.cli.options import (
    AsJson,
    Categorical,
    Dates,
    Encoding,
    Force,
    Ignore,
    Keep,
    Missing,
    Numbers,
    SchemaFile,
    Separator,
    Sheet,
)
from bayesdrop.cli.printing import plain_errors, print_safely
from bayesdrop.cli.schema_table import print_inspection

__all__ = ["inspect"]


def inspect(
    data: Annotated[
        Path, typer.Argument(help="A table: a file, a folder of files, or - for standard input.")
    ],
    target: Annotated[str | None, typer.Option("--target", "-t", help="The column to predict.")] = None,
    task: Annotated[str, typer.Option(help="auto, regression or classification.")] = "auto",
    save: Annotated[Path | None, typer.Option(help="Write a schema to edit: a .json file.")] = None,
    schema: SchemaFile = None,
    categorical: Categorical = None,
    ignore: Ignore = None,
    keep: Keep = None,
    missing: Missing = None,
    numbers: Numbers = None,
    dates: Dates = None,
    separator: Separator = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Show how a table is read and what a fit would make of its columns."""
    with plain_errors():
        from bayesdrop.storage import write_file
        from bayesdrop.tables import inspect_table, open_table, read_schema
        from bayesdrop.tables.spelling import DATES, NUMBERS
        from bayesdrop.tables.wishes import ways_of
        from bayesdrop.tables.writing import check_free
        from bayesdrop.tables.written import counted

        if task not in ("auto", "regression", "classification"):
            raise ValueError(f"--task must be auto, regression or classification; got {task!r}.")
        if save is not None:
            check_free(save, force=force, owner="inspect")
        table = open_table(data, separator=separator, encoding=encoding, sheet=sheet)
        found = inspect_table(
            table.read(),
            target=target,
            task=task,
            missing=missing or (),
            categorical=categorical or (),
            ignore=ignore or (),
            keep=keep or (),
            numbers=ways_of(numbers or (), NUMBERS, "--numbers"),
            dates=ways_of(dates or (), DATES, "--dates"),
            schema=None if schema is None else read_schema(schema),
        )
        if as_json:
            print(json.dumps(found.as_dict() | {"notes": table.notes}, indent=1))
        else:
            separated = "" if table.separator is None else f", cells separated by {table.separator!r}"
            size = f"{counted(found.rows, 'row')}, {counted(len(found.columns), 'column')}"
            print_safely(f"{table.path}: {size}{separated}.")
            for note in table.notes:
                print_safely(note)
            print_inspection(found)
        if save is not None:
            check_free(save, force=force, owner="inspect")
            write_file(save, json.dumps(found.schema, indent=1, ensure_ascii=False) + "\n", owner="inspect")
            if not as_json:
                print(f"Schema: {save.resolve()}")
