# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulated link: what is asked of it, what its framing arithmetic answers, and which emulator carries it."""
