# SPDX-License-Identifier: GPL-3.0-or-later
"""A transfer from its packets, qlog files and sender states, and the causes of its duration."""
