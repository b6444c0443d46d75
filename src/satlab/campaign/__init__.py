# SPDX-License-Identifier: GPL-3.0-or-later
"""Campaigns over many machines: one file planned as tasks, run by Snakemake, and brought together
as one dataset.
"""
