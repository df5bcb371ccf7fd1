"""Adds pages to the documentation: files of the repository.

Links in Markdown are those of the repository, so that they work where its files are read; this
rewrites them for the site, and warns (which fails a strict build) where one leads nowhere.
"""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PAGES = {
    "planner/README.md": "internals/map.md",
    "costmodel/README.md": "internals/cost-model.md",
    "sharders/README.md": "internals/search.md",
    "bench/README.md": "evidence/benches.md",
    "bench/workloads/README.md": "evidence/workloads.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
}
"""Files of the repository that are pages, and where."""
IMAGES = (".png", ".svg")
_SOURCES = {page: source for source, page in PAGES.items()}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LOG = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401 - mkdocs' types
    """Add the pages that are not in the folder of the documentation, and their images."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
        for _, _, target in _LINK.findall((ROOT / source).read_text(encoding="utf-8")):
            image = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
            if image.endswith(IMAGES) and (ROOT / image).is_file():
                files.append(File.generated(config, image, abs_src_path=str(ROOT / image)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401 - mkdocs' types
    """Turn links between files of the repository into links between pages."""
    uri = page.file.src_uri
    source = _SOURCES.get(uri, f"docs/{uri}")
    parts = _FENCE.split(markdown)  # code is at odd places
    parts[::2] = [_LINK.sub(lambda match: _link(match, source, uri), part) for part in parts[::2]]
    return "".join(parts)


def _link(match: re.Match[str], source: str, uri: str) -> str:
    """Return a link as the page needs it; a file that is no page is named, not linked."""
    mark, text, target = match.groups()
    path, hash_sign, anchor = target.partition("#")
    if not path or "://" in target or target.startswith("mailto:"):
        return match[0]
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if wanted.startswith("docs/"):
        page = wanted.removeprefix("docs/")
    elif wanted in PAGES or wanted.endswith(IMAGES):
        page = PAGES.get(wanted, wanted)
    elif (ROOT / wanted).exists():
        return text if wanted in text else f"{text} (`{wanted}`)"
    else:
        _LOG.warning("%s links to %s, which does not exist", source, target)
        return match[0]
    return f"{mark}[{text}]({posixpath.relpath(page, posixpath.dirname(uri))}{hash_sign}{anchor})"
