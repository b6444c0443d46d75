# SPDX-License-Identifier: GPL-3.0-or-later
"""The QUIC programs under test: built-in stacks, command lines, interop-runner endpoints, TCP with PEPs."""
