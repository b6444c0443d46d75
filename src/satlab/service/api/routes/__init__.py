# SPDX-License-Identifier: GPL-3.0-or-later
"""The routes of OpenBACH's REST API, by object."""
