"""The files of the page, and the page with them: linked for the server, or inside for a file of its own."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

STYLES = ("uplot/uPlot.min.css", "style.css")
SCRIPTS = ("uplot/uPlot.iife.min.js", "format.js", "runs.js", "charts.js", "details.js", "page.js")
TYPES = {"css": "text/css", "js": "text/javascript"}
_CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'"
SERVED_POLICY = (
    f"{_CLOSED}; frame-ancestors 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:"
)
"""Content-Security-Policy of the served page: nothing but this server's own files."""


@cache
def read(name: str) -> str:
    """A file of the page."""
    return resources.files("ringlet.watch").joinpath(f"page/{name}").read_text(encoding="utf-8")


def served_page() -> str:
    """The page that fetches its files from the server."""
    styles = "\n".join(f'<link rel="stylesheet" href="static/{name}">' for name in STYLES)
    scripts = "\n".join(f'<script src="static/{name}"></script>' for name in SCRIPTS)
    return read("index.html").replace("<!-- styles -->", styles).replace("<!-- scripts -->", scripts)


def whole_page(data_element: str) -> str:
    """The page with everything inside; its policy allows these very scripts and styles and nothing else."""
    style, script = "\n".join(map(read, STYLES)), "\n".join(map(read, SCRIPTS))
    policy = f"{_CLOSED}; script-src {_source_hash(script)}; style-src {_source_hash(style)}; img-src data:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    body = f"{data_element}\n<script>{script}</script>"
    return read("index.html").replace("<!-- styles -->", head).replace("<!-- scripts -->", body)


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
