# SPDX-License-Identifier: GPL-3.0-or-later
"""Run folders to one HTML file that needs nothing else: no network, no second file, no inline
script without a hash.
"""

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import jinja2
from markupsafe import Markup

import collect
from satlab.common import escape
from satlab.common.errors import ConfigError
from satlab.common.paths import ROOT
from satlab.report import published, shares, view
from satlab.report.figures import Figure
from satlab.report.view import View

STATIC = Path(__file__).parent / "static"
PLOTLY = "plotly/package_data/plotly.min.js"
"""All of Plotly's library, below site-packages: the one file of the Python package that is used."""
BUNDLE = ROOT / ".satlab/plots/node_modules/plotly.js-cartesian-dist-min/plotly-cartesian.min.js"
"""Plotly's library with the kinds of plots that reports have (`plots` of common/install.py)."""


def build(runs: Mapping[Path, collect.Collected], out_html: Path, title: str) -> Path:
    """Write the report of runs (folder: what was collected of it) to `out_html`, atomically, and
    return that path.

    Raw files that have changed since their run are named at the top. The same runs result in the
    same bytes.

    Raises:
        ConfigError: a folder holds no run, or there is none.
    """
    if not runs:
        raise ConfigError("a report needs at least one run folder")
    try:
        content = [view.read_run(folder, run) for folder, run in runs.items()]
    except collect.RunFolderError as error:
        raise ConfigError(
            str(error), hint="a run folder holds manifest.json, plan.json and raw/"
        ) from error
    out_html.parent.mkdir(parents=True, exist_ok=True)
    scratch = out_html.with_name(f".{out_html.name}.{os.getpid()}")
    scratch.write_text(render(View(title, content)), encoding="utf-8")
    scratch.replace(out_html)
    return out_html


def render(what: View) -> str:
    """Return the report's HTML."""
    bulk, pages, link = (
        what.bulk_figures(),
        [*what.page_plots(), *what.phase_plots()],
        what.link_figures(),
    )
    drawn = [*bulk, *pages, *link]
    return page(
        "report.html",
        drawn,
        view=what,
        bulk=bulk,
        pages=pages,
        link=link,
        view_columns=view,
        shares=shares,
        source=published.SOURCE,
    )


def page(template: str, drawn: Sequence[Figure], **content: object) -> str:
    """Return the HTML of one of our templates with its figures, style and scripts in it."""
    script = (STATIC / "report.js").read_text()
    library, text = _library() if drawn else ("", "")
    return (
        _environment()
        .get_template(template)
        .render(
            policy=_policy([text, script] if drawn else [script]),
            style=Markup((STATIC / "report.css").read_text()),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            library=library,
            data=_data(drawn) if drawn else "",
            **content,
        )
    )


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(STATIC),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escape.html,
    )


def _data(drawn: Sequence[Figure]) -> str:
    """Return the figures as JSON, compressed, in base64: nothing in it can end its script element."""
    content = {figure.key: figure.document for figure in drawn}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
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
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode(), text
