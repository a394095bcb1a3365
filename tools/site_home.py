"""Fill the site's front page with the README's programs. MkDocs calls this as a hook; it needs no other module."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_README = Path(__file__).resolve().parent.parent / "README.md"
_DOOR = re.compile(r"^( *)<!-- door: (.+) -->$", re.MULTILINE)
_BLOCK = re.compile(r"^```\w+\n.*?^```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put the code blocks of the README's section of that name in place of `<!-- door: Dagster -->`."""
    if page.file.src_uri != "index.md":
        return markdown
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", _README.read_text(), re.DOTALL | re.MULTILINE))

    def shown(door: re.Match[str]) -> str:
        blocks = "\n\n".join(_BLOCK.findall(sections[door[2]]))
        return re.sub(r"^(?=.)", door[1], blocks, flags=re.MULTILINE)

    return _DOOR.sub(shown, markdown)
