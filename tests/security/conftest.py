# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of the service, as the tests beside it have them."""

from satlab.service.api.conftest import app, clock, context, helper

__all__ = ["app", "clock", "context", "helper"]
