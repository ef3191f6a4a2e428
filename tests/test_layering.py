"""Imports point one way: a row may use rows below it, never its own row or one above."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROWS = {
    "cli": 7,
    "__main__": 7,
    "public": 6,
    "experiments": 6,
    "demo": 6,
    "tables": 6,
    "cascade": 5,
    "control": 5,
    "estimators": 5,
    "page": 5,
    "recommend": 5,
    "acquire": 4,
    "attacks": 4,
    "audit": 4,
    "calibration": 4,
    "stacked": 4,
    "metrics": 4,
    "plots": 4,
    "fit": 4,
    "models": 4,
    "data": 4,
    "envs": 4,
    "vae": 4,
    "objectives": 3,
    "predict": 3,
    "storage": 3,
    "layers": 2,
    "likelihoods": 2,
    "linear": 2,
    "gp": 2,
    "draws": 1,
    "functional": 0,
    "errors": 0,
    "harmless": 0,
    "inputs": 0,
    "processes": 0,
    "progress": 0,
    "randomness": 0,
    "scale": 0,
    "switch": 0,
    "version": 0,
}
PACKAGE = Path(__file__).parents[1] / "src" / "bayesdrop"
# What the lowest rows stand on: the error sentence serves all of row 0.
WITHIN_ROW = {
    ("inputs", "errors"),
    ("progress", "errors"),
    ("functional", "errors"),
    ("scale", "errors"),
    ("__main__", "cli"),
}
# Doors to scikit-learn: their classes derive from its own. Nothing imports them unasked.
SKLEARN_DOORS = {"linear", "estimators"}
# What a package of an extra of its own may import when it is itself imported.
OWN_EXTRAS = {"recommend": {"scipy", "pandas"}, "control": {"gymnasium"}, "cli": {"typer"}}
HEAVY = {"matplotlib", "scipy", "sklearn", "pandas", "statsmodels", "optuna", "gymnasium", "typer", "rich"}


def part(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """Every imported module, and whether it is imported at module level."""
    tree = ast.parse(path.read_text())
    top = set(ast.walk(tree)) - {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write absolute imports"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "bayesdrop" else [module]
            found += [(name, node in top) for name in names]
    return found


def upward(owner: str, imported: str) -> bool:
    """Whether part `owner` may not import part `imported`."""
    if owner == imported or (owner, imported) in WITHIN_ROW:
        return False
    return ROWS[imported] >= ROWS[owner]


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    owner = part(path)
    assert owner in ROWS, f"give {owner!r} a row in this test"
    for module, _ in imports(path):
        if module.startswith("bayesdrop."):
            imported = module.split(".")[1]
            assert imported in ROWS, f"{path.name} imports {module}: no such part"
            assert not upward(owner, imported), f"{path} (row {ROWS[owner]}) imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_optional_packages_are_imported_where_they_are_used(path: Path) -> None:
    for module, at_top in imports(path):
        root = module.split(".")[0]
        if root in {"sklearn", "scipy"} and part(path) in SKLEARN_DOORS:
            continue
        if root in OWN_EXTRAS.get(part(path), ()):
            continue
        if root in HEAVY:
            assert not at_top, f"{path} imports {module} when it is itself imported"
            assert ROWS[part(path)] >= 4, f"{path} is too low to use {module}"


def test_an_upward_import_is_seen() -> None:
    assert upward("layers", "predict")
    assert upward("metrics", "fit")
    assert not upward("predict", "layers")
