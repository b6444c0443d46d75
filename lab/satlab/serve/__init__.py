# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve`: OpenBACH 2.7's REST API, and the web pages, on the embedded lab.

The API process has no privilege: it keeps accounts, projects, scenarios and the queue in SQLite, and asks the root
helper (`satlab.rootd`) to run what is next. What is served and how it differs from OpenBACH: docs/api.md.
"""
