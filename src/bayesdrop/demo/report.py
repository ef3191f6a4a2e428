"""What the demo prints: a small table, and where to go from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesdrop.demo.experiment import DemoResult
from bayesdrop.errors import require

__all__ = ["print_report"]

NEXT_STEPS = (
    "bayesdrop demo --seed 1              another network: do the bands still hold the truth?",
    "bd.predict(model, x, num_draws=100)  your own torch model with dropout (import bayesdrop as bd)",
)


def print_report(result: DemoResult, path: Path, *, console: Any = None) -> None:
    """The scores, where the picture is, and two things to try.

    Args:
        result: of `run_demo`.
        path: of the picture.
        console: a rich Console; standard output if None.
    """
    console = require("rich.console", extra="cli", owner="demo").Console() if console is None else console
    split, config = result.split, result.config
    title = (
        f"Mauna Loa CO2: trained on {len(split.train)} months in {result.train_seconds:.0f} s, "
        f"{result.mc.num_draws} draws"
    )
    table = require("rich.table", extra="cli", owner="demo").Table(title=title, title_justify="left")
    table.add_column("months not\ntrained on")
    table.add_column("method")
    for name in ("RMSE\nppm", "log-likelihood\nnats per month", "coverage of\n95 % interval"):
        table.add_column(name, justify="right")
    # Eighty columns hold the whole table: a terminal's, and a log's.
    labels = {
        "interpolation": f"before {config.train_until:.0f} ({len(split.interpolation)})",
        "extrapolation": f"{config.train_until:.0f} on ({len(split.extrapolation)})",
    }
    previous = None
    for score in result.scores:
        if previous not in (None, score.months):
            table.add_section()
        table.add_row(
            labels[score.months] if score.months != previous else "",
            score.method,
            f"{score.rmse:.2f}",
            f"{score.log_likelihood:.2f}",
            f"{100 * score.coverage:.0f} %",
        )
        previous = score.months
    console.print(table)
    console.print("Both methods read the same trained network. Higher log-likelihood is better;", style="dim")
    console.print("a 95 % interval should hold 95 % of the months.", style="dim", highlight=False)
    # soft_wrap: a path is to be copied, so it is never broken over lines
    console.print(f"\nPicture: {path}", soft_wrap=True, highlight=False, markup=False)
    console.print("\nNext:", highlight=False)
    for step in NEXT_STEPS:
        console.print(f"  {step}", soft_wrap=True, highlight=False, markup=False)
