# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of runs: HTML pages, tables on a terminal, CSV. `collect` computes the figures."""

from satlab.report.console_tables import terminal_tables, write_csv
from satlab.report.export import export
from satlab.report.run_report import build

__all__ = ["build", "export", "terminal_tables", "write_csv"]
