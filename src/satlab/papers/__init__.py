# SPDX-License-Identifier: GPL-3.0-or-later
"""Repeat a paper's evaluation: its matrix of runs, resumable, and a comparison of the tables.

`matrix` has the cells, `campaign` the runs done and left, `concurrency` the number of labs at once.
`executor` runs them, `results` reads and judges them, `reproduction_page` and `result_tables` show
them.
"""
