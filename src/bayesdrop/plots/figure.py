"""Figures made without pyplot, so that no global state is changed and no display is needed."""

from __future__ import annotations

import os
import re
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

from bayesdrop.errors import is_one_of, must, require
from bayesdrop.storage import write_file

__all__ = ["check_picture_path", "figure_bytes", "inline_svg", "new_figure", "save_figure"]

#: what `save_figure` writes
SUFFIXES = (".png", ".pdf", ".svg")


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib Figure, not managed by pyplot.

    Args:
        width: in inches.
        height: in inches.
    """
    module = require("matplotlib.figure", extra="plot", owner="new_figure")
    return module.Figure(figsize=(width, height), layout="constrained")


def check_picture_path(
    path: str | os.PathLike[str], *, owner: str = "save_figure", argument: str = "path"
) -> Path:
    """The path; raise unless a picture can be written there: .png, .pdf or .svg in a folder that exists.

    Args:
        path: of the picture.
        owner: the function that the error names.
        argument: the name of its argument.
    """
    target = Path(path)

    def refuse(requirement: str, hint: str = "") -> ValueError:
        return ValueError(must(owner, argument, requirement, str(path), hint))

    if target.suffix.lower() not in SUFFIXES:
        raise refuse(f"a file name that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if target.is_dir():
        raise refuse("a file, not a folder")
    if not target.parent.is_dir():
        raise refuse("in a folder that exists", f"Make it first: mkdir -p {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise refuse("in a folder that can be written to")
    return target


def save_figure(
    figure: Any, path: str | os.PathLike[str], *, dpi: float = 150, colors: int | None = None
) -> Path:
    """Write a figure to a file, which is replaced as a whole: readers never see a part.

    Args:
        figure: a matplotlib Figure.
        path: ends in .png, .pdf or .svg.
        dpi: pixels per inch (PNG).
        colors: size of the palette (PNG), from 2 to 256, which makes line art small; all colours if None.

    Returns: the path.
    """
    target = check_picture_path(path)
    if colors is not None and not 2 <= colors <= 256:
        raise ValueError(must("save_figure", "colors", "from 2 to 256, or None", colors))
    kind = target.suffix.lower().removeprefix(".")
    content = figure_bytes(figure, kind, dpi=dpi)
    if kind == "png" and colors is not None:
        content = _with_palette(content, colors)
    write_file(target, content, owner="save_figure")
    return target


def figure_bytes(figure: Any, kind: str = "png", *, dpi: float = 150) -> bytes:
    """The figure as the bytes of a file, without a date: the same figure gives the same PNG or PDF.

    Args:
        figure: a matplotlib Figure.
        kind: "png", "pdf" or "svg".
        dpi: pixels per inch (PNG).
    """
    dates = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    if not is_one_of(kind, dates):
        raise ValueError(must("figure_bytes", "kind", f"one of {', '.join(dates)}", kind))
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=dates[kind])
    return buffer.getvalue()


def inline_svg(figure: Any) -> str:
    """The figure as an `<svg>` element of an HTML page, in the colours of the page.

    Its texts stay texts, in the page's font; it has no background, and what is black in the figure has the
    page's own colour (`currentColor`), so that it can be read on a dark page too. Greys of the library's own
    pictures become `var(--muted)` and `var(--line)`. Nothing in it is fetched or run, and it has no styles,
    only attributes: a page whose policy allows no inline styles shows it as it is.

    Args:
        figure: a matplotlib Figure.
    """
    matplotlib = require("matplotlib", extra="plot", owner="inline_svg")
    buffer = BytesIO()
    # What ids of shapes are made of: the same figure is the same text.
    options = {"svg.fonttype": "none", "svg.hashsalt": "bayesdrop"}
    with matplotlib.rc_context(options), warnings.catch_warnings():
        # The browser has letters that the font, which the layout is measured with, lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue().decode("utf-8")
    without = r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>"
    text = re.sub(without, "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r">\s+<", "><", re.sub(r"<[^<>]*>", _page_tag, text)).strip()


#: colours of a figure, and what they are on a page
_PAGE_COLORS = {
    "#000000": "currentColor",
    "#1a1a1a": "currentColor",
    "#666666": "var(--muted)",
    "#e8e8e8": "var(--line)",
}


def _page_tag(match: re.Match[str]) -> str:
    """A tag without the names of groups, with two decimals, and with the colours of the page."""
    tag = match.group()
    if tag.startswith("<svg"):
        shape = re.search(r'viewBox="[^"]*"', tag)
        drawn = 'stroke-linejoin="round" stroke-linecap="butt" role="img"'
        return f"<svg {shape.group()} {drawn}>" if shape else f"<svg {drawn}>"
    tag = re.sub(r'^<g id="[^"]*"', "<g", tag).replace("xlink:href", "href")
    tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)
    tag = re.sub(r"#[0-9a-f]{6}\b", lambda color: _PAGE_COLORS.get(color.group(), color.group()), tag)
    tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", tag)
    return re.sub(r' style="([^"]*)"', lambda style: _attributes(style.group(1)), tag)


def _attributes(style: str) -> str:
    """Declarations of a style as attributes of the same names; the font is the page's."""
    pairs = (part.partition(":") for part in style.split(";") if part.strip())
    named = ((name.strip(), value.strip()) for name, _, value in pairs)
    return "".join(f' {name}="{value}"' for name, value in named if name != "font-family")


def _with_palette(png: bytes, colors: int) -> bytes:
    image = require("PIL.Image", extra="plot", owner="save_figure")
    buffer = BytesIO()
    with image.open(BytesIO(png)) as picture:
        few = picture.convert("RGB").quantize(colors, dither=image.Dither.NONE)
        few.save(buffer, format="png", optimize=True, dpi=picture.info.get("dpi", (72, 72)))
    return buffer.getvalue()
