# SPDX-License-Identifier: GPL-3.0-or-later
"""Log-ins and account requests, with limits per peer: guessing is slow, and no peer locks accounts
for another.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from satlab.service.api.accounts import Accounts, User
from satlab.service.api.api_answers import ViewError
from satlab.service.api.passwords import BusyError
from satlab.service.api.peers import peer_network
from satlab.service.api.tally import Tally


@dataclass
class Throttle:
    """At most `tries` per key within `window_s`.

    Holds at most `keys` keys; the oldest are dropped. Not thread-safe.
    """

    tries: int = 5
    window_s: float = 60.0
    keys: int = 10_000
    _tries: dict[str, list[float]] = field(default_factory=dict)

    def wait_s(self, now: float, key: str) -> float:
        """Return the time until the next try, s; 0 when it may be now."""
        recent = [when for when in self._tries.get(key, ()) if now - when < self.window_s]
        return recent[-self.tries] + self.window_s - now if len(recent) >= self.tries else 0.0

    def count(self, now: float, key: str) -> None:
        """Count a try."""
        self._tries[key] = [*self._tries.pop(key, ())[-self.tries :], now]
        for other in [k for k, times in self._tries.items() if now - times[-1] >= self.window_s]:
            del self._tries[other]
        while len(self._tries) > self.keys:
            del self._tries[next(iter(self._tries))]

    def withdraw(self, when: float, key: str) -> None:
        """Withdraw the try that was counted at `when`."""
        times = self._tries.get(key, [])
        if when in times:
            times.remove(when)
            if not times:
                del self._tries[key]

    def forget(self, key: str) -> None:
        self._tries.pop(key, None)


class Logins:
    """Checks passwords. `clock` returns s since the epoch.

    A try counts before its password is hashed, for the account at this peer and for the peer. So
    tries from elsewhere never lock an account at this peer.
    """

    def __init__(self, accounts: Accounts, clock: Callable[[], float], tally: Tally) -> None:
        self._accounts, self._clock, self._tally, self._lock = (
            accounts,
            clock,
            tally,
            threading.Lock(),
        )
        self._by_account, self._by_peer, self._requests = Throttle(), Throttle(tries=20), Throttle()

    def authenticate(self, login: str, password: str, address: str) -> User:
        """Return the account of a login and password.

        Raises:
            ViewError: 401; 429 after too many tries; 503 while too many passwords are being
                checked.
        """
        peer = peer_network(address)
        account, now = f"{peer} {login[:64]}", self._clock()
        with self._lock:
            wait_s = max(self._by_account.wait_s(now, account), self._by_peer.wait_s(now, peer))
            if wait_s:
                self._tally.add("logins_refused", "limited")
                raise ViewError(
                    HTTPStatus.TOO_MANY_REQUESTS, f"Too many wrong logins, wait {wait_s:.0f} s"
                )
            self._by_account.count(now, account)
            self._by_peer.count(now, peer)
        try:
            user = self._accounts.check(login, password)
        except BusyError as error:
            self._tally.add("logins_refused", "busy")
            with self._lock:
                self._by_account.withdraw(now, account)
                self._by_peer.withdraw(now, peer)
            raise ViewError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{error}, {error.hint}".capitalize()
            ) from error
        if user is None:
            self._tally.add("logins_refused", "wrong")
            raise ViewError(HTTPStatus.UNAUTHORIZED, "Wrong Credentials")
        with self._lock:
            self._by_account.forget(account)
            self._by_peer.withdraw(now, peer)
        return user

    def count_account_request(self, address: str) -> None:
        """Count a request for an account. Raises ViewError: 429 after too many of one peer."""
        peer, now = peer_network(address), self._clock()
        with self._lock:
            if self._requests.wait_s(now, peer):
                raise ViewError(
                    HTTPStatus.TOO_MANY_REQUESTS, "Too many account requests, wait a minute"
                )
            self._requests.count(now, peer)
