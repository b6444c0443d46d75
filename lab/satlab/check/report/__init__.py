# SPDX-License-Identifier: GPL-3.0-or-later
"""A check as tables, HTML page, JUnit XML and interop-runner result."""
