# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab page import`: makes a page of `web-targets/` out of a HAR file or the folder of a site."""
