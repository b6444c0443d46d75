# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab serve`: the REST API, its pages, and the root helper that starts runs."""
