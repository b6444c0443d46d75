# SPDX-License-Identifier: GPL-3.0-or-later
"""Sets accounts up for the root process: `python -m satlab.service.account_setup STATE`.

It runs as the API's user, since root opens none of the API's files. Stdin holds a JSON object:
`{"public": bool}` requests the token of the first log-in, `{"login", "role", "password"}` an
account. Stdout gets a JSON object: `token` (may be empty), or `error` and `hint`; the exit status
is then that of the error.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from satlab.common.errors import ConfigError, ExitStatus, SatlabError
from satlab.service.api.account_store import Accounts, Role, User
from satlab.service.api.database import Store
from satlab.service.api.settings import Settings


def set_up(state: Path, request: dict[str, Any]) -> str:
    """Return the token of the first log-in, '' if an account has a password.

    Raises:
        ConfigError: login or password are invalid, or a public service has no account.
        HostError: the accounts cannot be opened.
    """
    settings = Settings(state, frozenset())
    store = Store(settings.database)
    try:
        accounts = Accounts(store, time.time, settings.session_s)
        if "login" in request:
            accounts.put(User(request["login"], Role[request["role"]]), request["password"])
            return ""
        if accounts.has_password():
            return ""
        if request["public"]:
            raise ConfigError(
                "--public: there is no account",
                hint="create one: satlab serve --set-password LOGIN",
            )
        return accounts.first_token()
    finally:
        store.close()


def main() -> int:
    try:
        result, status = {"token": set_up(Path(sys.argv[1]), json.load(sys.stdin))}, ExitStatus.OK
    except SatlabError as error:
        result, status = {"error": str(error), "hint": error.hint}, error.status
    json.dump(result, sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main())
