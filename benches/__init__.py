# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks: JSON output, a baseline in the same run; none fails a test."""
