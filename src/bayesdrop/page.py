"""A page of HTML with everything in it: tables, notes and pictures, nothing fetched and nothing run.

It follows the reader's choice of light or dark, fits a phone (a row of many cells becomes a card, other
tables scroll in a box), and prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import takewhile
from typing import Any

from bayesdrop.errors import require
from bayesdrop.harmless import visible
from bayesdrop.plots import inline_svg, new_figure
from bayesdrop.version import __version__

__all__ = ["Picture", "bullets", "note", "page", "pictures", "safe", "shortened", "shortened_apart", "table"]

#: no script may run and nothing may be fetched, whatever got into the page
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_LONG_WORD = 16
#: characters that the line of a phone has room for, those of a cell that is not broken into lines, and those
#: from which on a cell needs some width
_PHONE, _CELL, _TEXT = 44, 24, 80
#: columns from which on a table is set in smaller letters
_MANY_COLUMNS = 6
#: characters that a line of small letters has room for, and those of a cell that is not broken in such a
#: line, and in a longer one
_LINE, _WORDS, _DATE = 150, 22, 12
#: hyphens that stand for a minus: before a number, and not within a word or a date
_HYPHEN = re.compile(r"(?<![\w.,/)-])-(?=\.?\d)")
#: the space between a number and its percent sign
_PERCENT = re.compile(r"(?<=\d) %")
_STYLE = """
:root { color-scheme: light dark; --ink: #1a202c; --muted: #56606f; --line: #d9dfe7; --back: #fff;
  --box: #f4f7fb; --shade: 0, 114, 178; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --muted: #a2adbb; --line: #3a4350; --back: #14181e; --box: #1d232c; }
  :root { --shade: 86, 180, 233; }
  svg { filter: brightness(1.25); }
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); }
body { max-width: 66rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin-bottom: 0.2rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 0.4rem; } h3 { font-size: 1rem; margin: 1.4rem 0 0.3rem; }
p.note { color: var(--muted); margin: 0.3rem 0; max-width: 48rem; }
ul.short { background: var(--box); border-radius: 0.5rem; padding: 0.8rem 1rem 0.8rem 2rem; }
ul.short { max-width: 52rem; }
ul.short li { margin: 0.25rem 0; }
.wide { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0.4rem 0; }
td, th { padding: 0.25rem 1rem 0.25rem 0; text-align: left; vertical-align: top; }
td, th { border-bottom: 1px solid var(--line); }
td, th { overflow-wrap: break-word; max-width: 26rem; min-width: 2.5rem; }
th { color: var(--muted); font-weight: 600; vertical-align: bottom; }
td.number, th.number { text-align: right; }
td.number { white-space: nowrap; }
@media screen {
  .dense td, .dense th { font-size: 0.85rem; padding-right: 0.7rem; min-width: 0; }
  .tight td.number { white-space: normal; }
  td.long, th.long { overflow-wrap: anywhere; }
}
@media screen and (min-width: 40.01rem) {
  .dense td.key:not(.number) { min-width: 11rem; } .dense td.text { min-width: 8rem; }
  .wide td.long, .wide th.long { min-width: 5rem; } .dense td.short { white-space: nowrap; }
}
@media screen and (max-width: 40rem) {
  .cards thead { display: none; } .cards table, .cards tbody { display: block; }
  .cards tr { display: flex; flex-wrap: wrap; gap: 0 1.2rem; padding: 0.4rem 0; }
  .cards tr { border-bottom: 1px solid var(--line); }
  .cards td { border: 0; padding: 0; min-width: 0; max-width: 100%; }
  .cards td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
  .cards td:first-child { flex-basis: 100%; font-weight: 600; }
  .cards td[data-label]::before { content: attr(data-label) ": "; color: var(--muted); font-weight: 400; }
  .cards td:empty { display: none; } .dense:not(.cards) td.key { min-width: 6rem; }
}
tr.this td { font-weight: 700; }
.pictures { display: grid; gap: 1rem; }
.pictures { grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
figure { margin: 0.6rem 0 0; min-width: 0; } figcaption { font-weight: 600; font-size: 0.95rem; }
figure svg { width: 100%; max-width: 34rem; height: auto; display: block; }
svg { fill: currentColor; } svg text { font-family: system-ui, sans-serif; }
@media print {
  :root { color-scheme: light; --ink: #000; --muted: #444; --line: #bbb; --back: #fff; --box: #fff; }
  :root { --shade: 0, 114, 178; }
  body { font-size: 10.5pt; margin: 0; max-width: none; } svg { filter: none; }
  .wide { overflow: visible; } .wide table { font-size: 8pt; }
  .wide td, .wide th { padding-right: 0.4rem; min-width: 0; white-space: normal; }
  td { print-color-adjust: exact; } .wide .long { overflow-wrap: anywhere; }
  h2, h3 { break-after: avoid; } figure, tr, ul.short { break-inside: avoid; }
  .pictures { grid-template-columns: 1fr 1fr; } ul.short { border: 1px solid #bbb; }
}
"""


def page(title: str, parts: Iterable[str]) -> str:
    """The whole page: its heading, a text, and pieces of HTML."""
    head = (
        "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{safe(title)}</title><style>{_STYLE}</style>"
    )
    body = "\n".join([f"<h1>{safe(title)}</h1>", *parts, note(f"Written by bayesdrop {__version__}.")])
    return f"<!doctype html>\n<html lang='en'>\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n"


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    numbers: Sequence[int] = (),
    *,
    strong: int | None = None,
    shades: Mapping[tuple[int, int], float] | None = None,
) -> str:
    """Rows of texts. On a phone, each row is a card if they are wider than that; with shades, they scroll.

    Args:
        head: names of the columns; no heading if all are empty.
        rows: of cells.
        numbers: columns that are set to the right.
        strong: a row to stand out.
        shades: how strongly cells are shaded, in [0, 1], by row and column.
    """
    rows = [[str(cell) for cell in cells] for cells in rows]
    widths = [max(min(len(cell), _CELL) for cell in column) for column in zip(head, *rows, strict=True)]
    line_length = sum(widths) + 2 * len(widths)
    cards, dense = shades is None and line_length > _PHONE, len(head) > _MANY_COLUMNS
    unbroken = _DATE if line_length > _LINE else _WORDS

    def line(cells: Sequence[str], tag: str, row: int) -> str:
        made = []
        for place, text in enumerate(cells):
            kinds = ["number"] if place in numbers else ["text"] if len(text) > _TEXT else []
            if tag == "td":
                kinds += ["key"] if place == 0 else []
                kinds += ["short"] if dense and place not in numbers and len(text) <= unbroken else []
            # Only what cannot be broken between words may be broken within one, on paper.
            if max(map(len, text.split()), default=0) > _LONG_WORD:
                kinds.append("long")
            style = f' class="{" ".join(kinds)}"' if kinds else ""
            shade = (shades or {}).get((row, place), 0.0) if tag == "td" else 0.0
            if shade > 0:
                style += f' style="background: rgba(var(--shade), {0.55 * shade:.2f})"'
            # The first cell is the heading of a card, and a number there says nothing without its label.
            labelled = cards and tag == "td" and head[place] and (place > 0 or place in numbers)
            label = f' data-label="{safe(head[place])}"' if labelled else ""
            made.append(f"<{tag}{style}{label}>{safe(text)}</{tag}>")
        return f"<tr{' class=this' if row == strong else ''}>{''.join(made)}</tr>"

    top = f"<thead>{line(head, 'th', -1)}</thead>" if any(head) else ""
    body = "".join(line(row, "td", place) for place, row in enumerate(rows))
    kinds = ["wide", *["cards"] * cards, *["dense"] * dense, *["tight"] * (line_length > _LINE)]
    return f'<div class="{" ".join(kinds)}"><table>{top}<tbody>{body}</tbody></table></div>'


def note(text: str) -> str:
    """A paragraph; nothing for an empty text."""
    return f'<p class="note">{safe(text)}</p>' if text else ""


def bullets(lines: Iterable[str]) -> str:
    """A box of sentences: what to read if nothing else."""
    return f'<ul class="short">{"".join(f"<li>{safe(line)}</li>" for line in lines)}</ul>'


def pictures(drawn: Iterable[str]) -> str:
    """Pictures side by side where there is room; nothing without any."""
    made = "\n".join(drawn)
    return f'<div class="pictures">\n{made}\n</div>' if made else ""


def safe(text: str) -> str:
    """A text of the table as a text of the page: with a true minus, and no line ends before a %."""
    return escape(_PERCENT.sub("\u00a0%", _HYPHEN.sub("\u2212", visible(text))))


def shortened(text: str, most: int = 60) -> str:
    """The beginning of a long text; harmless in a picture too."""
    text = visible(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shortened_apart(names: Sequence[str], most: int) -> list[str]:
    """Long names shortened so that those that differ still do: names of a table often begin alike.

    >>> shortened_apart(["concentration of iron", "concentration of zinc", "pH"], 16)
    ['conce…of iron', 'conce…of zinc', 'pH']
    """
    found = [shortened(name, most) for name in names]
    for text in dict.fromkeys(found):
        alike = [place for place, one in enumerate(found) if one == text]
        full = [visible(names[place]) for place in alike]
        if len(set(full)) == 1:
            continue
        # What differs, with some of what is before it.
        same = sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(*full, strict=False)))
        begin = max(most // 3, same - most // 4)
        for place, name in zip(alike, full, strict=True):
            found[place] = shortened(f"{name[: most // 3]}…{name[begin:].lstrip()}", most)
    seen: dict[str, int] = {}
    for place, text in enumerate(found):
        if (first := seen.setdefault(text, place)) != place and names[first] != names[place]:
            found[place] = f"{text[: most - 7]}… ({place + 1})"
    return found


class Picture:
    """A picture of the page: draw on its `ax`, then take its `html`.

    Args:
        title: stands above it.
        height: in inches, of 5.2 in width.
    """

    def __init__(self, title: str, *, height: float = 3.6) -> None:
        self._figure = new_figure(5.2, height)
        self._title = title
        self.ax = self._figure.subplots()
        self.ax.spines[["top", "right"]].set_visible(False)

    def html(self, *, legend: str = "best") -> str:
        """A figure with a legend, if anything has a label; `legend` is its place."""
        if self.ax.get_legend_handles_labels()[0]:
            self.ax.legend(frameon=False, loc=legend, fontsize=9)
        self._plain_texts()
        return f"<figure><figcaption>{safe(self._title)}</figcaption>{inline_svg(self._figure)}</figure>"

    def _plain_texts(self) -> None:
        """Names of a table are no mathematics, however many dollars are in them; numbers have no exponent."""
        ticker = require("matplotlib.ticker", extra="plot", owner="Picture")
        texts = [self.ax.xaxis.label, self.ax.yaxis.label]
        texts += self.ax.get_legend().get_texts() if self.ax.get_legend() else []
        for axis in (self.ax.xaxis, self.ax.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, ticker.FixedFormatter | ticker.FuncFormatter):
                texts += axis.get_ticklabels()
            elif type(formatter) is ticker.ScalarFormatter:
                largest = max(map(abs, axis.get_view_interval()))
                # Long numbers need room beside each other.
                if axis is self.ax.xaxis:
                    axis.set_major_locator(ticker.MaxNLocator(3 if largest >= 100_000 else 5))
                style = ",.10g" if largest >= 10_000 else ".10g"
                axis.set_major_formatter(ticker.StrMethodFormatter(f"{{x:{style}}}"))
        for text in texts:
            text.set_parse_math(False)
            text.set_text(shortened(text.get_text()))
