"""Files and folders are whole at any moment: full disks, kills, links, and what killed processes leave."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

import bayesdrop as bd
from bayesdrop.storage import (
    check_writable,
    load,
    recover_folder,
    save,
    whole,
    whole_file,
    whole_folder,
    write_file,
    write_tensors,
)


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """No file grows beyond `size` bytes: the system's own refusal, as that of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# a disk without room


def test_a_full_disk_is_told_of_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save(old := nn.Linear(3, 2), path)
    with (
        small_disk(4096),
        pytest.raises(
            OSError, match=rf"save: m\.safetensors cannot be written in the folder {tmp_path}: "
        ) as told,
    ):
        save(nn.Linear(300, 200), path)
    assert told.value.errno == errno.EFBIG
    assert names(tmp_path) == ["m.safetensors"]
    assert torch.equal(load(path).weight, old.weight)  # type: ignore[arg-type]


def test_the_kind_of_the_systems_error_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(
        PermissionError, match=r"^mine: a cannot be written in the folder .*: Permission denied\.$"
    ):
        write_file(tmp_path / "a", "text", owner="mine")
    assert names(tmp_path) == []


def test_errors_of_other_files_keep_their_words(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"), whole_file(tmp_path / "a", owner="mine"):
        Path("/nowhere/at/all").read_bytes()
    assert names(tmp_path) == []


def test_an_interrupt_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_file(tmp_path / "a", "old", owner="mine")

    def interrupted() -> None:
        with whole_file(tmp_path / "a", owner="mine") as draft:
            draft.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_place_that_cannot_be_written_is_found_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_writable(tmp_path / "a", owner="mine")
    assert names(tmp_path) == []
    with pytest.raises(FileNotFoundError, match=r"mine: there is no folder .*none to write a in"):
        check_writable(tmp_path / "none" / "a", owner="mine")
    with pytest.raises(
        OSError, match=r"a cannot be written in .*: No space left on device for 1,000,0.* MB"
    ) as told:
        check_writable(tmp_path / "a", owner="mine", size=10**18)
    assert told.value.errno == errno.ENOSPC
    with small_disk(0), pytest.raises(OSError, match=r"a cannot be written in .*: File too large"):
        check_writable(tmp_path / "a", owner="mine")
    monkeypatch.setattr(os, "mkdir", _read_only)
    with pytest.raises(OSError, match=r"a cannot be written in .*: Read-only file system\.") as told:
        check_writable(tmp_path / "a", owner="mine")
    assert told.value.errno == errno.EROFS
    assert names(tmp_path) == []


def _read_only(path: object, *_: object, **__: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system", str(path))


def test_only_files_are_replaced_by_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"mine: `path` must be a file; got .*something else"):
        write_file("/dev/null", "text", owner="mine")
    with pytest.raises(ValueError, match=r"mine: `path` must be a file; got .*the folder"):
        write_file(tmp_path, "text", owner="mine")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="load: `path` must be a file"):
        load(tmp_path / "pipe")
    write_file(tmp_path / "a", "text", owner="mine")
    with (
        pytest.raises(ValueError, match="mine: `path` must be a folder"),
        whole_folder(tmp_path / "a", owner="mine"),
    ):
        pass


def test_the_longest_names_can_be_written(tmp_path: Path) -> None:
    name = "n" * 255
    for text in ("one", "two"):
        write_file(tmp_path / name, text, owner="mine")
    assert names(tmp_path) == [name]


# links


def test_a_link_stays_a_link_and_what_it_points_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    for path in ("link", "ahead"):
        (tmp_path / path).symlink_to(Path("far") / path)
    write_file(tmp_path / "far" / "link", "old", owner="mine")
    for path in ("link", "ahead"):  # one points to a file, the other to where there is none yet
        write_file(tmp_path / path, "new", owner="mine")
        assert (tmp_path / path).is_symlink()
        assert (tmp_path / "far" / path).read_text() == "new"
        assert not (tmp_path / "far" / path).is_symlink()
    assert names(tmp_path) == ["ahead", "far", "link"]
    assert names(tmp_path / "far") == ["ahead", "link"]


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "model")
    for generation in range(3):
        with whole_folder(tmp_path / "link", owner="mine") as draft:
            (draft / "a").write_text(str(generation))
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "link" / "a").read_text() == str(generation)
    assert names(tmp_path / "far") == ["model"]


