# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests change in the Python of their guests."""

import shutil
from pathlib import Path

MODULE = Path(__file__).with_name("byte_code_of_archives.py")


def keep_byte_code(packages: Path) -> None:
    """Let a guest compile once what Ansible sends with each task. `packages`: a folder on the guest's module path."""
    shutil.copy(MODULE, packages)
    (packages / MODULE.with_suffix(".pth").name).write_text(f"import {MODULE.stem}\n")
