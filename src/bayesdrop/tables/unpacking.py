"""Bytes of a file, unpacked as they are read, and never more of them than is reasonable for its size."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from bayesdrop.errors import require

__all__ = ["PACKED", "Bomb", "Refused", "check_zip", "kind_of", "open_bytes"]

#: what a file may unpack to: so many bytes in any case, or so many times its own size
LARGE, LARGEST_RATIO = 100_000_000, 200


class Refused(ValueError):
    """A file that cannot be read as a table, for a reason that the message gives."""


class Bomb(Refused):
    """A small file that unpacks to very much."""


def _zstd(file: BinaryIO) -> Any:
    arrow = require("pyarrow", extra="tables", owner="open_table")
    return arrow.CompressedInputStream(arrow.PythonFile(file, mode="r"), "zstd")


#: endings of packed files, what they are called, and how they are opened
PACKED: dict[str, tuple[str, Callable[[BinaryIO], Any]]] = {
    ".gz": ("gzip", lambda file: gzip.GzipFile(fileobj=file)),
    ".bz2": ("bzip2", bz2.BZ2File),
    ".xz": ("xz", lzma.LZMAFile),
    ".zst": ("zstd", _zstd),
}
#: the first bytes of files that are not plain text, and the ending of such files
_BEGINNINGS = (
    (b"\x1f\x8b", ".csv.gz"),
    (b"\xfd7zXZ\0", ".csv.xz"),
    (b"\x28\xb5\x2f\xfd", ".csv.zst"),
    (b"ARROW1\0", ".feather"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", ".xls"),
)


def kind_of(path: Path) -> str | None:
    """The ending that suits what a file holds, by its first and last bytes; None if it may be text.

    Args:
        path: the file, whatever it is called.
    """
    with path.open("rb") as file:
        start = file.read(100)
        file.seek(max(0, path.stat().st_size - 4))
        end = file.read(4)
    if start.startswith(b"PK\x03\x04"):
        return ".ods" if b"opendocument.spreadsheet" in start else ".xlsx"
    # More than the first bytes, which a name of a column might begin with.
    if start.startswith(b"BZh") and start[4:10] == b"1AY&SY":
        return ".csv.bz2"
    if start[:4] == end and end in (b"PAR1", b"FEA1"):
        return ".parquet" if end == b"PAR1" else ".feather"
    return next((ending for beginning, ending in _BEGINNINGS if start.startswith(beginning)), None)


class _Unpacked(io.RawIOBase):
    """A stream of unpacked bytes that counts them; errors of unpacking become a ValueError that names it."""

    def __init__(self, path: Path, inner: Any, kind: str, size: int) -> None:
        super().__init__()
        self._path, self._inner, self._kind = path, inner, kind
        self._most, self._count = max(LARGE, LARGEST_RATIO * size), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._inner.read(len(buffer))
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            said = " ".join(str(error).split())
            raise ValueError(f"{self._path} is damaged or not a {self._kind} file ({said}).") from error
        self._count += len(data)
        if self._count > self._most:
            raise Bomb(_too_large(self._path, self._most))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


def _too_large(path: Path, most: int) -> str:
    said = f"{path} must unpack to at most {most / 1e6:,.0f} MB, {LARGEST_RATIO} times its size; it has more."
    return f"{said} If it is what you meant, unpack it first."


def open_bytes(path: Path, ending: str) -> BinaryIO:
    """A file of plain bytes, or the unpacked bytes of a packed one.

    Args:
        path: the file.
        ending: of its name: ".gz", ".bz2", ".xz", ".zst"; any other is not packed.
    """
    file = path.open("rb")
    if ending not in PACKED:
        return file
    kind, opened = PACKED[ending]
    try:
        raw = _Unpacked(path, opened(file), kind, os.fstat(file.fileno()).st_size)
    except BaseException:
        file.close()
        raise
    return _Closing(raw, file)


class _Closing(io.BufferedReader):
    """A buffer that also closes the file below, which unpackers leave open."""

    def __init__(self, raw: io.RawIOBase, file: BinaryIO) -> None:
        super().__init__(raw, 1 << 16)
        self._file = file

    def close(self) -> None:
        super().close()
        self._file.close()


def check_zip(path: Path, what: str) -> None:
    """Raise unless a file is a zip archive whose files unpack to a reasonable size.

    Args:
        path: the file.
        what: what it should be, for errors: "an .xlsx file".
    """
    try:
        # Declared sizes can be trusted: reading stops there.
        with zipfile.ZipFile(path) as archive:
            total = sum(file.file_size for file in archive.infolist())
    # zipfile raises RuntimeError for an archive of a later version of the format.
    except (zipfile.BadZipFile, RuntimeError, ValueError) as error:
        hint = "An old .xls file, or one with a password, must be saved as .xlsx first."
        raise Refused(f"{path} is damaged or not {what} ({error}). {hint}") from error
    most = max(LARGE, LARGEST_RATIO * path.stat().st_size)
    if total > most:
        raise Bomb(_too_large(path, most))
