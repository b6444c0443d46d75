# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives in memory: of jobs as users upload them, of files that a controller stored."""

import io
import tarfile
from collections.abc import Mapping

_DESCRIPTOR = b"""
general: {name: extra, description: More, job_version: '1.0', keywords: [more], persistent: no}
platform_configuration:
  ansible_system: Debian
  ansible_distribution: Debian
  command: /opt/openbach/virtualenv/bin/python3 /opt/openbach/agent/jobs/extra/extra.py
  supported_platforms: [{ansible_distribution_release: bookworm}]
arguments: {%s}
statistics: []
"""


def descriptor(arguments: bytes) -> bytes:
    """Return the descriptor of a job `extra` with these arguments, as YAML."""
    return _DESCRIPTOR % arguments


def archive(files: Mapping[str, bytes], *special: tarfile.TarInfo) -> bytes:
    """Pack files by name, and members without content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in special:
            tar.addfile(member)
    return out.getvalue()
