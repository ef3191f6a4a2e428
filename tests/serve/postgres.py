"""A PostgreSQL server of the machine's own binaries, for the tests that need one."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl, or None."""
    found = shutil.which("initdb")
    if found:
        return Path(os.path.realpath(found)).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


def why_not() -> str:
    """Why there can be no server here; "" if there can."""
    if binaries() is None:
        return "there is no PostgreSQL on this machine (initdb)"
    if os.getuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no other user to run it as"
    return ""


def _user() -> pwd.struct_passwd | None:
    """Somebody without rights, since PostgreSQL refuses to run as root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


@contextmanager
def server() -> Iterator[str]:
    """A server that is gone at the end; yields the URL of its database."""
    folder = Path(mkdtemp(prefix="bd-pg-"))
    who = _user() if os.getuid() == 0 else None
    if who is not None:
        os.chown(folder, who.pw_uid, who.pw_gid)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(program: str, *options: str) -> None:
        command = [str((binaries() or Path()) / program), *options]
        extra = {} if who is None else {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, timeout=120,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(folder)}, **extra,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    data, log = str(folder / "data"), str(folder / "log")
    try:
        run("initdb", "-D", data, "-U", "desk", "-A", "trust", "--no-sync", "-E", "UTF8")
        listen = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c max_connections=60"
        run("pg_ctl", "-D", data, "-l", log, "-w", "-o", listen, "start")
        try:
            yield f"postgresql+psycopg://desk@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
