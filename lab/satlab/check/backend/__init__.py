# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the samples of a check come from: the virtual clock or a real lab."""
