# SPDX-License-Identifier: GPL-3.0-or-later
"""One run, from the check of its scenario to its report."""
