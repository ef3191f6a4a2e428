"""Files and folders that appear whole under their name, or not at all; the one place that writes so.

What is written comes into being in a workshop beside its target: a hidden folder `.NAME.TOKEN.tmp` with

    lock      held by the process that writes, for as long as it lives
    new/NAME  the draft
    old/NAME  what stood in the target's place, only where a system cannot exchange two folders in one step

One rename then puts the draft in its place. A process that is killed leaves its workshop behind; nobody holds
its lock any more, so that the next write to the same target clears it away.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from bayesdrop.errors import must

if sys.platform != "win32":
    import fcntl

__all__ = ["check_writable", "recover_folder", "whole_file", "whole_folder", "write_file"]

_Path = str | os.PathLike[str]
#: the longest part of a target's name that its workshop's name repeats, in bytes
_LONGEST = 200


@contextmanager
def whole_file(path: _Path, *, owner: str) -> Iterator[Path]:
    """Gives the path of a draft to write; at the end of the block it becomes the file, in one step.

    A reader sees the old file or the whole new one. After an exception the old file is as it was and nothing
    else is left. A path that is a symbolic link stays one: the file that it points to is replaced.

    Args:
        path: the file; its folder must exist.
        owner: the function that errors name.
    """
    target = _target(path, owner, folder=False)
    with _told(target, owner), _workshop(target) as shop:
        draft = shop / "new" / target.name
        yield draft
        _flush(draft)
        draft.replace(target)
        _flush(target.parent)


def write_file(path: _Path, content: bytes | str, *, owner: str) -> None:
    """Write a file as `whole_file` does; text as UTF-8.

    Args:
        path: the file; its folder must exist.
        content: all of it.
        owner: the function that errors name.
    """
    with whole_file(path, owner=owner) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_folder(path: _Path, *, owner: str) -> Iterator[Path]:
    """Gives an empty folder to fill; at the end of the block it takes the place of `path`.

    A folder that is there is replaced in one step where the system can exchange two names (Linux). Elsewhere
    it is set aside first, and whoever comes between finds it by `recover_folder`.

    Args:
        path: the folder, there or not; the folder that it is in must exist.
        owner: the function that errors name.
    """
    target = _target(path, owner, folder=True)
    recover_folder(target)
    with _told(target, owner), _workshop(target) as shop:
        draft = shop / "new" / target.name
        draft.mkdir()
        yield draft
        for folder, _, names in os.walk(draft):
            for name in names:
                _flush(Path(folder) / name)
            _flush(Path(folder))
        _put(draft, target, shop)
        _flush(target.parent)


def check_writable(path: _Path, *, owner: str, size: int = 0) -> None:
    """Raise where a later write to `path` cannot succeed; for what will be written after long work.

    It is tried: a small draft is written beside the target and taken away again.

    Args:
        path: a file or a folder, there or not.
        owner: the function that errors name.
        size: bytes that will be written at the least.
    """
    target = _target(path, owner, folder=Path(path).is_dir())
    with _told(target, owner), _workshop(target) as shop:
        (shop / "new" / target.name).write_bytes(bytes(4096))
        if shutil.disk_usage(target.parent).free < size:
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for {size / 1e6:,.0f} MB")


def recover_folder(path: _Path) -> None:
    """Put a folder back that a killed process had set aside and not yet replaced.

    Args:
        path: the folder, as it is about to be read.
    """
    target = Path(os.path.realpath(path))
    if target.exists() or not target.parent.is_dir():
        return
    for shop in _workshops(target):
        old = shop / "old" / target.name
        if not old.is_dir():
            continue
        try:
            # A process that lives is between its two renames: the lock is free in a moment.
            lock = _lock(shop / "lock", wait=True)
        except OSError:
            # There are no locks here. To put it back is right also if its process lives: that one's own
            # rename then fails, and says so.
            with suppress(OSError):
                old.rename(target)
            continue
        try:
            _clear(shop, target)
        finally:
            _release(lock)


# the target


def _target(path: _Path, owner: str, *, folder: bool) -> Path:
    """Where a write to `path` ends: links are followed, and it must be a thing of the right kind."""
    target = Path(os.path.realpath(path))
    want = "a folder" if folder else "a file"
    if target.is_symlink():
        raise ValueError(must(owner, "path", want, f"the link {path}, which leads nowhere"))
    try:
        mode = target.stat().st_mode
    except OSError:  # not there, or it cannot be seen: the write will tell
        mode = None
    if mode is not None and stat.S_ISDIR(mode) and not folder:
        raise ValueError(must(owner, "path", want, f"the folder {path}"))
    if mode is not None and not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
        raise ValueError(must(owner, "path", want, f"{path}, which is something else"))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{owner}: there is no folder {target.parent} to write {target.name} in.")
    return target


@contextmanager
def _told(target: Path, owner: str) -> Iterator[None]:
    """Failures of the system, as a full disk, in a sentence that names file and folder."""
    try:
        yield
    except OSError as error:
        about = error.filename is None or str(target.parent) in str(error.filename)
        if error.errno is None or not about:  # a sentence already, or of another file
            raise
        reason = error.strerror or os.strerror(error.errno)
        said = type(error)(
            f"{owner}: {target.name} cannot be written in the folder {target.parent}: {reason}."
        )
        said.errno = error.errno
        raise said from error


def _flush(path: Path) -> None:
    """Make the system write the file, or the folder's entries, to the disk."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# workshops


