# SPDX-License-Identifier: GPL-3.0-or-later
"""Passwords as scrypt hashes (RFC 7914).

One is hashed at a time: a hash takes 32 MiB and about 0.3 s.
"""

import hashlib
import hmac
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from satlab.common.errors import SatlabError

MIN_PASSWORD, MAX_PASSWORD = 8, 256
"""Length of a password, characters."""
MAX_HASHING = 8
"""Largest number of callers that hash or wait for it; more would occupy the threads that answer
other requests.
"""
SCRYPT = {"n": 1 << 15, "r": 8, "p": 3}
"""Cost: 32 MiB and three passes, a row of OWASP's password storage table."""

_turn = threading.Lock()
_places = threading.BoundedSemaphore(MAX_HASHING)


class BusyError(SatlabError):
    """Too many callers wait for a hash."""


def make_hash(password: str) -> str:
    """Return a hash with its parameters. Raises BusyError."""
    salt = secrets.token_bytes(16)
    n, r, p = SCRYPT["n"], SCRYPT["r"], SCRYPT["p"]
    return f"scrypt${n}${r}${p}${salt.hex()}${_scrypt(password, salt, n, r, p).hex()}"


def matches(password: str, stored: str | None) -> bool:
    """Compare with a hash; takes as long without one (None). Raises BusyError."""
    _, n, r, p, salt, expected = (stored or _NO_PASSWORD).split("$")
    actual = _scrypt(password[: MAX_PASSWORD + 1], bytes.fromhex(salt), int(n), int(r), int(p))
    return hmac.compare_digest(actual, bytes.fromhex(expected))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = password.encode(errors="surrogatepass")
    with _hashing():
        return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=256 << 20, dklen=32)


@contextmanager
def _hashing() -> Iterator[None]:
    if not _places.acquire(blocking=False):
        raise BusyError("too many passwords are being checked", "try again in a few seconds")
    try:
        with _turn:
            yield
    finally:
        _places.release()


_NO_PASSWORD = f"scrypt${SCRYPT['n']}${SCRYPT['r']}${SCRYPT['p']}${'00' * 16}${'00' * 32}"
"""No password has this hash."""
