"""Tables: digits that mean something, and gaps that are seen."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bayesdrop.experiments import Claim, Outcome, Record, Row
from bayesdrop.experiments.table import markdown_table, print_table, shown_number, text_table


def record(*rows: Row, **parts: object) -> Record:
    return Record(
        experiment="toy2020",
        title="Toy [2020], Table 1",
        preset="quick",
        overrides={"epochs": 3},
        config={},
        version="1.2",
        commit="0123456789-modified",
        seconds=1.0,
        outcome=Outcome(rows, **parts),
    )


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (2.97123, 0.0417, "2.971 ± 0.042"),
        (-2.46, 0.25, "\N{MINUS SIGN}2.46 ± 0.25"),
        (1234.56, 20.3, "1235 ± 20"),
        (0.5, 0.0, "0.5000"),
        (0.0, None, "0"),
        (-1e-9, 0.1, "0.00 ± 0.10"),
        (93.468, None, "93.47"),
        (12345678.0, None, "1.235e+07"),
        (0.0000123456, None, "1.235e-05"),
        (12345.6, None, "12346"),
    ],
)
def test_digits_follow_the_standard_error(value: float, error: float | None, shown: str) -> None:
    assert shown_number(value, error) == shown


ROWS = (
    Row("yacht", "RMSE", "1.11 ± 0.38", 0.72, 0.03),
    Row("yacht", "log-likelihood", -1.55, -1.381),
    Row("a|b", "RMSE", None, None, note="no data"),
)


def test_markdown_has_a_line_for_every_row() -> None:
    assert markdown_table(record(*ROWS)).splitlines() == [
        "| setting | metric | paper | ours | note |",
        "| --- | --- | ---: | ---: | --- |",
        "| yacht | RMSE | 1.11 ± 0.38 | 0.720 ± 0.030 |  |",
        "| yacht | log-likelihood | \N{MINUS SIGN}1.55 | \N{MINUS SIGN}1.381 |  |",
        "| a\\|b | RMSE | \N{EN DASH} | not run | no data |",
    ]


def test_text_is_in_line() -> None:
    lines = text_table(record(*ROWS[:2])).splitlines()
    assert lines[0].split() == ["setting", "metric", "paper", "ours"], (
        "no column for notes where there are none"
    )
    assert (
        len({line.index(word) for line, word in zip(lines[2:], ("1.11", "\N{MINUS SIGN}1.55"), strict=True)})
        == 1
    )


def test_a_terminal_shows_rows_claims_and_notes() -> None:
    claims = (Claim("A grows.", "2 > 1.", True), Claim("B falls.", "2 > 1.", False, "B grows."))
    stream = io.StringIO()
    console = Console(file=stream, width=200)
    print_table(record(*ROWS, claims=claims, notes=("Fewer epochs.",)), console=console)
    shown = stream.getvalue()
    for piece in (
        "Toy [2020], Table 1",
        "not run",
        "preset quick, epochs = 3; bayesdrop 1.2, commit 0123456+",
        "holds: A grows. Measured: 2 > 1.",
        "does not hold: B falls.",
        "instead: B grows.",
        "note: Fewer epochs.",
    ):
        assert piece in shown
