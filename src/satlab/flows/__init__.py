# SPDX-License-Identifier: GPL-3.0-or-later
"""Many flows on one link, on either clock. The outcome has the same form on both.

`satvirtual` has the program that checks, simulates and computes figures, `real_clock` the lab that
runs flows, `wire` its link, `programs` the ends of a flow, `measurements` and `tcp_states` what is
measured of it, `series` its figures over time.
"""
