# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may log in and what they may do: scrypt (RFC 7914) passwords, sessions, a first token, a brake on guessing."""

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from sqlite3 import Row

from satlab.common.errors import ConfigError
from satlab.serve.store import Store

FIRST_LOGIN = "admin"
"""Account that the first token opens."""
LEAST_PASSWORD, MOST_PASSWORD = 8, 256
"""Length of a password, characters."""
SCRYPT = {"n": 1 << 15, "r": 8, "p": 3}
"""Cost: 32 MiB and three passes, a row of OWASP's password storage table."""

_LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}", re.ASCII)


class Role(IntEnum):
    """What an account may do; each role may do what the ones before it may."""

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


class Accounts:
    """Accounts and sessions in the store; `clock` gives seconds since the epoch."""

    def __init__(self, store: Store, clock: Callable[[], float], session_s: float) -> None:
        self._store, self._clock, self._session_s = store, clock, session_s
        self._hashing = threading.Lock()  # one at a time: a hash takes 32 MiB

    def users(self) -> list[User]:
        """Return every account by login."""
        return [_user(row) for row in self._store.rows("SELECT * FROM users ORDER BY login")]

    def find(self, login: str) -> User | None:
        """Return one account."""
        row = self._store.row("SELECT * FROM users WHERE login = ?", login)
        return _user(row) if row else None

    def has_password(self) -> bool:
        """Return whether anybody can log in with a password."""
        return self._store.row("SELECT 1 FROM users WHERE active AND password != ''") is not None

    def put(self, user: User, password: str | None = None) -> None:
        """Make or change an account; a password that is given replaces the old one, and ends the sessions.

        Raises ConfigError for a login or password that is none.
        """
        if not _LOGIN.fullmatch(user.login):
            raise ConfigError(f"the login {user.login[:64]!r} is not usable", hint="1 to 64 letters, digits, _ . @ -")
        if password is not None and not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
            raise ConfigError(f"a password has {LEAST_PASSWORD} to {MOST_PASSWORD} characters")
        with self._store.transaction() as connection:
            names = (user.first_name, user.last_name, user.email)
            connection.execute(
                "INSERT INTO users VALUES (?, '', ?, ?, ?, ?, ?) ON CONFLICT (login) DO UPDATE SET"
                " role = excluded.role, active = excluded.active, first_name = excluded.first_name,"
                " last_name = excluded.last_name, email = excluded.email",
                (user.login, user.role.name, int(user.active), *names),
            )
            if password is not None:
                connection.execute("UPDATE users SET password = ? WHERE login = ?", (_hash(password), user.login))
            if password is not None or not user.active:
                connection.execute("DELETE FROM sessions WHERE login = ?", (user.login,))

    def remove(self, login: str) -> None:
        """Remove an account and its sessions."""
        self._store.write("DELETE FROM users WHERE login = ?", login)

    def first_token(self) -> str:
        """Make the token that opens the first account once, in place of a password; earlier ones end."""
        token = secrets.token_urlsafe(18)
        with self._store.transaction() as connection:
            connection.execute("DELETE FROM first_token")
            connection.execute("INSERT INTO first_token VALUES (?)", (_digest(token),))
        return token

    def check(self, login: str, password: str) -> User | None:
        """Return the account that login and password open; takes as long for an unknown login."""
        if login == FIRST_LOGIN and self._store.write(
            "DELETE FROM first_token WHERE token_sha256 = ?", _digest(password)
        ):
            user = User(FIRST_LOGIN, Role.ADMIN)
            self.put(user)
            return user
        row = self._store.row("SELECT * FROM users WHERE login = ? AND active AND password != ''", login)
        with self._hashing:
            good = _matches(password, row["password"] if row else _NOBODY)
        return _user(row) if row and good else None

    def open_session(self, login: str) -> str:
        """Begin a session and give its token, of which the store keeps a digest alone."""
        token, now = secrets.token_urlsafe(32), self._clock()
        with self._store.transaction() as connection:
            connection.execute("DELETE FROM sessions WHERE expires <= ?", (now,))
            row = (_digest(token), login, now + self._session_s)
            connection.execute("INSERT INTO sessions VALUES (?, ?, ?)", row)
        return token

    def session(self, token: str) -> User | None:
        """Return the account of a session that lasts."""
        sql = "SELECT users.* FROM users JOIN sessions USING (login) WHERE token_sha256 = ? AND expires > ? AND active"
        row = self._store.row(sql, _digest(token), self._clock())
        return _user(row) if row else None

    def close_session(self, token: str) -> None:
        """End a session."""
        self._store.write("DELETE FROM sessions WHERE token_sha256 = ?", _digest(token))


@dataclass
class LoginThrottle:
    """Slows guessing down: after `tries` failures of one key within `window_s`, it is refused until they are older."""

    tries: int = 5
    window_s: float = 60.0
    keys: int = 10_000
    _failures: dict[str, list[float]] = field(default_factory=dict)

    def wait_s(self, now: float, key: str) -> float:
        """Return how long to wait before the next try, 0 when none is needed."""
        recent = [when for when in self._failures.get(key, ()) if now - when < self.window_s]
        return recent[-self.tries] + self.window_s - now if len(recent) >= self.tries else 0.0

    def failed(self, now: float, key: str) -> None:
        """Note a failure; what is old is forgotten, and the oldest keys when there are too many."""
        self._failures[key] = [*self._failures.pop(key, ())[-self.tries :], now]
        for other in [k for k, times in self._failures.items() if now - times[-1] >= self.window_s]:
            del self._failures[other]
        while len(self._failures) > self.keys:
            del self._failures[next(iter(self._failures))]

    def passed(self, key: str) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)


def _user(row: Row) -> User:
    names = (row["first_name"], row["last_name"], row["email"])
    return User(row["login"], Role[row["role"]], bool(row["active"]), *names)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _hash(password: str) -> str:
    salt = secrets.token_bytes(16)
    n, r, p = SCRYPT["n"], SCRYPT["r"], SCRYPT["p"]
    return f"scrypt${n}${r}${p}${salt.hex()}${_scrypt(password, salt, n, r, p).hex()}"


def _matches(password: str, stored: str) -> bool:
    _, n, r, p, salt, wanted = stored.split("$")
    found = _scrypt(password[: MOST_PASSWORD + 1], bytes.fromhex(salt), int(n), int(r), int(p))
    return hmac.compare_digest(found, bytes.fromhex(wanted))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(errors="surrogatepass"), salt=salt, n=n, r=r, p=p, maxmem=256 << 20, dklen=32)


_NOBODY = f"scrypt${SCRYPT['n']}${SCRYPT['r']}${SCRYPT['p']}${'00' * 16}${'00' * 32}"
"""No password has this hash; it is compared where there is no account."""
