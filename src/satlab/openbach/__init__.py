# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH 2.7 scenarios and jobs: read, checked whole, bound to values, run by a pure engine and a
small runner.
"""
