# SPDX-License-Identifier: GPL-3.0-or-later
"""The root helper of `satlab serve`: the only part with privileges.

It starts, stops and reports runs.
"""
