"""Runs the code of docs/gallery.md and keeps the pictures that it saves.

    python docs/gallery/draw.py [FOLDER]        FOLDER is docs/_build/gallery unless given

The documentation's build calls this. Pictures are drawn again when the page or the library has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "gallery.md"
LIBRARY = DOCS.parent / "src" / "bayesdrop"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"^```\{image\} _build/gallery/(\S+)$", re.MULTILINE)


def shown_pictures(text: str) -> list[str]:
    """File names of the pictures that the page shows, in order."""
    return SHOWN.findall(text)


def digest() -> str:
    """What the pictures are made of: the page and the library."""
    made_of = hashlib.sha256()
    for path in (PAGE, *sorted(LIBRARY.rglob("*.py"))):
        made_of.update(path.read_bytes())
    return made_of.hexdigest()


def run_page(text: str, folder: Path) -> None:
    """Run the Python blocks of the page, one after another in one namespace, in `folder`."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for block in BLOCK.finditer(text):
            # Line numbers of a traceback are then those of the page.
            lines = text.count("\n", 0, block.start(1))
            exec(compile("\n" * lines + block[1], str(PAGE), "exec"), namespace)


def draw_gallery(folder: Path) -> None:
    """Bring the pictures in `folder` up to date."""
    text, mark, now = PAGE.read_text(encoding="utf-8"), folder / "drawn-from", digest()
    names = shown_pictures(text)
    drawn = mark.exists() and mark.read_text() == now
    if drawn and all((folder / name).exists() for name in names):
        return
    folder.mkdir(parents=True, exist_ok=True)
    # On the same disk, so that every picture is moved there whole.
    with TemporaryDirectory(dir=folder.parent) as made:
        run_page(text, Path(made))
        saved = {path.name for path in Path(made).glob("*.png")}
        if saved != set(names):
            wrong = ", ".join(sorted(saved ^ set(names)))
            raise SystemExit(f"{PAGE.name}: shown and not saved, or saved and not shown: {wrong}")
        for name in names:
            (Path(made) / name).replace(folder / name)
    for path in folder.glob("*.png"):
        if path.name not in names:
            path.unlink()
    temporary = mark.with_suffix(".tmp")
    temporary.write_text(now)
    temporary.replace(mark)


if __name__ == "__main__":
    draw_gallery(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else DOCS / "_build" / "gallery")
