# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML by libyaml where PyYAML has it: a tenth of the CPU time of the parser in Python.

Every command reads YAML.

What libyaml refuses, the parser in Python reads again: faults and their places are the same on
every host.
"""

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    FastLoader = yaml.SafeLoader
else:
    FastLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

DEEPEST = 100
"""Collections within each other that libyaml is given."""


def _suits(text: str | bytes, *, with_aliases: bool) -> bool:
    """Return whether libyaml may have a document. Deep nesting takes it a time that grows with the
    square of the depth; the parser in Python refuses that at once.
    """
    depth = 0
    for event in yaml.parse(text, Loader=FastLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST or (isinstance(event, yaml.AliasEvent) and not with_aliases):
            return False
    return True


def load(text: str | bytes) -> Any:
    """Return a document as plain data, as `yaml.safe_load` does, with the same errors."""
    try:
        if _suits(text, with_aliases=True):
            return yaml.load(text, FastLoader)  # noqa: S506 - safe
    except yaml.YAMLError:
        pass
    return yaml.safe_load(text)


def compose(text: str) -> yaml.Node | None:
    """Return the nodes of a document, each with its place in the text.

    Errors are those of `yaml.compose`.
    """
    try:
        return yaml.compose(text, Loader=FastLoader)
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)


class _UniqueKeys(yaml.constructor.SafeConstructor):
    """Part of a loader: refuses keys that stand twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _FastStrictLoader(_UniqueKeys, FastLoader):
    pass


class _StrictLoader(_UniqueKeys, yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_mark()
            raise yaml.constructor.ConstructorError(None, None, "aliases are not used here", mark)
        return super().compose_node(parent, index)


def load_strict(text: str) -> object:
    """Return a document without keys that stand twice and without aliases (which can grow without
    bound).

    Raises:
        yaml.YAMLError: it has one of them, or is not YAML.
    """
    try:
        if _suits(text, with_aliases=False):
            return yaml.load(text, _FastStrictLoader)  # noqa: S506 - safe
    except yaml.YAMLError:
        pass
    return yaml.load(text, _StrictLoader)  # noqa: S506 - safe
