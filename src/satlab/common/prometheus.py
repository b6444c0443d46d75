# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus' text exposition format 0.0.4."""

from collections.abc import Mapping
from typing import Literal

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def family(
    name: str, text: str, kind: Literal["counter", "gauge"], values: Mapping[str, float]
) -> str:
    """Return a metric with its values by labels, `name="value",...`, '' for none; without values
    ''.
    """
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [
        f"{name}{f'{{{labels}}}' if labels else ''} {value!r}" for labels, value in values.items()
    ]
    return "\n".join(lines) + "\n" if values else ""
