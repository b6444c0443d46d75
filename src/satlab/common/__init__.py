# SPDX-License-Identifier: GPL-3.0-or-later
"""What every other package uses: errors and exit statuses, paths, topology, console, processes,
statistics.
"""