def test_a_link_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(ValueError, match=r"mine: `path` must be a file; got .*leads nowhere"):
        write_file(tmp_path / "a", "text", owner="mine")


# kills

#: A process that forks others. Each writes generations to a folder, or to a file, and is killed: at the n-th
#: thing that it asks of the system (every one in turn), and at random moments. What is then at its path must
#: be one whole generation; after one more write, nothing else may be there.
_KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from bayesdrop.storage import recover_folder, whole, whole_file, whole_folder

place, folder = sys.argv[1], Path(sys.argv[2])
target = folder / "model"
if place == "moved":
    whole._exchanged = lambda a, b: False
PARTS = 3

def write(generation):
    text = f"{generation} " * 500
    if place == "file":
        with whole_file(target, owner="test") as draft, draft.open("w") as file:
            for _ in range(PARTS):
                file.write(text)
        return
    with whole_folder(target, owner="test") as draft:
        for part in range(PARTS):
            (draft / f"{part}").write_text(text)

def whole_generation():
    if place == "file":
        text = target.read_text()
        sizes = len(text.split()) == 500 * PARTS
    else:
        recover_folder(target)
        assert sorted(path.name for path in target.iterdir()) == [f"{part}" for part in range(PARTS)]
        text = "".join((target / f"{part}").read_text() for part in range(PARTS))
        sizes = len(text.split()) == 500 * PARTS
    assert sizes and len(set(text.split())) == 1, "not one generation"
    return int(text.split()[0])

def forked(child):
    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:
            os._exit(0)
    return pid

class Step:
    left = None
    def __call__(self, event, args):
        if self.left is None or not event.startswith(("open", "os.", "shutil.", "ctypes.", "fcntl.")):
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            os.kill(os.getpid(), signal.SIGKILL)

hook = Step()
sys.addaudithook(hook)
write(0)
kills = 0
for count in range(10_000):
    before = whole_generation()
    def child():
        hook.left = count
        write(before + 1)
    _, status = os.waitpid(forked(child), 0)
    assert whole_generation() in (before, before + 1)
    if not os.WIFSIGNALED(status):
        break
    kills += 1
    if count % 7 == 0:
        write(before + 2)
        assert [path.name for path in folder.iterdir()] == ["model"], list(folder.iterdir())
rng = random.Random(0)
for _ in range(30):
    before = whole_generation()
    def child():
        for generation in range(before + 1, before + 100_000):
            write(generation)
    pid = forked(child)
    time.sleep(rng.random() * 0.02)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    kills += os.WIFSIGNALED(status)
    assert whole_generation() >= before
