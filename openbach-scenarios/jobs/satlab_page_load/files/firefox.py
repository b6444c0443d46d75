# SPDX-License-Identifier: GPL-3.0-or-later
"""A fresh headless Firefox, driven over WebDriver BiDi (W3C) without a driver program.

Firefox cannot map single names to addresses: it resolves every name to the server. Most of the
prefs in `OFF` would request more than the page. The profile trusts the certificate authority of the
run beside Firefox's own.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import websocket
from page_target import Target
from selenium.common.exceptions import TimeoutException, WebDriverException

START_S = 60.0
WIDTH, HEIGHT = 1280, 1024
OFF = (
    "app.normandy.enabled",
    "browser.cache.disk.enable",
    "browser.safebrowsing.downloads.remote.enabled",
    "browser.safebrowsing.malware.enabled",
    "browser.safebrowsing.phishing.enabled",
    "browser.shell.checkDefaultBrowser",
    "datareporting.policy.dataSubmissionEnabled",
    "dom.security.https_first",
    "extensions.getAddons.cache.enabled",
    "extensions.update.enabled",
    "media.gmp-manager.updateEnabled",
    "network.captive-portal-service.enabled",
    "network.connectivity-service.enabled",
    # else a certificate authority of one's own switches HTTP/3 off
    "network.http.http3.disable_when_third_party_roots_found",
    "network.http.http3.fallback_to_h2_on_error",
    "network.http.happy_eyeballs_enabled",
    # else it goes offline where there is no default route, and drops connections when links change
    "network.manage-offline-status",
    "network.notify.changed",
    "network.prefetch-next",
    # times in steps of 0.02 ms, not 1 ms
    "privacy.reduceTimerPrecision",
    "toolkit.telemetry.enabled",
)


def preferences(target: Target) -> dict[str, bool | int | str]:
    """Return the prefs of a profile that loads only the page of `target`."""
    is_h3 = target.protocol == "h3"
    return {
        **dict.fromkeys(OFF, False),
        "app.update.disabledForTesting": True,
        "network.dns.disablePrefetch": True,
        "network.dns.forceResolve": str(target.server),
        "network.http.http3.alt-svc-mapping-for-testing": f"{target.host};h3=:443",
        # else TCP is tried beside QUIC after 100 ms
        "network.http.http3.backup_timer_delay": 1000 * 3600,
        "network.http.http3.enable": is_h3,
        "network.http.http3.force-use-alt-svc-mapping-for-testing": is_h3,
        # no connection is opened ahead of the navigation, whose handshake would not be in its times
        "network.http.speculative-parallel-limit": 0,
        "network.proxy.type": 0,
        "services.settings.server": "data:,#remote-settings-dummy/v1",
        "toolkit.telemetry.server": "",
    }


def write_profile(profile: Path, target: Target) -> None:
    """Make a profile; for h2 and h3 it trusts the run's certificate authority.

    Raises OSError, SubprocessError.
    """
    profile.mkdir()
    prefs = preferences(target).items()
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in prefs]
    (profile / "user.js").write_text("".join(lines), encoding="utf-8")
    if target.protocol != "h1":
        database = ["-d", f"sql:{profile}"]
        trust = ["-A", "-n", "satlab", "-t", "C,,", "-i", str(target.pki / "ca.crt")]
        for words in (["-N", "--empty-password"], trust):
            subprocess.run(["certutil", *words, *database], check=True, timeout=START_S)


class Firefox:
    """The methods of Selenium's driver that page loads use.

    Each method raises WebDriverException; `get` raises TimeoutException after `timeout_s`.
    """

    def __init__(self, program: str, profile: Path, target: Target, timeout_s: float) -> None:
        self._timeout_s, self._last = timeout_s, 0
        argv = [program, "--headless", "--no-remote", "--profile", str(profile)]
        argv += [f"--width={WIDTH}", f"--height={HEIGHT}", "--remote-debugging-port=0"]
        self._process = subprocess.Popen(
            [*argv, "about:blank"],
            # without it a release does not take services.settings.server from the prefs
            env=os.environ | {"HOME": str(profile), "MOZ_REMOTE_SETTINGS_DEVTOOLS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port = self._port(profile / "WebDriverBiDiServer.json")
        url = f"ws://127.0.0.1:{port}/session"
        try:
            self._socket = websocket.create_connection(url, timeout=START_S, suppress_origin=True)
        except (websocket.WebSocketException, OSError) as error:
            raise WebDriverException(f"firefox: {error!r}") from error
        self._ask("session.new", START_S, capabilities={})
        tree = self._ask("browsingContext.getTree", START_S)
        self._context = str(tree["contexts"][0]["context"])
        # The first load reads what Firefox knows of servers with HTTP/3. Until then it ignores the pref.
        self._ask("browsingContext.navigate", START_S, **self._page(f"http://localhost:{port}/"))

    def _port(self, file: Path) -> int:
        """Return the port that Firefox writes into its profile when it listens."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                return int(json.loads(file.read_text(encoding="utf-8"))["ws_port"])
            except (OSError, ValueError, KeyError):  # not there yet, or not whole
                if self._process.poll() is not None:
                    what = f"firefox ended with status {self._process.returncode}"
                    raise WebDriverException(what) from None
                if time.monotonic() >= deadline:
                    what = f"firefox did not listen within {START_S:g} s"
                    raise WebDriverException(what) from None
                time.sleep(0.02)

    def get(self, url: str) -> None:
        """Load a page up to its load event."""
        self._ask("browsingContext.navigate", self._timeout_s, **self._page(url))

    def execute_script(self, script: str, *arguments: object) -> Any:
        """Return what the body of a function returns."""
        given = json.dumps(arguments)
        return self._evaluate(f"JSON.stringify((function () {{{script}}}).apply(null, {given}))")

    def execute_async_script(self, script: str, *arguments: object) -> Any:
        """Return what the body of a function gives to its last argument."""
        given = json.dumps(arguments)
        return self._evaluate(
            f"new Promise(done => (function () {{{script}}}).apply(null,"
            f" [...{given}, value => done(JSON.stringify(value))]))"
        )

    def click(self, x: int, y: int) -> None:
        """Press and release the mouse at a place of the window."""
        moves: list[dict[str, Any]] = [{"type": "pointerMove", "x": x, "y": y}]
        moves += [{"type": f"pointer{what}", "button": 0} for what in ("Down", "Up")]
        mouse = {"type": "pointer", "id": "mouse", "actions": moves}
        self._ask("input.performActions", START_S, context=self._context, actions=[mouse])

    def _page(self, url: str) -> dict[str, str]:
        return {"context": self._context, "url": url, "wait": "complete"}

    def _evaluate(self, expression: str) -> Any:
        target = {"context": self._context}
        asked = {"expression": expression, "target": target, "awaitPromise": True}
        answer = self._ask("script.evaluate", START_S, **asked)
        if answer["type"] != "success":
            raise WebDriverException(str(answer["exceptionDetails"].get("text"))[:300])
        try:
            return json.loads(answer["result"].get("value", "null"))  # undefined has no value
        except (TypeError, ValueError, RecursionError) as error:  # the page has its own JSON
            raise WebDriverException(f"firefox: a script's value is no JSON: {error}") from error

    def _ask(self, method: str, within_s: float, **params: Any) -> Mapping[str, Any]:
        self._last += 1
        deadline = time.monotonic() + within_s
        try:
            self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
            while (left_s := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left_s)
                message = json.loads(self._socket.recv())
                if message.get("id") == self._last:
                    if message["type"] == "error":
                        raise WebDriverException(str(message["message"])[:300])
                    return dict(message["result"])
        except websocket.WebSocketTimeoutException:
            pass
        except (websocket.WebSocketException, OSError, ValueError, KeyError) as error:
            raise WebDriverException(f"firefox: {error!r}") from error
        raise TimeoutException(f"firefox: no answer to {method} within {within_s:g} s")
