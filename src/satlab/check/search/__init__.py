# SPDX-License-Identifier: GPL-3.0-or-later
"""Link-condition search: conditions around a case under which a stack fails, stalls or is slow."""
