# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulated link: its request, the plan from the frame arithmetic, and the emulators."""
