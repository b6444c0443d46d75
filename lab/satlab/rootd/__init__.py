# SPDX-License-Identifier: GPL-3.0-or-later
"""The root helper of `satlab serve`: the only part with privilege. It starts, stops and tells of runs, nothing else."""
