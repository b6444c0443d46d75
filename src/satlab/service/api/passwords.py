# SPDX-License-Identifier: GPL-3.0-or-later
"""Passwords as scrypt hashes (RFC 7914).

One password is hashed at a time: a hash takes 32 MiB and about 0.3 s. Callers wait in a fair queue.
Each peer has a share of its places, and known callers go before strangers.
"""

import hashlib
import hmac
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from satlab.common.errors import SatlabError

MIN_PASSWORD, MAX_PASSWORD = 8, 256
"""Length of a password, characters."""
MAX_HASHING = 8
"""Largest number of callers that hash or wait for it; more would occupy the threads that answer
other requests.
"""
MAX_OF_PEER = 2
"""Largest number of waiting callers of one peer and rank."""
SCRYPT = {"n": 1 << 15, "r": 8, "p": 3}
"""Cost: 32 MiB and three passes, a row of OWASP's password storage table."""


class Rank(IntEnum):
    """How well a caller is known: by a log-in of its peer, or of this account at its peer; or it
    has a session.
    """

    STRANGER = 0
    KNOWN_PEER = 1
    KNOWN_ACCOUNT = 2


@dataclass(frozen=True)
class Caller:
    """Who waits for a hash. Without a peer: a user with a session, or the operator."""

    peer: str = ""
    rank: Rank = Rank.KNOWN_ACCOUNT


TRUSTED = Caller()


class BusyError(SatlabError):
    """Too many callers wait for a hash."""

    def __init__(self) -> None:
        super().__init__("too many passwords are being checked", "try again in a few seconds")


@dataclass(eq=False)
class _Place:
    caller: Caller
    number: int
    is_lost: bool = False


class Queue:
    """One caller at a time has the turn: the best known first, then the peer whose last turn is
    longest ago.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Place] = []
        self._running: _Place | None = None
        self._turns: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting) + (self._running is not None)

    def waiting(self, rank: Rank) -> int:
        """Return how many callers of a rank wait."""
        return sum(each.caller.rank == rank for each in list(self._waiting))

    @contextmanager
    def turn(self, caller: Caller) -> Iterator[None]:
        """Wait for the turn and hold it.

        Raises BusyError: there is no place, or a better known caller has taken it.
        """
        with self._changed:
            place = self._place(caller)
            self._changed.wait_for(
                lambda: place.is_lost or (self._running is None and self._next() is place)
            )
            if place.is_lost:
                raise BusyError
            self._waiting.remove(place)
            self._running = place
            self._turns.pop(caller.peer, None)
            self._turns[caller.peer] = place.number
            if len(self._turns) > 10 * MAX_HASHING:
                del self._turns[next(iter(self._turns))]
        try:
            yield
        finally:
            with self._changed:
                self._running = None
                self._changed.notify_all()

    def _place(self, caller: Caller) -> _Place:
        """Return a new place. If the queue is full, a less known caller, or the peer with more
        places, loses one.

        Raises BusyError.
        """
        present = [*self._waiting, *([self._running] if self._running else [])]
        places = Counter(each.caller for each in present)
        if places[caller] >= MAX_OF_PEER and caller.peer:
            raise BusyError
        if len(present) >= MAX_HASHING:
            able = [
                each
                for each in self._waiting
                if each.caller.rank < caller.rank
                or (each.caller.rank == caller.rank and places[each.caller] > places[caller] + 1)
            ]
            if not able:
                raise BusyError
            lost = min(
                able, key=lambda each: (each.caller.rank, -places[each.caller], -each.number)
            )
            lost.is_lost = True
            self._waiting.remove(lost)
            self._changed.notify_all()
        self._count += 1
        place = _Place(caller, self._count)
        self._waiting.append(place)
        return place

    def _next(self) -> _Place:
        return min(
            self._waiting,
            key=lambda each: (-each.caller.rank, self._turns.get(each.caller.peer, 0), each.number),
        )


hashing = Queue()


def make_hash(password: str, caller: Caller = TRUSTED) -> str:
    """Return a hash with its parameters. Raises BusyError."""
    salt = secrets.token_bytes(16)
    n, r, p = SCRYPT["n"], SCRYPT["r"], SCRYPT["p"]
    return f"scrypt${n}${r}${p}${salt.hex()}${_scrypt(password, salt, n, r, p, caller).hex()}"


def matches(password: str, stored: str | None, caller: Caller = TRUSTED) -> bool:
    """Compare with a hash; takes as long without one (None). Raises BusyError."""
    _, n, r, p, salt, expected = (stored or _NO_PASSWORD).split("$")
    actual = _scrypt(
        password[: MAX_PASSWORD + 1], bytes.fromhex(salt), int(n), int(r), int(p), caller
    )
    return hmac.compare_digest(actual, bytes.fromhex(expected))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int, caller: Caller) -> bytes:
    text = password.encode(errors="surrogatepass")
    with hashing.turn(caller):
        return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=256 << 20, dklen=32)


_NO_PASSWORD = f"scrypt${SCRYPT['n']}${SCRYPT['r']}${SCRYPT['p']}${'00' * 16}${'00' * 32}"
"""No password has this hash."""
