# SPDX-License-Identifier: GPL-3.0-or-later
"""Accounts from the command line: `python -m satlab.serve.setup STATE`, as the user of the API process.

Root opens none of the API's files. Stdin holds a JSON object: `{"public": bool}` asks for the token of the first
login, `{"login", "role", "password"}` for an account. Stdout gets a JSON object: `token` (may be empty), or `error` and
`hint`, then with the error's exit status.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from satlab.common.errors import ConfigError, ExitStatus, SatlabError
from satlab.serve.accounts import Accounts, Role, User
from satlab.serve.settings import Settings
from satlab.serve.store import Store


def answer(state: Path, request: dict[str, Any]) -> str:
    """Carry a request out; give the token, empty where none is needed.

    Raises:
        ConfigError: login or password are none, or a public service has no account.
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
            raise ConfigError("--public: there is no account", hint="make one: satlab serve --set-password LOGIN")
        return accounts.first_token()
    finally:
        store.close()


def main() -> int:
    """Answer what stands on stdin."""
    try:
        said, status = {"token": answer(Path(sys.argv[1]), json.load(sys.stdin))}, ExitStatus.OK
    except SatlabError as error:
        said, status = {"error": str(error), "hint": error.hint}, error.status
    json.dump(said, sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main())
