# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of a check: tables, HTML page, JUnit XML, result of the QUIC interop runner."""
