# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for Grafana: shows, to its administrator, the dashboards that it was provisioned with."""

import base64
import http.server
import json
import os
import re
from pathlib import Path

PROVISIONING = Path("/etc/grafana/provisioning")


def dashboards() -> dict[str, str]:
    """Return the provisioned dashboards by uid; every data source that they name must be
    provisioned, too.
    """
    folders = re.findall(r"path: (\S+)", (PROVISIONING / "dashboards/satlab.yml").read_text())
    sources = re.findall(r"uid: (\S+)", (PROVISIONING / "datasources/satlab.yml").read_text())
    texts = [file.read_text() for folder in folders for file in Path(folder).glob("*.json")]
    return {
        json.loads(text)["uid"]: text
        for text in texts
        if set(_sources(json.loads(text))) <= set(sources)
    }


def _sources(value: object) -> list[str]:
    if isinstance(value, list):
        return [name for each in value for name in _sources(each)]
    if not isinstance(value, dict):
        return []
    own = [value["uid"]] if value.get("type") == "influxdb" and "uid" in value else []
    return own + [name for each in value.values() for name in _sources(each)]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers `/api/dashboards/uid/UID` to the administrator."""

    def do_GET(self) -> None:
        """Return a dashboard."""
        password = Path(os.environ["GF_SECURITY_ADMIN_PASSWORD__FILE"]).read_text()
        expected = "Basic " + base64.b64encode(f"admin:{password}".encode()).decode()
        found = dashboards().get(self.path.removeprefix("/api/dashboards/uid/"))
        status = 401 if self.headers["authorization"] != expected else 200 if found else 404
        self.send_response(status)
        self.end_headers()
        self.wfile.write((found or "").encode() if status == 200 else b"")


if __name__ == "__main__":
    place = os.environ["GF_SERVER_HTTP_ADDR"], int(os.environ["GF_SERVER_HTTP_PORT"])
    http.server.ThreadingHTTPServer(place, Handler).serve_forever()
