# SPDX-License-Identifier: GPL-3.0-or-later
"""Many flows on one link, on either clock: a file of flows in, one outcome of the same form out.

`satvirtual` has the program that checks, simulates and computes figures, `real_clock` the lab that
runs flows, `wire` its link, `programs` the ends of a flow, `sources` and `tcp_states` what is
measured, `series` what becomes of it.
"""
