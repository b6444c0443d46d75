# SPDX-License-Identifier: GPL-3.0-or-later
"""What packets and qlog files show of a transfer, and the causes of its duration."""
