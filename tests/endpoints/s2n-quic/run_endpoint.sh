#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Endpoint of the QUIC interop runner with s2n-quic. The program finds the test case in its environment.
set -u
/setup.sh
[ "$ROLE" = server ] || /wait-for-it.sh sim:57832 -s -t 30
exec /s2n-quic-interop
