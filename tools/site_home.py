"""Fill the site's front page with the README's programs, and give the site the console's mark. A hook of MkDocs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parent.parent
_README = _ROOT / "README.md"
_MARK = _ROOT / "orchestration_queue" / "http" / "console" / "static" / "icon.svg"
_DOOR = re.compile(r"^( *)<!-- door: (.+) -->$", re.MULTILINE)
_BLOCK = re.compile(r"^```\w+\n.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the console's mark to the site's files."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "assets/mark.svg", abs_src_path=str(_MARK)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put the code blocks of the README's section of that name in place of `<!-- door: Dagster -->`."""
    if page.file.src_uri != "index.md":
        return markdown
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", _README.read_text(), re.DOTALL | re.MULTILINE))

    def shown(door: re.Match[str]) -> str:
        blocks = "\n\n".join(_BLOCK.findall(sections[door[2]]))
        return re.sub(r"^(?=.)", door[1], blocks, flags=re.MULTILINE)

    return _DOOR.sub(shown, markdown)
