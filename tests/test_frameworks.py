"""Every program of the page on frameworks runs as pasted, where its library is installed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "frameworks.md"
SECTION = re.compile(r"^## (.*?)$(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
NEEDS = re.compile(r"<!-- needs: (.*?) -->")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SECTIONS = dict(SECTION.findall(PAGE.read_text()))


@pytest.mark.parametrize("title", SECTIONS)
def test_the_program_of_a_framework_runs(title: str, tmp_path: Path) -> None:
    text = SECTIONS[title]
    for name in " ".join(NEEDS.findall(text)).split():
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed; the extra 'frameworks' has what installs beside torch")
    (program,) = BLOCK.findall(text)
    if set(" ".join(NEEDS.findall(text)).split()) <= {"transformers"}:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(program, title, "exec"), {"__name__": "__main__"})
        return
    # In a process of its own: these libraries set global states.
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
