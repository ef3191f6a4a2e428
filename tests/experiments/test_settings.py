"""Settings from text are read as their fields' types say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from bayesdrop.experiments.settings import with_settings


@dataclass(frozen=True)
class Config:
    names: tuple[str, ...] = ("a",)
    sizes: tuple[int, ...] = (1,)
    pair: tuple[float, float] = (0.0, 1.0)
    epochs: int = 3
    rate: float = 0.1
    limit: int | None = None
    grid: int | str = "all"
    strict: bool = False
    kind: Literal["raw", "inverted"] = "raw"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("names", "boston, yacht", ("boston", "yacht")),
        ("names", "boston", ("boston",)),
        ("sizes", "(1,2)", (1, 2)),
        ("pair", "0.5,2", (0.5, 2.0)),
        ("epochs", "40", 40),
        ("rate", "1e-3", 1e-3),
        ("limit", "none", None),
        ("limit", "7", 7),
        ("grid", "7", 7),
        ("grid", "half", "half"),
        ("strict", "true", True),
        ("strict", "no", False),
        ("kind", "inverted", "inverted"),
    ],
)
def test_text_becomes_the_fields_type(name: str, text: str, value: Any) -> None:
    found = getattr(with_settings(Config(), {name: text}), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("epochs", "1.5", "`epochs` must be a whole number; got '1.5'"),
        ("rate", "fast", "`rate` must be a number"),
        ("pair", "1,2,3", "2 values"),
        ("strict", "perhaps", "true or false"),
        ("kind", "other", "one of raw, inverted"),
        ("limit", "half", "a whole number"),
        ("epoch", "3", "unknown setting 'epoch'. Did you mean 'epochs'?"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        with_settings(Config(), {name: text})


def test_values_that_are_not_text_are_taken_as_they_are() -> None:
    assert with_settings(Config(), {"epochs": 5, "names": ("x",)}) == Config(epochs=5, names=("x",))
