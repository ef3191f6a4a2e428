"""The generators of hostile things, by name."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def adversary() -> Callable[[str], ModuleType]:
    """From a name, as "tables", to the module beside this file."""

    def load(name: str) -> ModuleType:
        full = f"adversary_{name}"
        if full not in sys.modules:
            spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
            assert spec is not None
            assert spec.loader is not None
            sys.modules[full] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[full])
        return sys.modules[full]

    return load
