"""JSON that carries its own checksum, and JSON from strangers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

__all__ = ["BLANK", "DEEPEST", "BadJson", "from_json", "is_sealed", "parsed", "seal", "to_json"]

#: stands where a checksum will be
BLANK = "0" * 64
#: how many lists and dicts may stand in one another
DEEPEST = 200


class BadJson(ValueError):
    """A text is not JSON, or is nested too deeply."""


def seal(text: bytes) -> bytes:
    """Put the SHA-256 of a text in the place of the first BLANK in it."""
    return text.replace(BLANK.encode(), sha256(text).hexdigest().encode(), 1)


def is_sealed(text: bytes, checksum: object) -> bool:
    """Whether a text of `seal` is as it was written.

    Args:
        text: all of it.
        checksum: what stands where BLANK stood.
    """
    if not isinstance(checksum, str) or len(checksum) != len(BLANK) or not checksum.isascii():
        return False
    # The first place is the checksum's own: what else holds the same digits comes later.
    blank = text.replace(checksum.encode(), BLANK.encode(), 1)
    return sha256(blank).hexdigest() == checksum


def to_json(content: Mapping[str, Any]) -> bytes:
    """A JSON text for a file of its own, whose first entry "checksum" is the checksum of the text.

    Args:
        content: what JSON can hold, without an entry "checksum".
    """
    whole = {"checksum": BLANK, **content}
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    # Half of a pair of surrogates, which UTF-8 does not have, is written as JSON escapes it.
    return seal(text.encode(errors="backslashreplace") + b"\n")


def from_json(text: bytes) -> tuple[dict[str, Any], bool]:
    """What `to_json` was given, and whether there was a checksum, which older files lack.

    Raises BadJson where the text is not as it was written.
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
    """What a JSON text holds; BadJson where it is none, repeats a name, or is nested deeper than DEEPEST."""
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
