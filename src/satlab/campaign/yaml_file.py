# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML files of campaigns: bounded, checked whole, every fault with its place and remedy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from satlab.common import did_you_mean, plain_words, yaml_text
from satlab.common.errors import ConfigError, Fault

DOCUMENT = "docs/campaigns.md"
M = TypeVar("M", bound=BaseModel)


def load(path: Path, model: type[M], defaults: Mapping[str, Any]) -> M:
    """Read a file as a model. Raises ConfigError with every fault."""
    hint = f"{DOCUMENT} describes the file"
    try:
        content = yaml_text.read(path)
        if not isinstance(content, dict):
            what = "is empty" if content is None else "is not a list of fields (NAME: VALUE)"
            raise ConfigError(f"{path} {what}", hint=hint)
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
    reason, remedy = plain_words.of_fault(detail)
    if is_unknown:
        remedy = did_you_mean.remedy(str(detail["loc"][0]), model.model_fields)
    return Fault(f"{path}: {place}", reason, remedy or DOCUMENT)
