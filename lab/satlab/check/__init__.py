# SPDX-License-Identifier: GPL-3.0-or-later
"""Regression targets: suites as data, transfers over the link they describe, verdicts with statistics."""
