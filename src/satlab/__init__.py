# SPDX-License-Identifier: GPL-3.0-or-later
"""The embedded lab: one Linux host, network namespaces, an emulated satellite link, OpenBACH
scenarios.
"""

__version__ = "0.2.0"
