"""Names of requests and items: unique without asking anybody, and growing with time."""

from __future__ import annotations

from secrets import token_hex

__all__ = ["is_id", "new_id"]

_DIGITS = frozenset("0123456789abcdef")


def new_id(now: float) -> str:
    """32 hexadecimal digits: milliseconds since 1970, then 80 random bits.

    Args:
        now: seconds since 1970.
    """
    return f"{int(now * 1000) & (2**48 - 1):012x}{token_hex(10)}"


def is_id(text: str) -> bool:
    """Whether a text can be such a name."""
    return len(text) == 32 and _DIGITS.issuperset(text)
