# SPDX-License-Identifier: GPL-3.0-or-later
"""One run: validate, bring up a lab, calibrate, run the scenario, take the lab down, collect,
report.
"""
