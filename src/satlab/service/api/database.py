# SPDX-License-Identifier: GPL-3.0-or-later
"""The SQLite file of the server: WAL mode, migrations, one process with several threads."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from satlab.common.errors import HostError

_MIGRATIONS = (
    """
    CREATE TABLE users (
        login TEXT PRIMARY KEY, password TEXT NOT NULL, role TEXT NOT NULL, active INTEGER NOT NULL,
        first_name TEXT NOT NULL DEFAULT '', last_name TEXT NOT NULL DEFAULT '', email TEXT NOT NULL DEFAULT ''
    ) STRICT;
    CREATE TABLE sessions (
        token_sha256 TEXT PRIMARY KEY, login TEXT NOT NULL REFERENCES users ON DELETE CASCADE, expires REAL NOT NULL
    ) STRICT;
    CREATE TABLE first_token (token_sha256 TEXT NOT NULL) STRICT;
    CREATE TABLE projects (
        name TEXT PRIMARY KEY, description TEXT NOT NULL, owners TEXT NOT NULL
    ) STRICT;
    CREATE TABLE entities (
        project TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, name TEXT NOT NULL, description TEXT NOT NULL,
        agent TEXT, PRIMARY KEY (project, name)
    ) STRICT;
    CREATE TABLE scenarios (
        project TEXT NOT NULL REFERENCES projects ON DELETE CASCADE, name TEXT NOT NULL, version INTEGER NOT NULL,
        document TEXT NOT NULL, created REAL NOT NULL, PRIMARY KEY (project, name, version)
    ) STRICT;
    CREATE TABLE favorites (
        login TEXT NOT NULL REFERENCES users ON DELETE CASCADE, project TEXT NOT NULL, scenario TEXT NOT NULL,
        PRIMARY KEY (login, project, scenario)
    ) STRICT;
    CREATE TABLE jobs (name TEXT PRIMARY KEY, folder TEXT NOT NULL) STRICT;
    CREATE TABLE uninstalled (job TEXT NOT NULL, agent TEXT NOT NULL, PRIMARY KEY (job, agent)) STRICT;
    CREATE TABLE instances (
        id INTEGER PRIMARY KEY, subs INTEGER NOT NULL, first_job INTEGER NOT NULL, jobs INTEGER NOT NULL,
        kind TEXT NOT NULL, project TEXT NOT NULL, scenario TEXT NOT NULL, user TEXT NOT NULL,
        request TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '', launched REAL NOT NULL,
        stopped REAL, stop_asked INTEGER NOT NULL DEFAULT 0, run_id TEXT, progress TEXT
    ) STRICT;
    CREATE INDEX instances_by_status ON instances (status);
    CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER NOT NULL) STRICT;
    INSERT INTO counters VALUES ('scenario_instance', 1), ('job_instance', 1);
    """,
    """
    CREATE TABLE marks (
        instance INTEGER PRIMARY KEY REFERENCES instances ON DELETE CASCADE, note TEXT NOT NULL DEFAULT '',
        pinned INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    """,
)
"""Each brings the file from version N to N + 1 (PRAGMA user_version).

A released one is never edited.
"""


class Store:
    """The database. All access is by `transaction`, which one thread at a time holds."""

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises HostError if a later version wrote it, or it cannot be opened.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            for pragma in (
                "journal_mode = WAL",
                "synchronous = FULL",
                "foreign_keys = ON",
                "busy_timeout = 5000",
            ):
                self._connection.execute(f"PRAGMA {pragma}")
            self._migrate(path)
        except sqlite3.Error as error:
            raise HostError(
                f"{path}: {error}", "check permissions and free space, or choose another --state"
            ) from error

    def _migrate(self, path: Path) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > len(_MIGRATIONS):
            raise HostError(
                f"{path}: was written by a later satlab",
                "use that version, or choose another --state",
            )
        for number, script in enumerate(_MIGRATIONS[version:], version + 1):
            self._connection.executescript(
                f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;"
            )

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All changes are made, or none. A nested transaction is part of the outer one."""
        with self._lock:
            if self._connection.in_transaction:
                yield self._connection
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if (
                    self._connection.in_transaction
                ):  # SQLite itself may have rolled back, on a full disk
                    self._connection.execute("ROLLBACK")
                raise

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self.transaction() as connection:
            return connection.execute(sql, values).fetchall()

    def row(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """Return the first row, or None."""
        rows = self.rows(sql, *values)
        return rows[0] if rows else None

    def write(self, sql: str, *values: Any) -> int:
        """Return the number of changed rows."""
        with self.transaction() as connection:
            return connection.execute(sql, values).rowcount

    def reserve(self, counter: str, numbers: int) -> int:
        """Reserve `numbers` consecutive ids, which are never reserved again; return the first."""
        with self.transaction() as connection:
            sql = "UPDATE counters SET next = next + ? WHERE name = ? RETURNING next"
            (after,) = connection.execute(sql, (numbers, counter)).fetchone()
            return int(after) - numbers

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def dumps(value: Any) -> str:
    """Return JSON for a column. Raises ValueError for NaN and infinity."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
