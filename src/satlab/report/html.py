# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a page as one HTML file, which needs no network and no second file.

Each plot that is not folded is in it as a picture, for print and for readers without scripts, and as
data, from which a script draws a plot that can be zoomed.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import jinja2
from markupsafe import Markup

from satlab.common import escape
from satlab.common.files import write_atomically
from satlab.common.paths import ROOT
from satlab.report import plot_svg, plotly
from satlab.report.page import Page, Plot
from satlab.report.styles import STATIC

PLOTLY = "plotly/package_data/plotly.min.js"
"""All of Plotly's library, below site-packages: the one file of the Python package that is used."""
BUNDLE = ROOT / ".satlab/plots/node_modules/plotly.js-cartesian-dist-min/plotly-cartesian.min.js"
"""Plotly's library with the kinds of plots that reports have (`plots` of common/install.py)."""


def write(page: Page, path: Path) -> Path:
    """Write a page atomically, make its folder, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render(page))
    return path


def render(page: Page) -> str:
    """Return the HTML of a page with its plots, style and scripts in it."""
    plots = {plot.key: plotly.document(plot) for plot in page.plots}
    script = (STATIC / "report.js").read_text()
    scripts, library, data = [script], "", ""
    if plots:
        library, unpacked = _library()
        scripts = [unpacked, script]
        documents = json.dumps(plots, sort_keys=True, separators=(",", ":"), allow_nan=False)
        data = _packed(documents)
    return (
        environment()
        .get_template("page.html")
        .render(
            page=page,
            policy=_policy(scripts),
            style=Markup((STATIC / "report.css").read_text()),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            library=library,
            data=data,
        )
    )


def environment(*folders: Path) -> jinja2.Environment:
    """Return templates of these folders, and of the kit: text of others stays text."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, STATIC]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escape.html,
    )
    made.globals["picture"] = _picture
    return made


def _picture(plot: Plot, width: int = plot_svg.WIDTH) -> Markup:
    """Return a plot as a static picture; nothing of a folded one."""
    return Markup("") if plot.folded else Markup(plot_svg.drawing(plot, width))  # noqa: S704 - texts are escaped


def _packed(text: str) -> str:
    """Return text compressed, in base64: nothing in it can end its script element."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _policy(scripts: Sequence[str]) -> str:
    """Allow these scripts by their hashes and nothing else, the unpacked one, too; styles are ours
    and Plotly's.
    """
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def whole_library() -> str:
    """Return Plotly's library as its Python package has it."""
    return Path(str(distribution("plotly").locate_file(PLOTLY))).read_text()


@cache
def _library() -> tuple[str, str]:
    """Return Plotly's library compressed in base64, and its text, which the page unpacks.

    0.7 MB where npm's bundle is installed, else 2 MB.
    """
    try:
        text = BUNDLE.read_text()
    except OSError:
        text = whole_library()
    return _packed(text), text
