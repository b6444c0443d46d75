# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON as RFC 8259 defines it: no NaN, no infinity, and text that UTF-8 can encode."""

import json
import math
from typing import Any, NoReturn


def loads(data: bytes | str) -> Any:
    """Parse JSON. Raises ValueError, also for nesting that is too deep."""
    try:
        value = json.loads(data, parse_constant=_refuse, parse_float=_finite)
        json.dumps(
            value, ensure_ascii=False
        ).encode()  # a lone surrogate raises UnicodeEncodeError, a ValueError
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is out of range")
    return value
