# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of the values in link.json, read from `schemas/link-config.schema.json`."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import Field

from satlab.common.paths import SCHEMAS

Node = dict[str, Any]
_KEYWORDS = {
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "exclusiveMaximum": "lt",
    "minLength": "min_length",
    "maxLength": "max_length",
    "maxItems": "max_length",
}
"""JSON schema's keyword -> pydantic's."""
_VARIANTS = ("oneOf", "anyOf", "allOf", "prefixItems")


@cache
def link_schema() -> Node:
    """Return the schema of link.json."""
    document: Node = json.loads((SCHEMAS / "link-config.schema.json").read_text(encoding="utf-8"))
    return document


def limits(path: str) -> Any:
    """Return pydantic's field with the limits of the value at `path`, e.g.

    `forward.queue.bdp`; lists add no part.

    Raises:
        KeyError: there is no such value, or it has other limits in one place than in another.
    """
    nodes = list(_at(link_schema(), path.split("."), link_schema()))
    found = {json.dumps(each, sort_keys=True) for node in nodes if (each := _limits(node))}
    if not nodes or len(found) > 1:
        raise KeyError(
            f"schemas/link-config.schema.json: {path}: {len(found)} limits of {len(nodes)} values"
        )
    return Field(**json.loads(next(iter(found), "{}")))


def variants(node: Node, document: Node) -> Iterator[Node]:
    """Yield the alternatives of a schema's node: references resolved, variants and items of lists
    one by one.
    """
    if "$ref" in node:
        target: Node = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target | {key: value for key, value in node.items() if key != "$ref"}
    yield node
    for each in (one for keyword in _VARIANTS for one in node.get(keyword, ())):
        yield from variants(each, document)
    if "items" in node:
        yield from variants(node["items"], document)


def _at(node: Node, names: list[str], document: Node) -> Iterator[Node]:
    for each in variants(node, document):
        if not names:
            yield each
        elif names[0] in each.get("properties", {}):
            yield from _at(each["properties"][names[0]], names[1:], document)


def _limits(node: Node) -> Node:
    return {_KEYWORDS[keyword]: value for keyword, value in node.items() if keyword in _KEYWORDS}
