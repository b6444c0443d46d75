# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a page of `web-targets/` from a source: a complete folder, or none."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from satlab.common.errors import ConfigError, Fault, HostError
from satlab.common.paths import WEB_TARGETS
from satlab.lab import web_target, web_target_files
from satlab.lab.web_target import Page, WebObject
from satlab.run.page_import import har, wget_folder
from satlab.run.page_import.page_objects import MOST_BYTES, MOST_DOMAINS, MOST_OBJECTS, Found


@dataclass(frozen=True)
class Imported:
    """An imported page. `notes` has a line for everything that was left out or changed."""

    page: Page
    notes: tuple[str, ...]


def run(source: Path, name: str, document: PurePosixPath, targets: Path = WEB_TARGETS) -> Imported:
    """Import a HAR file, or the folder of a site with its `document`, as the page `name`.

    Raises:
        ConfigError: the source is not usable (with every fault), or there is such a page.
        HostError: the folder cannot be written.
    """
    web_target.check_name(name)
    if (targets / name).exists():
        raise ConfigError(
            f"page {name}: is there already",
            hint=f"choose another name, or remove {targets / name}",
        )
    found = wget_folder.read(source, document) if source.is_dir() else har.read(source)
    found.faults += _limits(found, source)
    found.refuse(source)
    objects, notes = _objects(found, f"{name}.satlab.test")
    kind = "folder of a site" if source.is_dir() else "HAR file"
    taken = "types, sizes, domains and order alone; every byte is generated"
    texts = {
        "page.yml": web_target_files.page_yml(
            name, f"Imported page {name}", f"imported from a {kind}: {taken}", objects
        ),
        "manifest.csv": web_target_files.manifest_csv(objects),
    }
    with _folder(targets) as scratch:
        (scratch / name).mkdir()
        for file, text in texts.items():
            (scratch / name / file).write_text(text, encoding="utf-8")
        page = web_target.load(name, scratch)
        (scratch / name).rename(targets / name)
    return Imported(page, tuple(notes))


@contextlib.contextmanager
def _folder(targets: Path) -> Iterator[Path]:
    """Yield a folder on the file system of the pages that is removed at the end."""
    scratch = None
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".import-", dir=targets))
        yield scratch
    except OSError as error:
        raise HostError(
            f"{targets}: {error.strerror}", "run as a user who can write there"
        ) from error
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def _limits(found: Found, source: Path) -> list[Fault]:
    """Return each limit that the page exceeds."""
    size = sum(item.size_bytes for item in found.items)
    domains = len({item.domain for item in found.items})
    objects = len(found.items)
    measured = (
        (objects, MOST_OBJECTS, "objects"),
        (size, MOST_BYTES, "bytes"),
        (domains, MOST_DOMAINS, "domains"),
    )
    return [
        Fault(str(source), f"has {value} {what}, a page has at most {most}", "remove entries")
        for value, most, what in measured
        if value > most
    ]


def _objects(found: Found, host: str) -> tuple[list[WebObject], list[str]]:
    """Return the objects of the page, and notes of what differs from the source."""
    own = found.items[0].domain
    objects = [
        web_target_files.made(
            order,
            item.loaded_as,
            item.size_bytes,
            host="" if item.domain == own else item.domain,
            is_compressed=item.is_compressed,
        )
        for order, item in enumerate(found.items, start=1)
    ]
    notes = [f"left out: {count} {reason}" for reason, count in sorted(found.left_out.items())]
    least = web_target.markup_bytes(objects, host)
    if objects[0].size_bytes < least:
        objects[0] = web_target_files.made(1, "document", least)
        notes.append(
            f"the document has {least} bytes in place of {found.items[0].size_bytes}: it names all"
            " objects"
        )
    enlarged = sum(
        o.size_bytes != item.size_bytes
        for o, item in zip(objects[1:], found.items[1:], strict=True)
    )
    if enlarged:
        notes.append(f"enlarged to the least size of their type: {enlarged}")
    return objects, notes
