# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation site (`make site`): the source folder is the repository, its Markdown is rendered
as it is.
"""

project = "satlab"
author = "the satlab authors"
copyright = "the satlab authors, GPL-3.0-or-later"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser"]
include_patterns = [
    "*.md",
    "docs/**.md",
    "openbach-scenarios/**.md",
    "opensand-profiles/*.md",
    "papers/**.md",
    "suites/*.md",
    "web-targets/**.md",
]
exclude_patterns = [".venv", "target", "runs", "dist", ".satlab"]
root_doc = "docs/index"
myst_heading_anchors = 3
html_theme = "furo"
html_title = "satlab"
html_copy_source = False
html_extra_path = ["root"]  # index.html, which leads to docs/index.html
suppress_warnings = [
    "toc.not_included",
    "misc.highlighting_failure",
]  # pages of jobs and decisions are reached by links
