"""People and programs: who they are by their tokens, and logins of browsers."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from secrets import token_hex, token_urlsafe
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from bayesdrop.errors import must
from bayesdrop.serve.store.database import Database
from bayesdrop.serve.store.records import ROLES, Person, Role
from bayesdrop.serve.store.schema import people, sessions

__all__ = ["LOCAL", "People", "Session"]

#: who everybody is where no tokens were given out and only this machine can call
LOCAL = "local"


@dataclass(frozen=True)
class Session:
    """A login: the secret of its cookie, and what its forms must send back."""

    cookie: str
    csrf: str
    expires: float


class People:
    """Who may do what. Tokens and cookies are random and long; the database has their SHA-256 alone.

    Args:
        database: where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, role: Role) -> tuple[Person, str]:
        """A new person, and the token, which nobody can read again.

        Args:
            name: not taken yet.
            role: reader, labeller or admin.
        """
        name = _checked_name(name)
        if role not in ROLES:
            raise ValueError(must("people", "role", f"one of {', '.join(ROLES)}", role))
        token = new_token()
        row = {"name": name, "role": role, "token_hash": hashed(token), "created": self._database.clock()}
        try:
            with self._database.write() as connection:
                connection.execute(insert(people).values(**row))
        except IntegrityError as error:
            raise ValueError(f"there is somebody called {name!r} already.") from error
        return self.named(name), token

    def renew(self, name: str) -> str:
        """A new token for a person, in place of the old one; logins end."""
        person, token = self.named(name), new_token()
        with self._database.write() as connection:
            connection.execute(
                update(people)
                .where(people.c.id == person.id)
                .values(token_hash=hashed(token), disabled=False)
            )
            connection.execute(delete(sessions).where(sessions.c.person_id == person.id))
        return token

    def disable(self, name: str) -> None:
        """Nothing is accepted from a person any more; what they did stays."""
        person = self.named(name)
        with self._database.write() as connection:
            connection.execute(update(people).where(people.c.id == person.id).values(disabled=True))
            connection.execute(delete(sessions).where(sessions.c.person_id == person.id))

    def local(self, name: str = LOCAL, role: Role = "admin") -> Person:
        """Somebody without a token, made when first asked for."""
        with self._database.write(alone=True) as connection:
            found = connection.execute(select(people).where(people.c.name == name)).first()
            if found is None:
                row = {"name": name, "role": role, "created": self._database.clock()}
                connection.execute(insert(people).values(**row))
        return self.named(name)

    def all(self) -> list[Person]:
        """Everybody, in the order of their names."""
        with self._database.read() as connection:
            return [_person(row) for row in connection.execute(select(people).order_by(people.c.name))]

    def named(self, name: str) -> Person:
        """The person of a name."""
        with self._database.read() as connection:
            row = connection.execute(select(people).where(people.c.name == name)).first()
        if row is None:
            raise ValueError(f"there is nobody called {name!r}.")
        return _person(row)

    def have_tokens(self) -> bool:
        """Whether anybody has a token, so that nothing is open to everybody."""
        wanted = people.c.token_hash.is_not(None) & people.c.disabled.is_(False)
        with self._database.read() as connection:
            return bool(connection.scalar(select(func.count()).select_from(people).where(wanted)))

    def by_token(self, token: str) -> Person | None:
        """Whose token it is."""
        with self._database.read() as connection:
            row = connection.execute(select(people).where(people.c.token_hash == hashed(token))).first()
        person = None if row is None else _person(row)
        return None if person is None or person.disabled else person

    # logins

    def log_in(self, person: Person, seconds: float) -> Session:
        """A new login.

        Args:
            person: who.
            seconds: how long it lasts.
        """
        now = self._database.clock()
        session = Session(token_urlsafe(32), token_hex(32), now + seconds)
        row = {"id_hash": hashed(session.cookie), "person_id": person.id}
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.expires <= now))
            connection.execute(insert(sessions).values(**row, csrf=session.csrf, expires=session.expires))
        return session

    def by_cookie(self, cookie: str) -> tuple[Person, Session] | None:
        """Who is logged in with a cookie."""
        wanted = (sessions.c.id_hash == hashed(cookie)) & (sessions.c.expires > self._database.clock())
        joined = select(people, sessions.c.csrf, sessions.c.expires).join(sessions).where(wanted)
        with self._database.read() as connection:
            row = connection.execute(joined).first()
        if row is None or row.disabled:
            return None
        return _person(row), Session(cookie, row.csrf, row.expires)

    def log_out(self, cookie: str) -> None:
        """End a login."""
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.id_hash == hashed(cookie)))


def new_token() -> str:
    """256 random bits."""
    return f"bd_{token_urlsafe(32)}"


def hashed(secret: str) -> str:
    """What is stored of a random secret. It is too long to be guessed, so that no slow hash is needed."""
    return sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _checked_name(name: str) -> str:
    name = name.strip()
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise ValueError(must("people", "name", "1 to 100 printable characters", name))
    return name


def _person(row: Any) -> Person:
    return Person(row.id, row.name, row.role, bool(row.disabled), row.created, row.token_hash is not None)
