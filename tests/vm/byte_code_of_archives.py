# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the byte code of what root's Python imports from archives. Guests of tests run it at each start of Python.

Ansible sends each task as an archive of sources, 50 modules that the guest compiles: about 0.07 s of CPU time a task.
"""

import _imp
import marshal
import os
import zipimport
from types import CodeType
from typing import Any

CACHE = "/var/cache/byte-code-of-archives"
_zipimport: Any = zipimport
_compile = _zipimport._compile_source


def _compiled(path: str, source: bytes) -> CodeType:
    """Compile a source, or read what was made of the same one."""
    kept = f"{CACHE}/{_imp.source_hash(len(source), source).hex()}"
    try:
        with open(kept, "rb") as file:  # noqa: PTH123 - pathlib costs more than it saves
            code: CodeType = marshal.load(file)  # noqa: S302 - root's own
            return code.replace(co_filename=path)
    except OSError:
        pass
    made: CodeType = _compile(path, source)
    fresh = f"{kept}.{os.getpid()}"
    os.makedirs(CACHE, mode=0o700, exist_ok=True)  # noqa: PTH103
    with open(fresh, "wb") as file:  # noqa: PTH123
        marshal.dump(made, file)
    os.replace(fresh, kept)  # noqa: PTH105
    return made


if os.geteuid() == 0:
    _zipimport._compile_source = _compiled