@contextmanager
def _workshop(target: Path) -> Iterator[Path]:
    """A workshop of this process, gone at the end; those of dead processes go first."""
    for shop in _workshops(target):
        with suppress(OSError):
            _sweep(shop, target)
    shop, lock = _new_workshop(target)
    try:
        (shop / "new").mkdir()
        yield shop
    finally:
        _clear(shop, target)
        _release(lock)


def _workshops(target: Path) -> list[Path]:
    """The workshops that there are for a target."""
    pattern = re.compile(re.escape(_start(target)) + r"[0-9a-f]{8}\.tmp")
    with os.scandir(target.parent) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if pattern.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]


def _start(target: Path) -> str:
    name = os.fsencode(target.name)
    return f".{target.name}." if len(name) <= _LONGEST else f".{sha256(name).hexdigest()[:32]}."


def _new_workshop(target: Path) -> tuple[Path, int | None]:
    """A new workshop and its lock."""
    while True:
        shop = target.with_name(f"{_start(target)}{token_hex(4)}.tmp")
        try:
            shop.mkdir()
        except FileExistsError:
            continue
        try:
            return shop, _lock(shop / "lock", make=True)
        except (FileNotFoundError, BlockingIOError):
            # Before it had its lock it looked like a dead process's, and another one sweeps it.
            continue
        except BaseException:
            _clear(shop, target)
            raise


def _lock(path: Path, *, make: bool = False, wait: bool = False) -> int | None:
    """Take a lock that the system lets go of when the process ends, however it ends.

    Returns: the lock, for `_release`; None for a new one where there are no locks.
    """
    if sys.platform == "win32":  # nobody can tell who lives, so that nothing is ever swept
        if make:
            return None
        raise BlockingIOError(errno.EAGAIN, "nobody can tell whether its process lives", str(path))
    handle = os.open(path, os.O_RDWR | (os.O_CREAT if make else 0))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if os.fstat(handle).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    except OSError as error:
        os.close(handle)
        if not make or isinstance(error, FileNotFoundError | BlockingIOError):
            raise
        # A file system without locks: without the file, nobody takes the workshop for a dead process's.
        path.unlink()
        return None
    return handle


def _release(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _sweep(shop: Path, target: Path) -> None:
    """Clear a workshop away if its process is dead."""
    if not (shop / "lock").exists():
        shop.rmdir()  # only an empty one: its process died before it had a lock, or after it gave it up
        return
    lock = _lock(shop / "lock")
    try:
        _clear(shop, target)
    finally:
        _release(lock)


def _clear(shop: Path, target: Path) -> None:
    """Take a workshop away, and put back what it had set aside if that has not been replaced."""
    old = shop / "old" / target.name
    if old.exists() and not target.exists():
        old.rename(target)
    # The lock goes last: who is killed in between leaves a workshop that can be swept.
    for part in ("new", "old"):
        shutil.rmtree(shop / part, ignore_errors=True)
    (shop / "lock").unlink(missing_ok=True)
    with suppress(OSError):
        shop.rmdir()


# one folder in the place of another


def _put(draft: Path, target: Path, shop: Path) -> None:
    if not target.exists():
        draft.rename(target)
        return
    if _exchanged(draft, target):
        return
    old = shop / "old" / target.name
    old.parent.mkdir()
    target.rename(old)
    draft.rename(target)  # if this fails, the end of the workshop puts the old one back


def _exchanged(a: Path, b: Path) -> bool:
    """Exchange two names in one step; False where the system or the file system cannot."""
    exchange = _exchange_call()
    if exchange is None:
        return False
    if exchange(os.fsencode(a), os.fsencode(b)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV):
        return False
    raise OSError(number, os.strerror(number), str(b))


def _exchange_call() -> Callable[[bytes, bytes], int] | None:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return None
    here, flag = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return lambda a, b: int(call(here, a, here, b, flag))
