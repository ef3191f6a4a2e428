"""Numbers and counts as people write them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bayesdrop.tables.written import counted, percent, plainly, written


def as_number(text: str) -> float:
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    number, _, power = text.replace(",", "").partition(" \u00d7 10")
    return float(f"{number}e{power.translate(digits) or 0}")


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [
        (67_330.0, None, "67,300"),
        (67_330.0, 22_000.0, "67,300"),
        (67_330.0, 25.0, "67,330.0"),
        (0.0, None, "0"),
        (3.0, None, "3"),
        (0.5, None, "0.5"),
        (63.02, None, "63.0"),
        (9.996, None, "10.0"),
        (-0.0001, 5.0, "0.00"),
        (1.5e-9, None, "1.5 \u00d7 10⁻⁹"),
        (2.5e13, None, "2.5 \u00d7 10¹³"),
        (math.nan, None, "-"),
        (math.inf, None, "infinite"),
        (5.0, 0.0, "5"),
        (5.0, math.nan, "5"),
    ],
)
def test_numbers_have_the_digits_that_say_something(value: float, spread: float | None, text: str) -> None:
    assert written(value, spread) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2024.0, "2024"),
        (9999.5, "9999.5"),
        (9999.999999, "10,000"),
        (1_250_000.0, "1,250,000"),
        (-1_234_567.891, "-1,234,568"),
        (0.1 + 0.2, "0.3"),
        (123_456_789_012_345.0, "123,456,789,012,345"),
        (-3e20, "-3 \u00d7 10²⁰"),
        (1.5e-9, "1.5 \u00d7 10⁻⁹"),
        (-0.0, "0"),
        (math.nan, "-"),
        (-math.inf, "-infinite"),
    ],
)
def test_numbers_of_a_table_keep_their_digits(value: float, text: str) -> None:
    assert plainly(value) == text


def test_a_number_of_a_table_is_written_to_six_digits() -> None:
    source = np.random.default_rng(0)
    for value in source.normal(size=300) * 10.0 ** source.uniform(-4, 14, 300):
        text = plainly(value)
        assert as_number(text) == pytest.approx(value, rel=5.001e-6)
        assert ("," in text) == (10_000 <= abs(as_number(text)) < 1e15)


def test_what_is_written_is_the_number_to_a_half_of_its_last_digit() -> None:
    source = np.random.default_rng(0)
    for value in source.normal(size=300) * 10.0 ** source.uniform(-4, 11, 300):
        assert as_number(written(value, digits=4)) == pytest.approx(value, rel=5.001e-4)
        spread = abs(value) * 10.0 ** source.uniform(-3, 1)
        off = abs(as_number(written(value, spread)) - value)
        assert off <= 0.00501 * spread or spread < 1e-12 * abs(value)


def test_one_is_not_many() -> None:
    assert [counted(count, "row") for count in (0, 1, 2, 12_345)] == [
        "0 rows",
        "1 row",
        "2 rows",
        "12,345 rows",
    ]
    assert counted(2, "category", "categories") == "2 categories"
    assert (percent(0.9512), percent(1.0, 0), percent(math.nan)) == ("95.1 %", "100 %", "-")
