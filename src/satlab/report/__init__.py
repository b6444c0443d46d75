# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of one or more runs:

HTML, terminal tables, CSV. Figures come from `collect`; none are computed twice.
"""

from satlab.report.console_tables import terminal_tables, write_csv
from satlab.report.export import export
from satlab.report.run_report import build

__all__ = ["build", "export", "terminal_tables", "write_csv"]
