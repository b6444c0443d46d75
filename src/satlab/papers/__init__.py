# SPDX-License-Identifier: GPL-3.0-or-later
"""Papers as folders of data: their cells, the figures of runs, and the judgement of conclusions.

Nothing runs here: `campaign.reproduction` does, and hands the outcomes over.
"""