write(10**9)
assert whole_generation() == 10**9
assert [path.name for path in folder.iterdir()] == ["model"], list(folder.iterdir())
print(kills)
"""


@pytest.mark.parametrize("place", ["folder", "moved", "file"])
def test_a_killed_process_leaves_one_whole_generation(place: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KILLED, place, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) >= 30 + 12


def test_where_folders_can_be_exchanged_there_is_no_moment_without_one(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "model", owner="mine") as draft:
        (draft / "a").write_text("old")
    probe = tmp_path / "a", tmp_path / "b"
    for path in probe:
        path.mkdir()
    if not whole._exchanged(*probe):
        pytest.skip("this system cannot exchange two folders")
    missing = []

    def watch(event: str, args: tuple[object, ...]) -> None:
        if watched and event.startswith(("os.", "shutil.", "open")):
            missing.extend([event] * (not (tmp_path / "model" / "a").exists()))

    watched = True
    sys.addaudithook(watch)
    with whole_folder(tmp_path / "model", owner="mine") as draft:
        (draft / "a").write_text("new")
    watched = False
    assert missing == []
    assert (tmp_path / "model" / "a").read_text() == "new"


# what is swept, and what is not


def test_what_dead_processes_left_is_swept_and_what_live_ones_write_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a"
    program = (
        "import os, sys; from bayesdrop.storage import whole_file\n"
        "block = whole_file(sys.argv[1], owner='test'); block.__enter__().write_text('half')\n"
        "print('ready', flush=True); sys.stdin.readline(); os._exit(0)\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    with whole_file(path, owner="mine") as mine:  # this process's own, of another thread say, lives too
        for _ in range(2):
            write_file(path, "text", owner="mine")
            assert len(names(tmp_path)) == 3
        mine.write_text("mine")
    assert len(names(tmp_path)) == 2
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdin.close()
    other.stdout.close()
    write_file(tmp_path / "b", "text", owner="mine")  # another target's
    assert len(names(tmp_path)) == 3
    write_file(path, "text", owner="mine")
    assert names(tmp_path) == ["a", "b"]


def test_files_of_the_user_are_not_swept(tmp_path: Path) -> None:
    kept = [".a.tmp", ".a.0123456.tmp", ".a.01234567.tmp.bak", ".ab.01234567.tmp", ".a.01234567.tmp"]
    for name in kept[:-1]:
        (tmp_path / name).mkdir()
    (tmp_path / kept[-1]).write_text("a file, where workshops are folders")
    write_file(tmp_path / "a", "text", owner="mine")
    assert names(tmp_path) == sorted([*kept, "a"])


def test_many_writers_of_one_file_end_with_one_of_theirs(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def write(generation: int) -> None:
        try:
            for _ in range(20):
                with whole_folder(tmp_path / "model", owner="mine") as draft:
                    (draft / "a").write_text(f"{generation}")
                    (draft / "b").write_text(f"{generation}")
        except BaseException as error:
            failed.append(error)

    write(9)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "a").read_text() == (tmp_path / "model" / "b").read_text()


def test_without_locks_files_are_written_and_nothing_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("bayesdrop.storage.whole.fcntl.flock", refuse)
    with whole_file(tmp_path / "a", owner="mine") as draft:
        write_file(tmp_path / "a", "first", owner="mine")
        draft.write_text("second")
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "second"


def test_without_locks_what_was_set_aside_is_put_back(tmp_path: Path) -> None:
    aside = tmp_path / ".model.01234567.tmp" / "old" / "model"
    aside.mkdir(parents=True)
    (aside / "a").write_text("old")
    recover_folder(tmp_path / "model")
    assert (tmp_path / "model" / "a").read_text() == "old"


def test_recovering_is_idle_where_there_is_nothing_to_recover(tmp_path: Path) -> None:
    recover_folder(tmp_path / "model")
    recover_folder(tmp_path / "none" / "model")
    assert names(tmp_path) == []


def test_the_same_tensors_are_the_same_bytes(tmp_path: Path) -> None:
    order = list("abcdefgh")
    for name in ("one", "two"):
        random.Random(name).shuffle(order)
        tensors = {key: torch.full((3,), float(ord(key))) for key in order}
        write_tensors(tmp_path / name, tensors, kind="kind", header={})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_fit_finds_a_folder_that_cannot_be_written_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "mkdir", _read_only)
    calls: list[int] = []

    def objective(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return model(x).sum()  # type: ignore[no-any-return]

    with pytest.raises(OSError, match=r"fit: run cannot be written in the folder .*: Read-only"):
        bd.fit(
            nn.Linear(2, 1),
            (torch.ones(4, 2), torch.ones(4, 1)),
            objective,
            epochs=1,
            checkpoint=tmp_path / "run",
        )
    assert calls == []
