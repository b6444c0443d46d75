# SPDX-License-Identifier: GPL-3.0-or-later
"""Repeat a paper's evaluation: its matrix of runs, resumable, and its tables beside ours.

`matrix` says what is run, `campaign` what is done, `pace` how much at once, `execute` runs it, `results` reads it,
`statistics` judges it, `page` and `tables` show it.
"""
