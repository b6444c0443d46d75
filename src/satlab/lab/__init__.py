# SPDX-License-Identifier: GPL-3.0-or-later
"""The embedded lab on one host: network namespaces, privileges, certificates, pages; bring up,
converge, take down.
"""
