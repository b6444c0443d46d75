# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw files of a run to records.

Reads run folders only; knows nothing of the lab that filled them.
"""

from collect.integrity import digests
from collect.observations import PageObservation, har
from collect.pages import HOST_METRICS, PageLoad
from collect.pep import NONE as NO_PEP
from collect.records import SCHEMA, Record, Table, summaries
from collect.run_folder import (
    Collected,
    EnforcedBy,
    Manifest,
    RunFolderError,
    Stored,
    StoredLoad,
    StoredObservation,
    collect,
    gather,
    manifest,
    stored,
    verify,
)

__all__ = [
    "HOST_METRICS",
    "NO_PEP",
    "SCHEMA",
    "Collected",
    "EnforcedBy",
    "Manifest",
    "PageLoad",
    "PageObservation",
    "Record",
    "RunFolderError",
    "Stored",
    "StoredLoad",
    "StoredObservation",
    "Table",
    "collect",
    "digests",
    "gather",
    "har",
    "manifest",
    "stored",
    "summaries",
    "verify",
]
