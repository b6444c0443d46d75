# SPDX-License-Identifier: GPL-3.0-or-later
"""Isolation of programs under test."""
