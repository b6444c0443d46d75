# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw files of a run to records.

Reads run folders only; knows nothing of the lab that filled them. Each name is loaded at its first
use, because polars takes 0.2 s to load and models of raw files do not need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collect.observed_page_loads import PageObservation as PageObservation
    from collect.observed_page_loads import har as har
    from collect.page_loads import HOST_METRICS as HOST_METRICS
    from collect.page_loads import PageLoad as PageLoad
    from collect.pep import NO_PEP as NO_PEP
    from collect.raw_digests import digests as digests
    from collect.records_table import SCHEMA as SCHEMA
    from collect.records_table import Table as Table
    from collect.records_table import summaries as summaries
    from collect.run_manifest import EnforcedBy as EnforcedBy
    from collect.run_manifest import Manifest as Manifest
    from collect.run_records import Collected as Collected
    from collect.run_records import RunFolderError as RunFolderError
    from collect.run_records import Stored as Stored
    from collect.run_records import StoredLoad as StoredLoad
    from collect.run_records import StoredObservation as StoredObservation
    from collect.run_records import collect as collect
    from collect.run_records import gather as gather
    from collect.run_records import manifest as manifest
    from collect.run_records import stored as stored
    from collect.run_records import verify as verify

_NAMES = {
    "raw_digests": ("digests",),
    "observed_page_loads": ("PageObservation", "har"),
    "page_loads": ("HOST_METRICS", "PageLoad"),
    "pep": ("NO_PEP",),
    "run_records": (
        "Collected",
        "RunFolderError",
        "Stored",
        "StoredLoad",
        "StoredObservation",
        "collect",
        "gather",
        "manifest",
        "stored",
        "verify",
    ),
    "run_manifest": ("EnforcedBy", "Manifest"),
    "records_table": ("SCHEMA", "Table", "summaries"),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"collect.{module}"), name)
    raise AttributeError(f"module 'collect' has no attribute {name!r}")
