"""Files and folders that are replaced as a whole: all files of the library are written so.

A file or folder is written in a working folder beside its target, a hidden folder `.NAME.TOKEN.tmp` with

    lock      locked by the process that writes, for as long as it runs
    new/NAME  the draft
    old/NAME  the old folder, only where the system cannot exchange two folders in one step

One rename then moves the draft to its target. If a process is killed, its working folder stays, with a lock
that is free: the next write to the same target removes it.
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

__all__ = ["check_writable", "only_one", "recover_folder", "whole_file", "whole_folder", "write_file"]

_Path = str | os.PathLike[str]
#: the longest name of a target, in bytes, that its working folder's name repeats
_LONGEST = 200


@contextmanager
def whole_file(path: _Path, *, owner: str) -> Iterator[Path]:
    """A context with the path of a draft to write; at its end the draft becomes the file, in one step.

    Readers see the old file or the whole new one. After an exception the old file is unchanged and nothing
    else is left. A symbolic link stays a link: the file that it points to is replaced.

    Args:
        path: the file; its folder must exist.
        owner: the function that errors name.
    """
    target = _target(path, owner, folder=False)
    with _errors_about(target, owner), _working_folder(target) as work:
        draft = work / "new" / target.name
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
    """A context with an empty folder to fill; at its end it replaces `path`.

    An existing folder is replaced in one step where the system can exchange two names (Linux). Elsewhere it
    is moved away first, and `recover_folder` finds it if the process is killed before the new one is in
    place.

    Args:
        path: the folder, there or not; the folder that it is in must exist.
        owner: the function that errors name.
    """
    target = _target(path, owner, folder=True)
    recover_folder(target)
    with _errors_about(target, owner), _working_folder(target) as work:
        draft = work / "new" / target.name
        draft.mkdir()
        yield draft
        for folder, _, names in os.walk(draft):
            for name in names:
                _flush(Path(folder) / name)
            _flush(Path(folder))
        _put(draft, target, work)
        _flush(target.parent)


def check_writable(path: _Path, *, owner: str, size: int = 0) -> None:
    """Raise now if a later write to `path`, after long work, cannot succeed.

    A small draft is written beside the target and removed.

    Args:
        path: a file or a folder, which need not exist.
        owner: the function that errors name.
        size: the least number of bytes that will be written.
    """
    target = _target(path, owner, folder=Path(path).is_dir())
    with _errors_about(target, owner), _working_folder(target) as work:
        (work / "new" / target.name).write_bytes(bytes(4096))
        if shutil.disk_usage(target.parent).free < size:
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} for {size / 1e6:,.0f} MB")


def recover_folder(path: _Path) -> None:
    """Put back a folder that a killed process had moved away and not yet replaced; call before reading it.

    Args:
        path: the folder.
    """
    target = Path(os.path.realpath(path))
    if target.exists() or not target.parent.is_dir():
        return
    for work in _working_folders(target):
        old = work / "old" / target.name
        if not old.is_dir():
            continue
        try:
            # A running process is between its two renames: its lock will be free in a moment.
            lock = _lock(work / "lock", wait=True)
        except OSError:
            # There are no locks here. Putting it back is right even if its process is running: its rename
            # then fails with an error.
            with suppress(OSError):
                old.rename(target)
            continue
        try:
            _clear(work, target)
        finally:
            _release(lock)


@contextmanager
def only_one(path: _Path, *, owner: str, what: str) -> Iterator[None]:
    """A context that one process at a time is in; the system ends it when that process ends in any way.

    Args:
        path: a file that stands for what only one may do; its folder must exist, and it is left there.
        owner: the function that errors name.
        what: they do, for errors.
    """
    try:
        lock = _lock(Path(path), make=True)
    except BlockingIOError as error:
        raise ValueError(f"{owner}: another process is {what}. Wait for its end.") from error
    try:
        yield
    finally:
        _release(lock)


# the target


def _target(path: _Path, owner: str, *, folder: bool) -> Path:
    """The target of a write to `path`, with links followed; raise unless it is a file, or a `folder`."""
    target = Path(os.path.realpath(path))
    want = "a folder" if folder else "a file"
    if target.is_symlink():
        raise ValueError(must(owner, "path", want, f"the link {path}, which leads nowhere"))
    try:
        mode = target.stat().st_mode
    except OSError:  # it does not exist, or cannot be seen: then the write will fail
        mode = None
    if mode is not None and stat.S_ISDIR(mode) and not folder:
        raise ValueError(must(owner, "path", want, f"the folder {path}"))
    if mode is not None and not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
        raise ValueError(must(owner, "path", want, f"{path}, which is something else"))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{owner}: there is no folder {target.parent} to write {target.name} in.")
    return target


@contextmanager
def _errors_about(target: Path, owner: str) -> Iterator[None]:
    """A context: errors of the system, as a full disk, are raised with the names of file and folder."""
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


# working folders


@contextmanager
def _working_folder(target: Path) -> Iterator[Path]:
    """A context with a new working folder, removed at its end; those of dead processes are removed first."""
    for work in _working_folders(target):
        with suppress(OSError):
            _sweep(work, target)
    work, lock = _new_working_folder(target)
    try:
        (work / "new").mkdir()
        yield work
    finally:
        _clear(work, target)
        _release(lock)


def _working_folders(target: Path) -> list[Path]:
    """The existing working folders of a target."""
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


def _new_working_folder(target: Path) -> tuple[Path, int | None]:
    """A new working folder and its lock."""
    while True:
        work = target.with_name(f"{_start(target)}{token_hex(4)}.tmp")
        try:
            work.mkdir()
        except FileExistsError:
            continue
        try:
            return work, _lock(work / "lock", make=True)
        except (FileNotFoundError, BlockingIOError):
            # Before it had its lock it looked like that of a dead process, and another process removes it.
            continue
        except BaseException:
            _clear(work, target)
            raise


def _lock(path: Path, *, make: bool = False, wait: bool = False) -> int | None:
    """Take a lock, which the system releases when the process ends in any way.

    Returns: the lock, for `_release`; None for a new one where there are no locks.
    """
    if sys.platform == "win32":  # it is not known which processes run, so that nothing is ever removed
        if make:
            return None
        raise BlockingIOError(errno.EAGAIN, "it is not known whether its process is running", str(path))
    handle = os.open(path, os.O_RDWR | (os.O_CREAT if make else 0))
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if os.fstat(handle).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    except OSError as error:
        os.close(handle)
        if not make or isinstance(error, FileNotFoundError | BlockingIOError):
            raise
        # A file system without locks: without a lock file, the folder is not taken for a dead process's.
        path.unlink()
        return None
    return handle


def _release(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _sweep(work: Path, target: Path) -> None:
    """Remove a working folder if its process is dead."""
    if not (work / "lock").exists():
        work.rmdir()  # only if it is empty: its process died before it had a lock, or after releasing it
        return
    lock = _lock(work / "lock")
    try:
        _clear(work, target)
    finally:
        _release(lock)


def _clear(work: Path, target: Path) -> None:
    """Remove a working folder, and put back the old folder in it if that has not been replaced."""
    old = work / "old" / target.name
    if old.exists() and not target.exists():
        old.rename(target)
    # The lock is removed last: a process killed before that leaves a working folder that can be removed.
    for part in ("new", "old"):
        shutil.rmtree(work / part, ignore_errors=True)
    (work / "lock").unlink(missing_ok=True)
    with suppress(OSError):
        work.rmdir()


# replacing a folder


def _put(draft: Path, target: Path, work: Path) -> None:
    if not target.exists():
        draft.rename(target)
        return
    if _exchanged(draft, target):
        return
    old = work / "old" / target.name
    old.parent.mkdir()
    target.rename(old)
    draft.rename(target)  # if this fails, the end of the working folder puts the old one back


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
