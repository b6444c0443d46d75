# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for OpenBACH's controller as its installer leaves it: version and login routes, and
its known password.
"""

import http.server
import json
import secrets
from typing import Any

PORT = 8000
ACCOUNT = {"login": "openbach", "password": "openbach"}
SESSION = secrets.token_hex(16)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as sections 11.1 and 11.2 of OpenBACH's API are known to."""

    def do_GET(self) -> None:
        """Return the version."""
        self._answer(200 if self.path == "/version/" else 404, {"openbach_version": "stand-in"})

    def do_POST(self) -> None:
        """Log in."""
        asked = self._body()
        good = self.path == "/login/" and all(
            asked.get(key) == value for key, value in ACCOUNT.items()
        )
        self._answer(
            200 if good else 401, {"username": "openbach"} if good else {"msg": "Wrong Credentials"}
        )

    def do_PUT(self) -> None:
        """Change the profile of who is logged in."""
        asked = self._body()
        if f"sessionid={SESSION}" not in (self.headers["cookie"] or ""):
            self._answer(403, {"msg": "Not logged in"})
            return
        ACCOUNT["password"] = asked["password"]
        self._answer(200, {"username": asked["login"], "email": asked["email"]})

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["content-length"])))

    def _answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        if status == 200:
            self.send_header("set-cookie", f"sessionid={SESSION}; HttpOnly; Path=/")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("", PORT), Handler).serve_forever()
