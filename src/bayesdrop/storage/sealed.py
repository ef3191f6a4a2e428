"""JSON with its own checksum, and safe parsing of JSON that is not trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

__all__ = ["BLANK", "DEEPEST", "BadJson", "from_json", "is_sealed", "parsed", "seal", "to_json"]

#: placeholder of a checksum
BLANK = "0" * 64
#: how deep lists and dicts may be nested
DEEPEST = 200


class BadJson(ValueError):
    """A text is not JSON, or is nested too deeply."""


def seal(text: bytes) -> bytes:
    """Put the SHA-256 of a text in the place of the first BLANK in it."""
    return text.replace(BLANK.encode(), sha256(text).hexdigest().encode(), 1)


def is_sealed(text: bytes, checksum: object) -> bool:
    """Whether a result of `seal` has not been changed.

    Args:
        text: the whole text.
        checksum: the checksum in it, in the place of BLANK.
    """
    if not isinstance(checksum, str) or len(checksum) != len(BLANK) or not checksum.isascii():
        return False
    # The first occurrence is the checksum; other occurrences of the same digits come later.
    blank = text.replace(checksum.encode(), BLANK.encode(), 1)
    return sha256(blank).hexdigest() == checksum


def to_json(content: Mapping[str, Any]) -> bytes:
    """A JSON text whose first entry "checksum" is the checksum of the text.

    Args:
        content: what JSON can hold, without an entry "checksum".
    """
    whole = {"checksum": BLANK, **content}
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    # Lone surrogates, which UTF-8 cannot encode, are written as JSON escapes.
    return seal(text.encode(errors="backslashreplace") + b"\n")


def from_json(text: bytes) -> tuple[dict[str, Any], bool]:
    """The content of a text of `to_json`, and whether it has a checksum, which older files lack.

    Raises BadJson if the text was changed.
    """
    content = parsed(text)
    if not isinstance(content, dict):
        raise BadJson("it is not what it should be")
    if "checksum" not in content:
        return content, False
    if not is_sealed(text, content.pop("checksum")):
        raise BadJson("it is not as it was written")
    return content, True


def parsed(text: bytes | str) -> Any:
    """The value of a JSON text; BadJson if it is not JSON, repeats a name, or is nested too deeply."""
    try:
        value = json.loads(text, object_pairs_hook=_dict)
    except (ValueError, RecursionError) as error:
        raise BadJson("it is not JSON") from error
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for part in level for inner in _inside(part)]
        if not level:
            return value
    raise BadJson(f"it is nested more than {DEEPEST} deep")


def _dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise BadJson("a name occurs twice")
    return made


def _inside(value: Any) -> list[Any]:
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [part for part in parts if isinstance(part, dict | list)]
