# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs under test: satperf, command lines, endpoints of the QUIC interop runner, TCP with
PEPs.
"""
