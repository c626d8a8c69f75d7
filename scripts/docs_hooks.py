"""What the documentation site needs beyond the pages of ``docs/``; MkDocs calls these functions (``mkdocs.yml``).

Pages may link to files of the repository, as ``../examples/train.sbatch``: on GitHub that is right as it stands, on
the site such files are copied in. The long texts of the repository's top become pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
TOP_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "readme.md",
}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the texts of the top and every file of the repository that a page links to."""
    for name, page in TOP_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    linked = set()
    for file in files.documentation_pages():
        for path in _repository_links(file.content_string, _home(file.src_uri)):
            linked.add(path)
    for path in sorted(linked - set(TOP_PAGES)):
        if (ROOT / path).is_file():
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links to files of the repository into links of the site."""
    home = _home(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def replaced(match: re.Match[str]) -> str:
        path = _resolved(match[2], home)
        if path is None:
            return match[0]
        target = path.removeprefix("docs/") if path.startswith("docs/") else TOP_PAGES.get(path, path)
        return f"{match[1]}{posixpath.relpath(target, here or '.')}{match[3] or ''}{match[4]}"

    return LINK.sub(replaced, markdown)


def _home(uri: str) -> str:
    """The folder of the repository in which a page lies."""
    return "" if uri in TOP_PAGES.values() else posixpath.dirname(f"docs/{uri}")


def _resolved(link: str, home: str) -> str | None:
    """The path from the top of the repository that a link means, if it is a relative one."""
    if ":" in link or link.startswith("/"):
        return None
    return posixpath.normpath(posixpath.join(home, link))


def _repository_links(text: str, home: str) -> list[str]:
    """Files outside of ``docs/`` that a page links to."""
    found = (_resolved(match[2], home) for match in LINK.finditer(text))
    return [path for path in found if path and not path.startswith("docs/")]
