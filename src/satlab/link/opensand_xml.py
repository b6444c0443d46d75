# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes OpenSAND's XML, and makes the infrastructure files of a lab."""

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

from satlab.common.errors import ConfigError
from satlab.link.opensand import Entity, GroundEntity

_HEADER = '<?xml version="1.0" encoding="UTF-8"?>\n'


def read(file: Path) -> ET.Element:
    """Return `root` of a file that satlink has already read: satlink refuses document types and
    entities.

    Raises:
        ConfigError: the file has a document type after all, or cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
        if "<!DOCTYPE" in text:
            raise ConfigError(f"{file}: has a document type")
        root = ET.fromstring(text).find("root")  # noqa: S314 - no document type
    except (OSError, UnicodeDecodeError, ET.ParseError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    if root is None:
        raise ConfigError(f"{file}: has no <root>")
    return root


def write(root: ET.Element, file: Path) -> None:
    """Write `root` as a file of OpenSAND 8.2, elements in their order."""
    model = ET.Element("model", {"version": "1.0.0"})
    model.append(root)
    ET.indent(model)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{_HEADER}{ET.tostring(model, encoding='unicode')}\n", encoding="utf-8")


def put(parent: ET.Element, path: str, text: str, order: Iterable[str] = ()) -> None:
    """Write the text of the leaf at `path` below `parent`. Missing elements are made, in `order`
    among siblings.
    """
    for name in path.split("/"):
        found = parent.find(name)
        if found is None:
            found = ET.Element(name)
            before = (
                list(order)[: list(order).index(name)]
                if name in order
                else [child.tag for child in parent]
            )
            parent.insert(sum(child.tag in before for child in parent), found)
        parent = found
    parent.text = text


_BEFORE_STORAGE = ("entity", "logs")
_STORAGE = (
    "enable_local",
    "path_local",
    "enable_collector",
    "collector_address",
    "collector_logs",
    "collector_probes",
)


def for_lab(
    source: Path, entity: Entity, records: Path, target: Path, probes_port: int | None = None
) -> None:
    """Write the infrastructure file of an entity for one lab: its logs and probes go to `records`.

    With `probes_port` probes also go to that port of 127.0.0.1, logs to the next one; else to the
    profile's collector. A further terminal that shares the file of another one gets a section of
    its own.
    """
    root = read(source)
    storage = root.find("storage")
    if storage is None:
        storage = ET.Element("storage")
        root.insert(sum(child.tag in _BEFORE_STORAGE for child in root), storage)
    put(storage, "enable_local", "true", _STORAGE)
    put(storage, "path_local", str(records), _STORAGE)
    if probes_port is not None:
        put(storage, "enable_collector", "true", _STORAGE)
        put(storage, "collector_address", "127.0.0.1", _STORAGE)
        put(storage, "collector_logs", str(probes_port + 1), _STORAGE)
        put(storage, "collector_probes", str(probes_port), _STORAGE)
    if isinstance(entity, GroundEntity) and root.findtext("entity/entity_type") == "Terminal":
        put(root, "entity/entity_st/entity_id", str(entity.entity_id))
        put(root, "entity/entity_st/emu_address", str(entity.emu_address))
        put(root, "entity/entity_st/tap_iface", entity.tap_iface)
        put(root, "entity/entity_st/mac_address", entity.mac_address)
    write(root, target)
