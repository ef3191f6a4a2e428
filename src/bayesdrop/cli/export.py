"""`bayesdrop export`: a table model as one ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayesdrop.cli.options import (
    AsJson,
    DeferBy,
    DeferError,
    DeferShare,
    Force,
    Level,
    ModelFolder,
)
from bayesdrop.cli.printing import plain_errors, print_safely

__all__ = ["export"]


def export(
    model: ModelFolder,
    output: Annotated[Path, typer.Argument(help="The file to write, as model.onnx.")],
    level: Level = None,
    defer_share: DeferShare = None,
    defer_error: DeferError = None,
    defer_by: DeferBy = None,
    prefix: Annotated[str, typer.Option(help="Put before the names of the outputs.")] = "",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a model that `fit` made as one ONNX file, from cells to predictions; compared with `predict`."""
    with plain_errors():
        import json

        from bayesdrop.cli.tables import check_level, rule_of
        from bayesdrop.tables import export_table, load_table_model

        check_level(level)
        fitted = load_table_model(model)
        rule = rule_of(fitted, defer_share, defer_error, defer_by)
        done = export_table(fitted, output, level=level, rule=rule, prefix=prefix, overwrite=force)
        if as_json:
            said = {
                "path": str(done.path.resolve()),
                "inputs": done.inputs,
                "outputs": list(done.outputs),
                "num_draws": done.num_draws,
                "num_bytes": done.num_bytes,
                "largest_error": done.largest_error,
            }
            print(json.dumps(said, ensure_ascii=False))
            return
        print_safely("Inputs, each of shape (N, 1):")
        for name, what in done.inputs.items():
            print_safely(f"  {name}: {what}")
        print_safely(f"Outputs: {', '.join(done.outputs)}.")
        print(f"{done.num_draws} draws, {done.num_bytes / 1e6:.1f} MB.")
        print(
            f"Checked against predict: within {done.largest_error:.0e} of the largest number of each column."
        )
        print(f"Written: {done.path.resolve()}")
