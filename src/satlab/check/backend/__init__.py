# SPDX-License-Identifier: GPL-3.0-or-later
"""Backends that take samples: the virtual clock, and programs in a real lab."""
