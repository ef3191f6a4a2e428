"""`bayesdrop explain`: why a prediction is uncertain."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from bayesdrop.cli.options import AsJson, Dates, Encoding, Force, ModelFolder, Numbers, Separator, Sheet
from bayesdrop.cli.printing import plain_errors, print_safely
from bayesdrop.cli.tables import written_as

__all__ = ["explain"]

#: rows of the table of the fit that are compared with, at most
_MOST_ROWS = 1000


def explain(
    model: ModelFolder,
    data: Annotated[
        Path, typer.Argument(help="A table with the model's columns; one row of it is explained.")
    ],
    row: Annotated[int, typer.Option("--row", min=1, help="Which row, counted from 1 below the header.")] = 1,
    training: Annotated[
        Path | None, typer.Option("--data", help="The table of the fit, if the model keeps no rows of it.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the explanation: an .html file.")
    ] = None,
    numbers: Numbers = None,
    dates: Dates = None,
    separator: Separator = None,
    encoding: Encoding = None,
    sheet: Sheet = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Say why a prediction is uncertain: noise or lack of data, which columns, which label would help."""
    with plain_errors():
        from bayesdrop.storage import write_file
        from bayesdrop.tables import explain_row, load_table_model, open_table
        from bayesdrop.tables.explain_page import explanation_lines, explanation_page
        from bayesdrop.tables.rows import rows_of
        from bayesdrop.tables.writing import check_free
        from bayesdrop.tables.written import counted

        if output is not None:
            if output.suffix.lower() not in (".html", ".htm"):
                raise ValueError(f"the output must end in .html; got {output}.")
            check_free(output, force=force, owner="explain")
        fitted = written_as(load_table_model(model), numbers, dates)
        table = open_table(data, separator=separator, encoding=encoding, sheet=sheet)
        fitted.schema.check_names(table.names, str(data))
        frame = table.read()
        if row > len(frame):
            rows = counted(len(frame), "row")
            raise ValueError(f"--row must be a row of {data}, which has {rows}; got {row:,}.")
        known = None
        if training is not None:
            source = open_table(training, separator=separator, encoding=encoding, sheet=sheet)
            known = rows_of(source.read(), fitted.schema, str(training), most=_MOST_ROWS)
        found = explain_row(fitted, frame.iloc[[row - 1]], known)
        if as_json:
            print(json.dumps(found.as_dict(), indent=1))
        else:
            for line in explanation_lines(found):
                print_safely(line)
        if output is not None:
            check_free(output, force=force, owner="explain")
            page = explanation_page(found, f"{data.name}, row {row:,}: {fitted.schema.target}")
            write_file(output, page, owner="explain")
            print(f"Written: {output.resolve()}", file=sys.stderr if as_json else sys.stdout)
