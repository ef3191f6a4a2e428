"""Imports point one way, in no circle, and at nothing private. A failure lists all places at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# From bottom to top: a package imports packages of lower rows, never of its own row or above.
ROWS = [
    "draws errors operations version",
    "blocks harmless progress randomness scale threads",
    "processes",
    "engines",
    "inputs noise",
    "functional trace",
    "gp layers likelihoods linear",
    "execute",
    "objectives predict storage",
    "acquire attacks audit calibration data envs fit metrics models plots stacked vae",
    "cascade control estimators page",
    "recommend",
    "demo tables",
    "scoring",
    "experiments public",
    "cli",
    "__main__",
]
HEIGHT = {package: height for height, row in enumerate(ROWS) for package in row.split()}

# Circles that are known, to be taken apart: a line goes when its circle is gone.
KNOWN_CYCLES: list[str] = []

# Optional or slow to import: only where they are used, inside functions, and not in the lower rows.
HEAVY = {
    "matplotlib",
    "scipy",
    "sklearn",
    "pandas",
    "statsmodels",
    "optuna",
    "gymnasium",
    "typer",
    "rich",
    "ray",
    "dask",
}
LOWEST_WITH_HEAVY = HEIGHT["metrics"]
# Doors to other libraries, which nothing imports unasked: what each may import when it is itself imported.
DOORS = {
    "linear": {"sklearn", "scipy"},
    "estimators": {"sklearn", "scipy"},
    "recommend": {"scipy", "pandas"},
    "control": {"gymnasium"},
    "cli": {"typer"},
}

SOURCE = Path(__file__).parents[1] / "src"


@dataclass(frozen=True)
class Import:
    """One imported module or name: who imports it, where, what, and whether when it is itself imported."""

    module: str
    place: str
    target: str
    name: str
    at_top: bool

    @property
    def package(self) -> str:
        return package(self.module)


def package(module: str) -> str:
    """The first name after `bayesdrop`, of a module; "" for `bayesdrop` itself."""
    return module.split(".")[1] if "." in module else ""


def read_imports(source: Path) -> tuple[set[str], list[Import]]:
    """All modules of the package in `source`, and everything that they import, inside functions too."""
    trees = {}
    for path in sorted((source / "bayesdrop").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[module] = (path.relative_to(source), ast.parse(path.read_text()))
    found = [
        Import(module, f"{path}:{node.lineno}", target, name, at_top)
        for module, (path, tree) in trees.items()
        for node, at_top in import_nodes(tree)
        for target, name in targets(node, set(trees))
    ]
    return set(trees), found


def import_nodes(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    inside = {id(inner) for function in functions for inner in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, id(node) not in inside


def targets(node: ast.Import | ast.ImportFrom, modules: set[str]) -> Iterator[tuple[str, str]]:
    """(module, name taken from it) of one statement; the name of a module is ""."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield alias.name, ""
        elif f"{node.module}.{alias.name}" in modules:
            yield f"{node.module}.{alias.name}", ""
        else:
            yield "." * node.level + (node.module or ""), alias.name


def wrong_doors(imports: list[Import]) -> list[str]:
    """Imports that point up or aside, relative ones, and private names of another package."""
    wrong = []
    for one in imports:
        if one.target.startswith("."):
            wrong.append(f"{one.place}: a relative import; write it in full")
        if one.target.split(".")[0] != "bayesdrop" or not one.package:
            continue
        owner, imported = one.package, package(one.target)
        if owner not in HEIGHT:
            wrong.append(f"{one.place}: the package {owner!r} has no row in this test")
        elif imported == owner:
            continue
        elif not imported:
            wrong.append(f"{one.place}: imports {one.name} from bayesdrop itself, which is above everything")
        elif imported not in HEIGHT:
            wrong.append(f"{one.place}: the package {imported!r} has no row in this test")
        elif HEIGHT[imported] >= HEIGHT[owner]:
            wrong.append(f"{one.place}: {owner} imports {one.target}, which is not below it")
        private = [part for part in (*one.target.split("."), one.name) if part.startswith("_")]
        if private and not private[0].endswith("__"):
            wrong.append(f"{one.place}: {private[0]} is private to {imported}")
    return wrong


def cycles(modules: set[str], imports: list[Import]) -> list[set[str]]:
    """Groups of modules that reach one another by imports; a module does not wait for its own package."""
    leads_to: dict[str, set[str]] = {module: set() for module in modules}
    for one in imports:
        if one.target in modules and not f"{one.module}.".startswith(f"{one.target}."):
            leads_to[one.module].add(one.target)
    reach = {module: reached(module, leads_to) for module in modules}
    groups = {
        frozenset({module, *(other for other in reach[module] if module in reach[other])})
        for module in modules
    }
    return sorted((set(group) for group in groups if len(group) > 1), key=sorted)


