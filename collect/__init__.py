# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw files of a run to records. Reads run folders only; knows nothing of the lab that filled them."""

from collect.integrity import digests
from collect.pages import HOST_METRICS, PageLoad
from collect.pep import NONE as NO_PEP
from collect.records import SCHEMA, Record, summaries
from collect.run_folder import (
    Manifest,
    RunFolderError,
    StoredLoad,
    collect,
    gather,
    legs,
    manifest,
    stored_loads,
    verify,
)

__all__ = [
    "HOST_METRICS",
    "NO_PEP",
    "SCHEMA",
    "Manifest",
    "PageLoad",
    "Record",
    "RunFolderError",
    "StoredLoad",
    "collect",
    "digests",
    "gather",
    "legs",
    "manifest",
    "stored_loads",
    "summaries",
    "verify",
]
