# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes on scenario instances, and pins that keep instances on top of the list."""

from dataclasses import dataclass

from satlab.common.errors import ConfigError
from satlab.service.api.database import Store

MAX_NOTE = 500
"""Longest note, characters."""
MAX_PINNED = 100
"""Largest number of pinned instances. The queue never forgets a pinned one."""


@dataclass(frozen=True)
class RunNote:
    """The note on an instance, and whether it is pinned."""

    text: str = ""
    pinned: bool = False


class RunNotes:
    """Notes by the id of their instance; they are removed with it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> dict[int, RunNote]:
        rows = self._store.rows("SELECT * FROM marks")
        return {row["instance"]: RunNote(row["note"], bool(row["pinned"])) for row in rows}

    def of(self, instance: int) -> RunNote:
        row = self._store.row("SELECT * FROM marks WHERE instance = ?", instance)
        return RunNote(row["note"], bool(row["pinned"])) if row else RunNote()

    def set_note(self, instance: int, note: str) -> None:
        """Set a note; '' removes it. Raises ConfigError if the note is too long."""
        text = note.strip()
        if len(text) > MAX_NOTE:
            raise ConfigError(f"a note has at most {MAX_NOTE} characters, this one has {len(text)}")
        sql = (
            "INSERT INTO marks (instance, note) VALUES (?, ?) ON CONFLICT (instance) DO UPDATE SET"
            " note = excluded.note"
        )
        self._store.write(sql, instance, text)

    def pin(self, instance: int) -> None:
        """Pin an instance. Raises ConfigError if too many are pinned."""
        with self._store.transaction() as connection:
            (count,) = connection.execute(
                "SELECT COUNT(*) FROM marks WHERE pinned = 1 AND instance != ?", (instance,)
            ).fetchone()
            if count >= MAX_PINNED:
                raise ConfigError(f"{count} runs are pinned already", hint="unpin some")
            sql = (
                "INSERT INTO marks (instance, pinned) VALUES (?, 1) ON CONFLICT (instance) DO"
                " UPDATE SET pinned = 1"
            )
            connection.execute(sql, (instance,))

    def unpin(self, instance: int) -> None:
        self._store.write("UPDATE marks SET pinned = 0 WHERE instance = ?", instance)
