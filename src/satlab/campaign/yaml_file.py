# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML files of campaigns: bounded, checked whole, every fault with its place and remedy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from satlab.common import yaml_text
from satlab.common.errors import ConfigError, Fault

DOCUMENT = "docs/campaigns.md"
M = TypeVar("M", bound=BaseModel)


def load(path: Path, model: type[M], defaults: Mapping[str, Any]) -> M:
    """Read a file as a model. Raises ConfigError with every fault."""
    hint = f"{DOCUMENT} describes the file"
    try:
        content = yaml_text.read(path)
        if not isinstance(content, dict):
            raise ConfigError(f"{path} is not a mapping", hint=hint)
        return model.model_validate({**defaults, **content})
    except yaml_text.YamlError as error:
        raise ConfigError(str(error), hint=hint) from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint=hint) from error
    except ValidationError as error:
        faults = [_fault(path, model, detail) for detail in error.errors(include_url=False)]
        raise ConfigError(f"{path} is invalid", tuple(dict.fromkeys(faults))) from error


def _fault(path: Path, model: type[BaseModel], detail: Any) -> Fault:
    place = ".".join(str(part) for part in detail["loc"]) or "file"
    is_unknown = detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1
    remedy = f"known: {', '.join(model.model_fields)}" if is_unknown else DOCUMENT
    return Fault(f"{path}: {place}", detail["msg"].removeprefix("Value error, "), remedy)
