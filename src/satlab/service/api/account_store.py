# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounts with their roles and sessions, and the first token."""

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from sqlite3 import Row

from satlab.common.errors import ConfigError, SatlabError
from satlab.service.api.database import Store
from satlab.service.api.passwords import (
    MAX_PASSWORD,
    MIN_PASSWORD,
    TRUSTED,
    Caller,
    make_hash,
    matches,
)

FIRST_LOGIN = "admin"
"""Account that the first token opens."""
MAX_NAME = 254
"""Longest first name, last name and e-mail address, characters."""
MAX_PENDING = 100
"""Largest number of accounts that wait for approval."""

_LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", re.ASCII)


class Role(IntEnum):
    """What an account may do; each role includes the earlier ones."""

    VIEWER = 0
    RUNNER = 1
    ADMIN = 2


@dataclass(frozen=True)
class User:
    """An account, without its password."""

    login: str
    role: Role
    active: bool = True
    first_name: str = ""
    last_name: str = ""
    email: str = ""


class TakenError(SatlabError):
    """An account of this login exists."""


class PendingError(SatlabError):
    """Too many accounts wait for approval."""


class Accounts:
    """Accounts and sessions in the store; `clock` returns s since the epoch."""

    def __init__(self, store: Store, clock: Callable[[], float], session_s: float) -> None:
        self._store, self._clock, self._session_s = store, clock, session_s

    def users(self) -> list[User]:
        """Return every account, sorted by login."""
        return [_user(row) for row in self._store.rows("SELECT * FROM users ORDER BY login")]

    def find(self, login: str) -> User | None:
        row = self._store.row("SELECT * FROM users WHERE login = ?", login)
        return _user(row) if row else None

    def has_password(self) -> bool:
        """Return whether an active account has a password."""
        return self._store.row("SELECT 1 FROM users WHERE active AND password != ''") is not None

    def request(self, user: User, password: str, caller: Caller) -> None:
        """Create an account that waits for approval: it is not active.

        Raises:
            ConfigError: login, names or password are invalid.
            TakenError: the login exists.
            PendingError: too many accounts wait.
            BusyError: too many passwords are being hashed.
        """
        _check(user, password)
        self._check_request(user.login)
        hashed = make_hash(password, caller)
        with self._store.transaction() as connection:
            self._check_request(user.login)
            names = (user.first_name, user.last_name, user.email)
            row = (user.login, hashed, user.role.name, 0, *names)
            connection.execute("INSERT INTO users VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def _check_request(self, login: str) -> None:
        if self.find(login) is not None:
            raise TakenError(f"the login {login} exists")
        if len(self._store.rows("SELECT 1 FROM users WHERE NOT active")) >= MAX_PENDING:
            raise PendingError(
                "too many accounts wait for approval", "an administrator approves or removes them"
            )

    def put(self, user: User, password: str | None = None) -> None:
        """Create or change an account. A new password ends its sessions.

        Raises:
            ConfigError: login, names or password are invalid.
            BusyError: too many passwords are being hashed.
        """
        _check(user, password)
        hashed = None if password is None else make_hash(password)
        with self._store.transaction() as connection:
            names = (user.first_name, user.last_name, user.email)
            connection.execute(
                "INSERT INTO users VALUES (?, '', ?, ?, ?, ?, ?) ON CONFLICT (login) DO UPDATE SET"
                " role = excluded.role, active = excluded.active, first_name = excluded.first_name,"
                " last_name = excluded.last_name, email = excluded.email",
                (user.login, user.role.name, int(user.active), *names),
            )
            if hashed is not None:
                connection.execute(
                    "UPDATE users SET password = ? WHERE login = ?", (hashed, user.login)
                )
            if hashed is not None or not user.active:
                connection.execute("DELETE FROM sessions WHERE login = ?", (user.login,))

    def remove(self, login: str) -> None:
        """Remove an account and its sessions."""
        self._store.write("DELETE FROM users WHERE login = ?", login)

    def first_token(self) -> str:
        """Create the token that replaces the password of the first log-in; earlier tokens become
        invalid.
        """
        token = secrets.token_urlsafe(18)
        with self._store.transaction() as connection:
            connection.execute("DELETE FROM first_token")
            connection.execute("INSERT INTO first_token VALUES (?)", (_digest(token),))
        return token

    def check(self, login: str, password: str, caller: Caller = TRUSTED) -> User | None:
        """Return the account, None if login or password are wrong. Both take the same time.

        Raises BusyError while too many passwords are being hashed.
        """
        if login == FIRST_LOGIN and self._store.write(
            "DELETE FROM first_token WHERE token_sha256 = ?", _digest(password)
        ):
            user = User(FIRST_LOGIN, Role.ADMIN)
            self.put(user)
            return user
        row = self._store.row(
            "SELECT * FROM users WHERE login = ? AND active AND password != ''", login
        )
        is_right = matches(password, row["password"] if row else None, caller)
        return _user(row) if row and is_right else None

    def open_session(self, login: str) -> str:
        """Create a session and return its token; the store holds only a digest of it."""
        token, now = secrets.token_urlsafe(32), self._clock()
        with self._store.transaction() as connection:
            connection.execute("DELETE FROM sessions WHERE expires <= ?", (now,))
            row = (_digest(token), login, now + self._session_s)
            connection.execute("INSERT INTO sessions VALUES (?, ?, ?)", row)
        return token

    def session(self, token: str) -> User | None:
        """Return the account of a session, None if the session has expired or its account is not
        active.
        """
        sql = (
            "SELECT users.* FROM users JOIN sessions USING (login) WHERE token_sha256 = ? AND"
            " expires > ? AND active"
        )
        row = self._store.row(sql, _digest(token), self._clock())
        return _user(row) if row else None

    def close_session(self, token: str) -> None:
        self._store.write("DELETE FROM sessions WHERE token_sha256 = ?", _digest(token))


def _check(user: User, password: str | None) -> None:
    if not _LOGIN.fullmatch(user.login):
        raise ConfigError(
            f"the login {user.login[:64]!r} is invalid", hint="1 to 64 letters, digits, _ . @ -"
        )
    if max(map(len, (user.first_name, user.last_name, user.email))) > MAX_NAME:
        raise ConfigError(f"a name or e-mail address has at most {MAX_NAME} characters")
    if password is not None and not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise ConfigError(f"a password has {MIN_PASSWORD} to {MAX_PASSWORD} characters")


def _user(row: Row) -> User:
    names = (row["first_name"], row["last_name"], row["email"])
    return User(row["login"], Role[row["role"]], bool(row["active"]), *names)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
