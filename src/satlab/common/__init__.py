# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared by all packages: errors and exit statuses, paths, topology, console, processes,
statistics.
"""
