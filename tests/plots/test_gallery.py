"""The gallery page: a picture for every function, and code for every picture."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from bayesdrop import plots

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "gallery.md").read_text()


@pytest.fixture
def gallery() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", DOCS / "gallery" / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calls(gallery: ModuleType) -> list[ast.Call]:
    trees = [ast.parse(block) for block in gallery.BLOCK.findall(PAGE)]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_every_picture_function_is_drawn(gallery: ModuleType) -> None:
    called = {call.func.id for call in calls(gallery) if isinstance(call.func, ast.Name)}
    assert {name for name in plots.__all__ if name.startswith("plot_")} <= called


def test_every_picture_that_is_saved_is_shown_once_in_that_order(gallery: ModuleType) -> None:
    saved = [
        call.args[1].value
        for call in calls(gallery)
        if isinstance(call.func, ast.Name)
        and call.func.id == "save_figure"
        and isinstance(call.args[1], ast.Constant)
    ]
    assert saved == gallery.shown_pictures(PAGE)
    assert len(set(saved)) == len(saved)


PAGE_OF_ONE = """# One

```python
from pathlib import Path
Path("a.png").write_bytes(b"{content}")
```

```{{image}} _build/gallery/{shown}
```
"""


def test_pictures_are_drawn_when_the_page_changes_and_not_before(
    gallery: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, folder = tmp_path / "gallery.md", tmp_path / "out" / "gallery"
    monkeypatch.setattr(gallery, "PAGE", page)
    page.write_text(PAGE_OF_ONE.format(content="one", shown="a.png"))
    gallery.draw_gallery(folder)
    assert (folder / "a.png").read_bytes() == b"one"
    (folder / "a.png").write_bytes(b"kept")
    (folder / "old.png").write_bytes(b"old")
    gallery.draw_gallery(folder)
    assert (folder / "a.png").read_bytes() == b"kept"
    page.write_text(PAGE_OF_ONE.format(content="two", shown="a.png"))
    gallery.draw_gallery(folder)
    assert (folder / "a.png").read_bytes() == b"two"
    assert not (folder / "old.png").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["gallery"]


def test_a_picture_that_no_code_draws_is_told(
    gallery: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "gallery.md"
    monkeypatch.setattr(gallery, "PAGE", page)
    page.write_text(PAGE_OF_ONE.format(content="one", shown="b.png"))
    with pytest.raises(SystemExit, match=r"a\.png, b\.png"):
        gallery.draw_gallery(tmp_path / "gallery")
