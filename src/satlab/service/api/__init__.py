# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve`: OpenBACH 2.7's REST API, and the web pages, on the embedded lab.

The API process has no privileges. It keeps accounts, projects, scenarios and the queue in SQLite;
the root helper (`satlab.service.root_helper`) runs the scenarios. docs/api.md describes the routes and
the differences from OpenBACH.
"""
