# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON documents as nodes that know their place in the file, so that every fault can be named at
once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from satlab.common.errors import Fault

MAX_BYTES = 1 << 20
"""A scenario is a page or two; anything larger is not one."""

_NAME = re.compile(r"(?!\.)[A-Za-z0-9_.-]{1,64}", re.ASCII)
NAME_RULE = "use 1 to 64 letters, digits, '_', '-' and '.', not starting with a dot"


_TITLE = re.compile(r"(?![. ])[A-Za-z0-9_. -]{1,64}(?<! )", re.ASCII)
TITLE_RULE = (
    "use 1 to 64 letters, digits, '_', '-', '.' and spaces, not starting with a dot or a space"
)


def is_name(text: str) -> bool:
    """Return whether a name is safe as part of a path (jobs, statistics)."""
    return _NAME.fullmatch(text) is not None


def is_title(text: str) -> bool:
    """Return whether the name of a scenario is safe as part of a path; OpenBACH's own have spaces."""
    return _TITLE.fullmatch(text) is not None


@dataclass(frozen=True)
class Node:
    """A JSON value, its place, and the list that collects faults of the whole document.

    The readers (`mapping`, `array`, `text`, ...) return a neutral value and note a fault when the
    type is wrong, so that reading continues to the next fault. `warnings`: where to note what
    OpenBACH passes over; None: it is a fault.
    """

    value: Any
    head: str
    faults: list[Fault]
    path: tuple[str, ...] = ()
    warnings: list[Fault] | None = None

    def child(self, key: str | int, value: Any) -> Node:
        """Return the node of an entry below this one."""
        return replace(self, value=value, path=(*self.path, str(key)))

    def fault(self, reason: str, remedy: str = "", *below: str) -> None:
        """Note a fault here, or at an entry below that need not exist."""
        self.faults.append(self._note(reason, remedy, below))

    def doubt(self, reason: str, remedy: str = "", *below: str) -> None:
        """Note what OpenBACH accepts: a fault, or a warning where there is a list of warnings."""
        notes = self.faults if self.warnings is None else self.warnings
        notes.append(self._note(reason, remedy, below))

    def _note(self, reason: str, remedy: str, below: tuple[str, ...]) -> Fault:
        path = ".".join((*self.path, *below))
        return Fault(f"{self.head}: {path}" if path else self.head, reason, remedy)

    def mapping(self) -> dict[str, Node]:
        """Read an object; {} after a fault."""
        if isinstance(self.value, dict):
            return {key: self.child(key, value) for key, value in self.value.items()}
        self._wrong("an object")
        return {}

    def array(self) -> list[Node]:
        """Read a list; [] after a fault."""
        if isinstance(self.value, list):
            return [self.child(position, value) for position, value in enumerate(self.value)]
        self._wrong("a list")
        return []

    def text(self) -> str:
        """Read a string; "" after a fault."""
        if isinstance(self.value, str):
            return self.value
        self._wrong("a string")
        return ""

    def integer(self) -> int | None:
        """Read an integer, not a numeric string or boolean; None after a fault."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return self.value
        self._wrong("an integer")
        return None

    def only(self, *known: str) -> dict[str, Node]:
        """Read an object whose keys are all known; unknown ones are in doubt."""
        entries = self.mapping()
        for key in [key for key in entries if key not in known]:
            entries[key].doubt("unknown key", f"known keys: {', '.join(known)}")
        return {key: node for key, node in entries.items() if key in known}

    def _wrong(self, expected: str) -> None:
        self.fault(f"{json.dumps(self.value)[:60]} is not {expected}")


def read_json(path: Path, faults: list[Fault], warnings: list[Fault] | None = None) -> Node | None:
    """Read a JSON file strictly: UTF-8, at most 1 MiB, no key twice, no NaN; None after a fault
    that ends it.
    """
    place = str(path)

    def pairs(entries: list[tuple[str, Any]]) -> dict[str, Any]:
        for position, (key, _) in enumerate(entries):
            if any(key == earlier for earlier, _ in entries[:position]):
                faults.append(
                    Fault(
                        place, f"the key {key!r} stands twice in one object", "remove one of them"
                    )
                )
        return dict(entries)

    def constant(text: str) -> None:
        faults.append(Fault(place, f"{text} is not JSON", "write a number"))

    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            faults.append(Fault(place, f"is larger than {MAX_BYTES} bytes"))
            return None
        if not data.strip():
            faults.append(Fault(place, "is empty"))
            return None
        value = json.loads(data.decode(), object_pairs_hook=pairs, parse_constant=constant)
    except OSError as error:
        faults.append(Fault(place, f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        faults.append(Fault(place, f"is not UTF-8 at byte {error.start}"))
    except json.JSONDecodeError as error:
        faults.append(Fault(f"{place}:{error.lineno}:{error.colno}", f"is not JSON: {error.msg}"))
    except RecursionError:
        faults.append(Fault(place, "is nested too deeply"))
    except ValueError as error:  # an integer of thousands of digits
        faults.append(Fault(place, f"is not JSON: {error}"))
    else:
        return Node(value, place, faults, warnings=warnings)
    return None