def reached(start: str, leads_to: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = list(leads_to[start])
    while ahead:
        module = ahead.pop()
        if module not in found:
            found.add(module)
            ahead += leads_to[module]
    return found


def wrong_cycles(found: list[set[str]], known: list[str]) -> list[str]:
    """Circles that are not known, and known ones that are no more. A part of a known one is known."""
    listed = [{f"bayesdrop.{module}" for module in line.split()} for line in known]
    wrong = [
        f"a circle: {' '.join(sorted(group))}" for group in found if not any(group <= one for one in listed)
    ]
    gone = [one for one in listed if not any(group <= one for group in found)]
    return wrong + [f"gone, take it from KNOWN_CYCLES: {' '.join(sorted(group))}" for group in gone]


def wrong_heavy(imports: list[Import]) -> list[str]:
    """Optional packages imported too early or too low."""
    wrong = []
    for one in imports:
        root = one.target.split(".")[0]
        if root not in HEAVY or root in DOORS.get(one.package, ()):
            continue
        if one.at_top:
            wrong.append(f"{one.place}: imports {root} when it is itself imported")
        if HEIGHT.get(one.package, -1) < LOWEST_WITH_HEAVY:
            wrong.append(f"{one.place}: {one.package or 'bayesdrop'} is too low to use {root}")
    return wrong


def listed(wrong: list[str]) -> str:
    return "\n".join(["", *wrong])


MODULES, IMPORTS = read_imports(SOURCE)


def test_imports_point_down_and_at_nothing_private() -> None:
    wrong = wrong_doors(IMPORTS)
    assert not wrong, listed(wrong)


def test_no_modules_import_one_another_in_a_circle() -> None:
    wrong = wrong_cycles(cycles(MODULES, IMPORTS), KNOWN_CYCLES)
    assert not wrong, listed(wrong)


def test_optional_packages_are_imported_where_they_are_used() -> None:
    wrong = wrong_heavy(IMPORTS)
    assert not wrong, listed(wrong)


def test_every_kind_of_wrong_import_is_seen(tmp_path: Path) -> None:
    files = {
        "errors.py": "import torch",
        "layers/one.py": "from bayesdrop.layers.two import _own\nfrom bayesdrop.predict import engine",
        "layers/__init__.py": "",
        "layers/two.py": "from bayesdrop.draws import held, _x\ndef f():\n    import bayesdrop.layers.one",
        "draws/__init__.py": "from bayesdrop.draws import held",
        "draws/held.py": "import scipy.stats\nfrom .other import x",
        "predict/engine.py": "from bayesdrop import layers, predict_all\nfrom bayesdrop.attic import box",
        "attic.py": "import bayesdrop.errors",
        "metrics/__init__.py": "from bayesdrop.fit import loop\ndef f():\n    import sklearn",
        "fit/loop.py": "import bayesdrop.draws.held",
    }
    for name, text in files.items():
        (tmp_path / "bayesdrop" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bayesdrop" / name).write_text(text)
    modules, imports = read_imports(tmp_path)
    assert wrong_doors(imports) == [
        "bayesdrop/attic.py:1: the package 'attic' has no row in this test",
        "bayesdrop/draws/held.py:2: a relative import; write it in full",
        "bayesdrop/layers/one.py:2: layers imports bayesdrop.predict.engine, which is not below it",
        "bayesdrop/layers/two.py:1: _x is private to draws",
        "bayesdrop/metrics/__init__.py:1: metrics imports bayesdrop.fit.loop, which is not below it",
        "bayesdrop/predict/engine.py:1: imports predict_all from bayesdrop itself, which is above everything",
        "bayesdrop/predict/engine.py:2: the package 'attic' has no row in this test",
    ]
    circle = {"bayesdrop.layers.one", "bayesdrop.layers.two"}
    assert cycles(modules, imports) == [circle]
    assert wrong_cycles([circle], []) == ["a circle: bayesdrop.layers.one bayesdrop.layers.two"]
    assert wrong_cycles([circle], ["layers.one layers.two layers.three"]) == []
    assert wrong_cycles([], ["a b"]) == ["gone, take it from KNOWN_CYCLES: bayesdrop.a bayesdrop.b"]
    assert wrong_heavy(imports) == [
        "bayesdrop/draws/held.py:1: imports scipy when it is itself imported",
        "bayesdrop/draws/held.py:1: draws is too low to use scipy",
    ]
