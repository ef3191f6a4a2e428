"""A page of HTML with everything in it: tables, notes and pictures, nothing fetched from anywhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from bayesdrop.harmless import visible
from bayesdrop.plots import figure_bytes, new_figure
from bayesdrop.version import __version__

__all__ = ["Picture", "note", "page", "safe", "table"]

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a202c; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 0.4rem; }
p.note { color: #4a5568; margin: 0.3rem 0; max-width: 46rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 0.2rem 0.9rem 0.2rem 0; text-align: left; vertical-align: top; }
td, th { border-bottom: 1px solid #e2e8f0; }
td.number, th.number { text-align: right; } .wide { overflow-x: auto; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; margin-top: 1.2rem; }
img { max-width: 100%; width: 30rem; }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """The whole page: its heading, a text, and pieces of HTML."""
    head = f"<meta charset='utf-8'><title>{safe(title)}</title><style>{_STYLE}</style>"
    body = "\n".join([f"<h1>{safe(title)}</h1>", *parts, note(f"Written by bayesdrop {__version__}.")])
    return f"<!doctype html>\n<html lang='en'>\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = ()) -> str:
    """Rows of texts.

    Args:
        head: names of the columns; no heading if all are empty.
        rows: of cells.
        numbers: columns that are set to the right.
    """

    def line(cells: Sequence[Any], tag: str) -> str:
        made = []
        for place, cell in enumerate(cells):
            style = ' class="number"' if place in numbers else ""
            made.append(f"<{tag}{style}>{safe(str(cell))}</{tag}>")
        return f"<tr>{''.join(made)}</tr>"

    top = line(head, "th") if any(head) else ""
    return f"<table>{top}{''.join(line(row, 'td') for row in rows)}</table>"


def note(text: str) -> str:
    """A paragraph; nothing for an empty text."""
    return f'<p class="note">{safe(text)}</p>' if text else ""


def safe(text: str) -> str:
    """A text of the table as a text of the page."""
    return escape(visible(text))


class Picture:
    """A picture of the page: draw on its `ax`, then take its `html`."""

    def __init__(self, title: str) -> None:
        self._figure = new_figure(5.2, 4.0)
        self.ax = self._figure.subplots()
        self.ax.spines[["top", "right"]].set_visible(False)
        self.ax.set_title(title)

    def html(self, *, legend: str = "best") -> str:
        """An image with a legend, if anything has a label; `legend` is its place."""
        if self.ax.get_legend_handles_labels()[0]:
            self.ax.legend(frameon=False, loc=legend)
        data = base64.b64encode(figure_bytes(self._figure, dpi=110)).decode("ascii")
        return f'<img alt="{safe(self.ax.get_title())}" src="data:image/png;base64,{data}">'
