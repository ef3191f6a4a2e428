"""Tensors and a JSON description in one safetensors file, checked when it is read.

The header holds the SHA-256 of the tensors' bytes and of itself: a file in which a single bit has changed is
not read. Files of format version 1 have no checksums and are read without that check.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.storage.sealed import BLANK, BadJson, is_sealed, parsed, seal
from bayesdrop.storage.whole import whole_file
from bayesdrop.version import __version__

__all__ = ["FORMAT_VERSION", "TensorFile", "open_tensors", "read_tensors", "write_tensors"]

#: increased when older code can no longer read new files
FORMAT_VERSION = 2
#: the kinds of file that an error can name
_KINDS = ("bayesdrop-model", "bayesdrop-checkpoint", "bayesdrop-estimator", "bayesdrop-held-out")
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
#: the longest header that safetensors allows, and the most axes of a tensor in torch
_LONGEST_HEADER, _MOST_AXES = 100_000_000, 64
#: bytes that are hashed while they are still in the processor's cache
_CHUNK = 1 << 20


def write_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    *,
    kind: str,
    header: Mapping[str, Any],
    owner: str = "write_tensors",
) -> None:
    """Write tensors and a description, so that `path` holds either the old file or the whole new one.

    Args:
        path: the file; its folder must exist.
        tensors: from names to tensors on any device, contiguous or not; shared memory is written twice.
        kind: what the file is, as "bayesdrop-model".
        header: what JSON can hold.
        owner: the function that errors name.
    """
    metadata = {
        "checksum": BLANK,
        "data_checksum": BLANK,
        "format": kind,
        "format_version": str(FORMAT_VERSION),
        "bayesdrop_version": __version__,
        "description": json.dumps(dict(header)),
    }
    # The widest first: then every tensor begins at a multiple of its element's size.
    ready = sorted(_ready(tensors, owner).items(), key=lambda item: (-item[1].element_size(), item[0]))
    layout: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, tensor in ready:
        start, end = end, end + tensor.nbytes
        layout[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    with whole_file(path, owner=owner) as draft, draft.open("wb") as file:
        file.write(_head(layout))
        digest = sha256()
        for _, tensor in ready:
            # A tensor of one element may have a stride of 0 and count as contiguous.
            flat = tensor.as_strided((tensor.numel(),), (1,))
            data = flat.view(torch.uint8).numpy().data
            for chunk in _chunks(data):
                digest.update(chunk)
                file.write(chunk)
        metadata["data_checksum"] = digest.hexdigest()
        file.seek(0)
        file.write(_head(layout))


@dataclass(frozen=True, eq=False)
class TensorFile:
    """An open file whose header is valid; its tensors have not been read yet.

    Attributes:
        header: the description.
        outline: the tensors' names, shapes and dtypes, on the device "meta".
    """

    header: dict[str, Any]
    outline: dict[str, Tensor]
    _path: Path
    _owner: str
    _file: BinaryIO
    _checksum: str | None

    def read(self) -> dict[str, Tensor]:
        """The tensors, on the CPU; raises a ValueError if they were changed since they were written."""
        digest = sha256()
        tensors = {}
        for name, outline in self.outline.items():
            memory = torch.empty(outline.nbytes, dtype=torch.uint8)
            for chunk in _chunks(memory.numpy().data):
                if self._file.readinto(chunk) != len(chunk):  # type: ignore[attr-defined]
                    raise _damaged(self._owner, self._path, "it ends too early")
                digest.update(chunk)
            if outline.dtype == torch.bool and bool((memory > 1).any()):
                raise _damaged(self._owner, self._path, f"{name} holds bytes that are not true or false")
            tensors[name] = memory.view(outline.dtype).reshape(outline.shape)
        if self._checksum is not None and digest.hexdigest() != self._checksum:
            raise _damaged(self._owner, self._path, "its tensors are not as they were written")
        return tensors


@contextmanager
def open_tensors(
    path: str | os.PathLike[str], *, kind: str | None, owner: str = "open_tensors"
) -> Iterator[TensorFile]:
    """Open a file of `write_tensors` and check its header.

    Args:
        path: the file.
        kind: what the file must be; None for the tensors of any safetensors file.
        owner: the function that errors name.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{owner}: there is no file {path}.")
    if not stat.S_ISREG(path.stat().st_mode):
        what = f"the folder {path}" if path.is_dir() else f"{path}, which is something else"
        raise ValueError(must(owner, "path", "a file", what))
    with path.open("rb") as file:
        text = _header_text(file, path, owner)
        try:
            layout = parsed(text)
            size = os.fstat(file.fileno()).st_size
            metadata, outline = _layout(layout, size - 8 - len(text))
        except ValueError as error:
            raise _not_safetensors(owner, path, str(error)) from error
        header = {} if kind is None else _description(path, metadata, kind, owner, text)
        checksum = metadata.get("data_checksum") if metadata.get("format") in _KINDS else None
        yield TensorFile(header, outline, path, owner, file, checksum)


