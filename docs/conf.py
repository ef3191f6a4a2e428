"""Sphinx configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from bayesdrop.version import __version__

project = "bayesdrop"
author = "The bayesdrop developers"
copyright = "the bayesdrop developers"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
python_maximum_signature_line_length = 90
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"bayesdrop {__version__}"
html_static_path = ["_static"]
html_css_files = ["bayesdrop.css"]


def _escape_formulas(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Norms and keyword arguments of docstrings are plain text, no markup."""
    for index, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            lines[index] = line.replace("|", r"\|").replace("**", r"\*\*")


def _draw_gallery(app: Any) -> None:
    """The pictures of gallery.md are drawn by its own code, in a process of its own."""
    here = Path(__file__).parent
    paths = [str(here.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, str(here / "gallery" / "draw.py")], check=True, env=environment)


def setup(app: Any) -> None:
    """Sphinx calls this."""
    # Before napoleon, whose own markup is to stay.
    app.connect("autodoc-process-docstring", _escape_formulas, priority=400)
    app.connect("builder-inited", _draw_gallery)
