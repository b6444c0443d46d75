# SPDX-License-Identifier: GPL-3.0-or-later
"""The embedded lab: one Linux host, network namespaces, an emulated satellite link, OpenBACH
scenarios.
"""

import tomllib

from satlab.common.paths import ROOT

_WORKSPACE = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]
__version__: str = _WORKSPACE["package"]["version"]
"""Of the release: programs in Rust have it, too."""
