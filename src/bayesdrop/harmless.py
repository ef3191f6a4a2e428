"""Texts of a stranger's table on their way out: what a terminal or a spreadsheet would obey is defused."""

from __future__ import annotations

import re

__all__ = ["NUMBER", "harmless_cell", "visible"]

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
#: characters that move the cursor, colour the screen, ring, hide, or turn the direction of writing
_ORDERS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff"
_IN_CELLS = re.compile(f"[{_ORDERS}]")
_IN_LINES = re.compile(f"[\t\n\r{_ORDERS}]")


def visible(text: str) -> str:
    r"""The text on one line, with characters that a terminal obeys written out.

    >>> visible("red \x1b[31m alert")
    'red \\x1b[31m alert'
    """
    return _IN_LINES.sub(_written_out, text)


def harmless_cell(text: str) -> str:
    r"""The text as a cell of a CSV that a spreadsheet does not run and a terminal does not obey.

    A text that begins with =, +, -, @, a tab or a line end and is not a number has an apostrophe put before
    it, as spreadsheets do themselves.

    >>> harmless_cell("=1+1"), harmless_cell("-1.5"), harmless_cell("-x"), harmless_cell("a=b")
    ("'=1+1", '-1.5', "'-x", 'a=b')
    """
    text = _IN_CELLS.sub(_written_out, text)
    starts = text.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"))
    return f"'{text}" if starts and not NUMBER.fullmatch(text) else text


def _written_out(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")
