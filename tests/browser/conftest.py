# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of the tests in a browser."""

from tests.browser.replayed_site import chrome, site

__all__ = ["chrome", "site"]
