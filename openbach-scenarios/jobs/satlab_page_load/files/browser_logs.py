# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs that Chromium writes of an observed load: its NetLog, and the TLS keys of its connections
(NSS key log format).

With the keys Wireshark decrypts captures of this load. The server's certificate is made for one
run.
"""

import sys
from pathlib import Path

import collect_agent
from selenium.webdriver import ChromeOptions

MOST_MB = 20
"""Of a NetLog, which Chromium itself bounds: it keeps the beginning and the last events."""
MOST_KEYS = 1 << 20
"""Bytes of a key log: a connection has five lines of less than 200 bytes."""
_NETLOG, _KEYS = "netlog.json", "tls_keys.txt"


def switch_on(options: ChromeOptions, folder: Path) -> None:
    """Let the browser write its logs below `folder`, in place of those of an earlier load."""
    for name in (_NETLOG, _KEYS):
        (folder / name).unlink(missing_ok=True)
    options.add_argument(f"--log-net-log={folder / _NETLOG}")
    options.add_argument(f"--net-log-max-size-mb={MOST_MB}")
    options.add_argument(f"--ssl-key-log-file={folder / _KEYS}")


def publish(folder: Path, url: str) -> None:
    """Store what the browser has written of the load of `url`; what is missing, empty or too large
    is named.
    """
    limits = {
        "netlog_json": (folder / _NETLOG, 2 * MOST_MB << 20),
        "tls_keys_txt": (folder / _KEYS, MOST_KEYS),
    }
    for name, (path, most) in limits.items():
        size = path.stat().st_size if path.is_file() else 0
        if 0 < size <= most:
            answer = collect_agent.store_files(collect_agent.now(), url, **{name: str(path)})
        else:
            answer = f"it has {size} bytes, from 1 to {most} are stored"
        if answer != "OK":
            print(f"{name} of the observed load is not stored: {answer}", file=sys.stderr)
