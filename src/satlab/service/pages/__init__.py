# SPDX-License-Identifier: GPL-3.0-or-later
"""The web pages of `satlab serve`, under `/ui`: choose and edit a scenario, launch, watch, stop,
read results, compare.

The server renders them; JavaScript only updates the page of an active run, and everything else
works without it. The pages use the same parts as the REST API
(`satlab.service.api.dependencies.Context`) and have no further privileges.
"""
