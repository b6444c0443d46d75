# SPDX-License-Identifier: GPL-3.0-or-later
"""Models and schema of link.json against each other, value by value."""

import json
from typing import Any

import pytest

from satlab.common.paths import SCHEMAS
from satlab.link.config import LinkConfig
from satlab.link.plan import LinkPlan
from satlab.link.schema_limits import limits, link_schema, variants

LIMITS = {f"{which}{what}" for which in ("min", "max") for what in ("imum", "Length", "Items")}
LIMITS |= {"exclusiveMinimum", "exclusiveMaximum"}
NARROWER = ("loss.model", "loss.period_ms", "loss.step_ms", "probes.netns")
"""Values of which satlab takes fewer than satlink: no needless word, no time of 0, no other
namespace.
"""


def values(document: dict[str, Any]) -> dict[str, set[str]]:
    """Return what each value of a schema may be, by its path: words, or a type with its limits;
    null aside.
    """
    found: dict[str, set[str]] = {}

    def walk(node: dict[str, Any], path: str) -> None:
        for each in variants(node, document):
            words = [each["const"]] if "const" in each else each.get("enum", [])
            rules = {keyword: each[keyword] for keyword in LIMITS & each.keys()}
            kinds = each.get("type", []) if not words else []
            kinds = [
                kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"
            ]
            said = [json.dumps({"type": kind, **rules}, sort_keys=True) for kind in kinds]
            found.setdefault(path, set()).update(map(str, words), said)
            for name, child in each.get("properties", {}).items():
                walk(child, f"{path}.{name}".lstrip("."))

    walk(document, "")
    return found


def test_link_config_has_the_limits_of_the_schema() -> None:
    model, schema = values(LinkConfig.model_json_schema(by_alias=True)), values(link_schema())
    only_satlink = {path for path in schema if path.split(".")[0] == "emulation"}
    assert schema.keys() - model.keys() == only_satlink
    assert model.keys() <= schema.keys()
    assert {
        path for path in model if model[path] != schema[path] and not path.endswith(NARROWER)
    } == set()


def test_link_plan_has_the_values_of_the_schema() -> None:
    schema = json.loads((SCHEMAS / "link-plan.schema.json").read_text())
    assert values(LinkPlan.model_json_schema(by_alias=True)) == values(schema)


def test_limits_of_no_value_are_refused() -> None:
    with pytest.raises(KeyError):
        limits("forward.queue.litres")
