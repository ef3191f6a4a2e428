"""Numbers as people write them: 67,300 rather than 6.733e+04, "1 row" rather than "1 rows"."""

from __future__ import annotations

import math

__all__ = ["counted", "percent", "plainly", "written"]

#: numbers between these sizes are written out; others have a power of ten, and whole ones are exact so far
_LARGEST, _SMALLEST, _EXACT = 1e12, 1e-5, 1e15
#: from here on commas stand between the thousands of a table's numbers: years and small counts have none
_COMMAS = 10_000
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def written(value: float, spread: float | None = None, *, digits: int = 3) -> str:
    """A number with as many digits as mean something, and commas between thousands.

    With a spread, the last digit written is the third one of the spread: of 67,312.6 with a standard
    deviation of 2,230 nobody knows more than 67,310. Without, the number has so many digits.

    Args:
        value: the number; NaN is written "-".
        spread: how far it may be off, or how far its neighbours lie from it; above 0.
        digits: of the spread, or without one, of the number.

    >>> written(67312.6), written(67312.6, 2230), written(0.000123456), written(3.0), written(12.3456, 0.5)
    ('67,300', '67,310', '0.000123', '3', '12.346')
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if spread is not None and not 0 < spread < math.inf:
        spread = None
    size = abs(value) if spread is None else spread
    if size == 0:
        return "0"
    if max(abs(value), size) >= _LARGEST or size < _SMALLEST:
        more = math.floor(math.log10(abs(value))) - math.floor(math.log10(size)) if value else 0
        return _with_power(value, min(max(digits + more, 1), 15))
    # By the rounded size: 9.996 with three digits is 10.0, which has one decimal.
    decimals = digits - 1 - math.floor(math.log10(float(f"{size:.{digits - 1}e}")))
    text = f"{round(value, decimals) + 0.0:,.{max(decimals, 0)}f}"
    # Zeros at the end stay if they were rounded: 63.02 is 63.0, but 3 and 0.5 are exact.
    if spread is None and "." in text and value == round(value, decimals):
        text = text.rstrip("0").rstrip(".")
    return text


def plainly(value: float, digits: int = 6) -> str:
    """A number of a table: all digits before the point, and as many after it as make up `digits`.

    Args:
        value: the number; NaN is written "-".
        digits: of numbers that are not whole.

    >>> plainly(2024), plainly(1250000), plainly(0.1 + 0.2), plainly(1234567.891), plainly(2e20)
    ('2024', '1,250,000', '0.3', '1,234,568', '2 × 10²⁰')
    """
    size = abs(value)
    if not math.isfinite(value) or size == 0:
        return written(value)
    if size >= _EXACT or size < _SMALLEST:
        return _with_power(value, digits)
    decimals = max(digits - 1 - math.floor(math.log10(size)), 0)
    text = f"{value:,.{decimals}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    bare = text.replace(",", "")
    return bare if abs(float(bare)) < _COMMAS else text


def _with_power(value: float, digits: int) -> str:
    """A very large or very small number: "1.5 × 10⁻⁹"."""
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa} \u00d7 10{str(int(power)).translate(_RAISED)}"


def percent(share: float, decimals: int = 1) -> str:
    """A share of 1 as "95.1 %"; NaN as "-"."""
    return "-" if math.isnan(share) else f"{100 * share:.{decimals}f} %"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count and what is counted.

    Args:
        count: how many.
        one: what one of them is called.
        many: what several are called; `one` with an s if None.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "category", "categories")
    ('1 row', '1,200 rows', '2 categories')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