def read_tensors(
    path: str | os.PathLike[str], *, kind: str, owner: str = "read_tensors"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and the description in a file of `write_tensors`.

    Args:
        path: the file.
        kind: what the file must be.
        owner: the function that errors name.
    """
    with open_tensors(path, kind=kind, owner=owner) as file:
        return file.read(), file.header


# writing


def _head(layout: Mapping[str, Any]) -> bytes:
    """Length and text of the header; the length does not depend on the values of the checksums."""
    text = json.dumps(layout, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + seal(text)


def _ready(tensors: Mapping[str, Tensor], owner: str) -> dict[str, Tensor]:
    """The tensors on the CPU and contiguous; raise for types that a file cannot hold."""
    ready: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
            raise ValueError(must(owner, name, "a dense tensor that holds values", tensor.layout))
        if tensor.dtype not in _NAMES:
            raise ValueError(must(owner, name, "of a dtype that safetensors knows", tensor.dtype))
        ready[name] = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return ready


def _chunks(data: memoryview) -> Iterator[memoryview]:
    return (data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))


# reading


def _header_text(file: BinaryIO, path: Path, owner: str) -> bytes:
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= min(size - 8, _LONGEST_HEADER):
        raise _not_safetensors(owner, path, "its header is not there")
    text = file.read(length)
    if len(text) != length:
        raise _not_safetensors(owner, path, "its header is not whole")
    return text


def _layout(layout: Any, size: int) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata, and the tensors' outlines in the order of their bytes, which must fill the file."""
    if not isinstance(layout, dict):
        raise BadJson("its header is no object")
    metadata = layout.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise BadJson("its metadata are not texts")
    places: list[tuple[int, int, str, Tensor]] = []
    for name, entry in layout.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise BadJson(f"{_brief(name)} has no dtype, shape and place")
        shape, place, dtype = entry["shape"], entry["data_offsets"], entry["dtype"]
        if not (_counts(shape) and _counts(place)) or len(place) != 2 or len(shape) > _MOST_AXES:
            raise BadJson(f"the shape or the place of {_brief(name)} makes no sense")
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise BadJson(f"{_brief(name)} has a dtype that is not known")
        try:
            outline = torch.empty(shape, dtype=_DTYPES[dtype], device="meta")
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:
            raise BadJson(f"the shape of {_brief(name)} makes no sense") from error
        if place[1] - place[0] != outline.nbytes:
            raise BadJson(f"{_brief(name)} has another size than its shape")
        places.append((place[0], place[1], name, outline))
    places.sort(key=lambda item: item[:2])
    end = 0
    for start, stop, name, _ in places:
        if start != end:
            raise BadJson(f"{_brief(name)} does not begin where the tensor before it ends")
        end = stop
    if end != size:
        raise BadJson(f"it holds {size} bytes of tensors instead of {end}")
    return metadata, {name: outline for _, _, name, outline in places}


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _description(
    path: Path, metadata: Mapping[str, str], kind: str, owner: str, text: bytes
) -> dict[str, Any]:
    found = metadata.get("format")
    if found != kind:
        what = f"a {found}" if found in _KINDS else "not from bayesdrop"
        raise ValueError(f"{owner}: {path} must hold a {kind}; it is {what}.")
    try:
        version = int(metadata["format_version"])
    except (KeyError, ValueError) as error:
        raise ValueError(f"{owner}: the description in {path} is damaged.") from error
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{owner}: {path} has format version {version}, "
            f"written by bayesdrop {metadata.get('bayesdrop_version', 'unknown')}; "
            f"bayesdrop {__version__} reads up to version {FORMAT_VERSION}. Install a newer bayesdrop."
        )
    checksums = {"checksum", "data_checksum"} & metadata.keys()
    if version < 2 and (version < 1 or checksums):
        raise _damaged(owner, path, "its format version is not that of its header")
    if version >= 2 and not (len(checksums) == 2 and is_sealed(text, metadata["checksum"])):
        raise _damaged(owner, path, "its header is not as it was written")
    try:
        header = parsed(metadata["description"])
    except (KeyError, BadJson) as error:
        raise ValueError(f"{owner}: the description in {path} is damaged ({error}).") from error
    if not isinstance(header, dict):
        raise ValueError(f"{owner}: the description in {path} is damaged.")
    return header


def _brief(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:77]}...")


def _damaged(owner: str, path: Path, reason: str) -> ValueError:
    return ValueError(f"{owner}: {path} is damaged: {reason}.")


def _not_safetensors(owner: str, path: Path, reason: str) -> ValueError:
    return ValueError(f"{owner}: {path} is damaged or not a safetensors file ({reason}).")
