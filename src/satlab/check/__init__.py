# SPDX-License-Identifier: GPL-3.0-or-later
"""Regression targets for QUIC: suites of cases, samples of their transfers, statistical verdicts."""
