# SPDX-License-Identifier: GPL-3.0-or-later
"""Log-ins and account requests, with limits per peer: guessing is slow, and no peer locks accounts
for another.
"""

import threading
from collections.abc import Callable
from http import HTTPStatus

from satlab.service.api.account_store import Accounts, User
from satlab.service.api.api_answers import ViewError
from satlab.service.api.counters import Counters
from satlab.service.api.limits import Throttle, peer_network
from satlab.service.api.passwords import BusyError, Caller, Rank

KNOWN_S = 7 * 24 * 3600.0
"""How long a peer, and an account at it, is known after a log-in or a request with a session, s."""
MAX_KNOWN = 10_000


class Logins:
    """Checks passwords. `clock` returns s since the epoch.

    A try counts before its password is hashed, for the account at this peer and for the peer. So
    tries from elsewhere never lock an account at this peer; nor do tries of other accounts at this
    peer, once it has been used here. Peers and accounts are known for `KNOWN_S` from a log-in, or a
    request with a session, and their passwords go first.
    """

    def __init__(self, accounts: Accounts, clock: Callable[[], float], counters: Counters) -> None:
        self._accounts, self._clock, self._counters = accounts, clock, counters
        self._lock = threading.Lock()
        self._by_account, self._by_peer, self._requests = Throttle(), Throttle(tries=20), Throttle()
        self._known: dict[str, float] = {}

    def authenticate(self, login: str, password: str, address: str) -> User:
        """Return the account of a login and password.

        Raises:
            ViewError: 401; 429 after too many tries; 503 while too many passwords are being
                checked.
        """
        peer = peer_network(address)
        account, now = f"{peer} {login[:64]}", self._clock()
        with self._lock:
            caller = Caller(peer, self._rank(now, peer, account))
            keys = [(self._by_account, account)]
            if caller.rank is not Rank.KNOWN_ACCOUNT:
                keys.append((self._by_peer, peer))
            wait_s = max(throttle.wait_s(now, key) for throttle, key in keys)
            if wait_s:
                self._counters.add("logins_refused", "limited")
                raise ViewError(
                    HTTPStatus.TOO_MANY_REQUESTS, f"Too many wrong logins, wait {wait_s:.0f} s"
                )
            for throttle, key in keys:
                throttle.count(now, key)
        try:
            user = self._accounts.check(login, password, caller)
        except BusyError as error:
            self._counters.add("logins_refused", "busy")
            with self._lock:
                for throttle, key in keys:
                    throttle.withdraw(now, key)
            raise ViewError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{error}, {error.hint}".capitalize()
            ) from error
        if user is None:
            self._counters.add("logins_refused", "wrong")
            raise ViewError(HTTPStatus.UNAUTHORIZED, "Wrong Credentials")
        with self._lock:
            self._by_account.forget(account)
            self._by_peer.withdraw(now, peer)
            self._know(now, peer, account)
        return user

    def is_session(self, token: str, address: str) -> bool:
        """Return whether a token is of a session; its account is then known at this peer."""
        user = self._accounts.session(token)
        if user is not None:
            peer = peer_network(address)
            with self._lock:
                self._know(self._clock(), peer, f"{peer} {user.login}")
        return user is not None

    def _rank(self, now: float, peer: str, account: str) -> Rank:
        for key, rank in ((account, Rank.KNOWN_ACCOUNT), (peer, Rank.KNOWN_PEER)):
            if now - self._known.get(key, -KNOWN_S) < KNOWN_S:
                return rank
        return Rank.STRANGER

    def _know(self, now: float, *keys: str) -> None:
        for key in keys:
            self._known.pop(key, None)
            self._known[key] = now
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def count_account_request(self, address: str) -> Caller:
        """Count a request for an account, and return the peer that makes it.

        Raises ViewError: 429 after too many of one peer.
        """
        peer, now = peer_network(address), self._clock()
        with self._lock:
            if self._requests.wait_s(now, peer):
                raise ViewError(
                    HTTPStatus.TOO_MANY_REQUESTS, "Too many account requests, wait a minute"
                )
            self._requests.count(now, peer)
            return Caller(peer, Rank.STRANGER)
