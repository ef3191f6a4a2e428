"""ServeSettings: all that a server can be told, checked once."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from bayesdrop.errors import must, real_number, whole_number

__all__ = ["ServeSettings", "is_loopback"]


@dataclass(frozen=True)
class ServeSettings:
    """How a server runs.

    Args:
        model: a folder of `bayesdrop fit`, a folder of an image classifier, or "package.module:build".
        database: a URL of SQLAlchemy, as "postgresql+psycopg://me@localhost/desk"; None for the file
            desk.sqlite in `home`.
        home: the folder of the database and of new versions of the model; None for MODEL.desk beside a
            model that is a folder, and for NAME.desk here otherwise.
        data: the table that the model was fitted to, which a refit needs.
        name: of the model in URLs; the name of its folder or function if None.
        host: address to listen on.
        port: to listen on; 0 for one that is free.
        allowed_hosts: names besides `host` by which the server may be called.
        likelihood: of a torch model: categorical, gaussian, heteroscedastic, bernoulli or raw.
        num_draws: functions drawn for an answer unless asked otherwise; the model's own if None.
        seed: of the draws unless asked otherwise.
        level: coverage of the intervals unless asked otherwise; the model's own if None.
        defer_above: entropy, or standard deviation, above which a row of an image or torch model goes to a
            person; the model's own if None. Tables have their rule.
        second_share: share of all queued items that two people are asked about.
        adaptive: stretch intervals by what labels of random items teach, so that they keep their promise
            under drift (Gibbs & Candes, 2021).
        adaptive_by: a column whose values keep it each for itself; implies `adaptive`.
        max_body: bytes of a request.
        max_rows: rows of a request.
        max_draws: draws that a request may ask for.
        max_pixels: of an image, before it is scaled down.
        batch_rows: rows that run together at most; a longer request is answered in parts of that size.
        linger: seconds that a batch waits for company.
        queue_rows: rows that may wait; a request beyond that gets 429.
        workers: threads that predict.
        random_share: share of all rows that people see whatever the model thinks of them.
        random_every: every so-many-th item that is handed out is one of those.
        lease: seconds that an item belongs to the person who got it.
        session: seconds that a login lasts.
        rate: requests a second that one caller may send on average; 0 for any number.
        burst: requests that one caller may send at once.
        stop_after: seconds that a stop waits for what was accepted.
        refit_apart: train in a process of its own, so that answers do not wait.
        poll: seconds between looks at the database for a version that another process made active.
    """

    model: str
    database: str | None = None
    home: Path | None = None
    data: Path | None = None
    name: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    likelihood: str | None = None
    num_draws: int | None = None
    seed: int = 0
    level: float | None = None
    defer_above: float | None = None
    second_share: float = 0.0
    adaptive: bool = False
    adaptive_by: str | None = None
    max_body: int = 32 * 2**20
    max_rows: int = 50_000
    max_draws: int = 1000
    max_pixels: int = 50_000_000
    batch_rows: int = 512
    linger: float = 0.002
    queue_rows: int = 100_000
    workers: int = 1
    random_share: float = 0.1
    random_every: int = 4
    lease: float = 300.0
    session: float = 12 * 3600.0
    rate: float = 0.0
    burst: int = 200
    stop_after: float = 30.0
    refit_apart: bool = True
    poll: float = 2.0

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise ValueError(must("serve", "model", "a folder or package.module:function", self.model))
        if self.name is not None and (not self.name or "/" in self.name or not self.name.isprintable()):
            raise ValueError(must("serve", "name", "a printable text without /", self.name))
        whole_number("serve", "port", self.port, at_least=0, at_most=65535)
        for name in ("max_body", "max_rows", "max_draws", "max_pixels", "batch_rows", "queue_rows"):
            whole_number("serve", name, getattr(self, name), at_least=1)
        for name in ("workers", "random_every", "burst"):
            whole_number("serve", name, getattr(self, name), at_least=1)
        for name in ("linger", "rate", "stop_after"):
            real_number("serve", name, getattr(self, name), "a number of at least 0", at_least=0)
        for name in ("lease", "session", "poll"):
            real_number("serve", name, getattr(self, name), "a positive number of seconds", above=0)
        for name in ("random_share", "second_share"):
            real_number("serve", name, getattr(self, name), "in [0, 1]", at_least=0, at_most=1)
        if self.defer_above is not None:
            real_number("serve", "defer_above", self.defer_above, "a number of at least 0", at_least=0)
        if self.level is not None:
            real_number("serve", "level", self.level, "in (0, 1)", above=0, below=1)
        if self.num_draws is not None:
            whole_number("serve", "num_draws", self.num_draws, at_least=2, at_most=self.max_draws)
        whole_number("serve", "seed", self.seed, at_least=0, at_most=2**31 - 1)

    @property
    def is_code(self) -> bool:
        """Whether the model is a function to call, not a folder."""
        return not Path(self.model).exists() and ":" in self.model

    @property
    def model_name(self) -> str:
        """What the model is called in URLs."""
        if self.name:
            return self.name
        return self.model.rpartition(":")[2] if self.is_code else Path(self.model).resolve().name

    @property
    def folder(self) -> Path:
        """Where the database and new versions are."""
        if self.home is not None:
            return self.home
        beside = Path.cwd() if self.is_code else Path(self.model).resolve().parent
        return beside / f"{self.model_name}.desk"

    @property
    def url(self) -> str:
        """Of the database."""
        return self.database or f"sqlite:///{self.folder / 'desk.sqlite'}"


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
