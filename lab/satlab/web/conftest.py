# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of the pages work with the server of the API's tests."""

from satlab.serve.conftest import *  # noqa: F403 - its fixtures
from satlab.serve.conftest import _cheap_passwords as _cheap_passwords  # noqa: PLC0414
