# SPDX-License-Identifier: GPL-3.0-or-later
"""T1 of the threat table: what a stolen password hash costs to guess.

Other tests have cheaper hashes.
"""

import time
from pathlib import Path

from satlab.service.api.account_store import Accounts, Role, User
from satlab.service.api.database import Store

PASSWORD = "correct horse battery"  # noqa: S105


def test_t01_a_stored_password_costs_what_owasp_asks_for(tmp_path: Path) -> None:
    """scrypt with N=2^15, r=8, p=3: 32 MiB and three passes, a row of OWASP's password storage
    table.
    """
    store = Store(tmp_path / "database")
    accounts = Accounts(store, time.time, 60)
    for login in ("one", "other"):
        accounts.put(User(login, Role.VIEWER), PASSWORD)
    hashes = [row["password"] for row in store.rows("SELECT password FROM users")]
    assert len(set(hashes)) == 2, "each has a salt of its own"
    for text in hashes:
        kind, n, r, p, salt, key = text.split("$")
        assert (kind, int(n), int(r), int(p)) == ("scrypt", 1 << 15, 8, 3)
        assert (len(salt), len(key)) == (32, 64)
    assert accounts.check("one", PASSWORD) is not None
    assert accounts.check("one", f"{PASSWORD}.") is None
    store.close()
