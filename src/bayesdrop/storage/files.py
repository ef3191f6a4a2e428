"""Tensors and a JSON description in one safetensors file that is written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bayesdrop.errors import must
from bayesdrop.version import __version__

__all__ = ["FORMAT_VERSION", "read_tensors", "write_tensors"]

#: raised when older code could no longer read what is written
FORMAT_VERSION = 1


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
        tensors: by name, on any device, contiguous or not; tensors that share memory are written apart.
        kind: what the file is, as "bayesdrop-model".
        header: what JSON can hold.
        owner: the function that errors name.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(must(owner, "path", "a file", f"the folder {path}"))
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{owner}: there is no folder {path.parent} to write {path.name} in.")
    metadata = {
        "format": kind,
        "format_version": str(FORMAT_VERSION),
        "bayesdrop_version": __version__,
        "description": json.dumps(dict(header)),
    }
    ready = _ready(tensors, owner)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        draft.touch(exist_ok=False)
        mode = draft.stat().st_mode
        save_file(ready, draft, metadata=metadata)
        # safetensors makes its files readable by their owner alone; the user's umask decides here.
        draft.chmod(mode)
        _flush(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _flush(path.parent)


def read_tensors(
    path: str | os.PathLike[str], *, kind: str, owner: str = "read_tensors"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and the description in a file of `write_tensors`.

    Args:
        path: the file.
        kind: what the file must be.
        owner: the function that errors name.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(must(owner, "path", "a file", f"the folder {path}"))
    if not path.exists():
        raise FileNotFoundError(f"{owner}: there is no file {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            header = _header(path, file.metadata() or {}, kind, owner)
            # A tensor of an open file is a view of the file; a copy lives on when the file is replaced.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{owner}: {path} is damaged or not a safetensors file ({error}).") from error
    return tensors, header


def _header(path: Path, metadata: Mapping[str, str], kind: str, owner: str) -> dict[str, Any]:
    found = metadata.get("format")
    if found != kind:
        what = f"a {found}" if found in ("bayesdrop-model", "bayesdrop-checkpoint") else "not from bayesdrop"
        raise ValueError(f"{owner}: {path} must hold a {kind}; it is {what}.")
    written_by = metadata.get("bayesdrop_version", "unknown")
    try:
        version = int(metadata["format_version"])
        header = json.loads(metadata["description"])
    except (KeyError, ValueError, RecursionError) as error:
        raise ValueError(f"{owner}: the description in {path} is damaged.") from error
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{owner}: {path} has format version {version}, written by bayesdrop {written_by}; "
            f"bayesdrop {__version__} reads up to version {FORMAT_VERSION}. Install a newer bayesdrop."
        )
    if not isinstance(header, dict):
        raise ValueError(f"{owner}: the description in {path} is damaged.")
    return header


def _ready(tensors: Mapping[str, Tensor], owner: str) -> dict[str, Tensor]:
    """On the CPU, contiguous, and no two in the same memory, which safetensors refuses."""
    ready: dict[str, Tensor] = {}
    memories: set[int] = set()
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
            raise ValueError(must(owner, name, "a dense tensor that holds values", tensor.layout))
        value = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        storage = value.untyped_storage()
        if storage.data_ptr() in memories or storage.nbytes() != value.nbytes:
            value = value.clone()
        memories.add(value.untyped_storage().data_ptr())
        ready[name] = value
    return ready


def _flush(path: Path) -> None:
    """Make the system write the file, or the folder's entry for it, to the disk."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
