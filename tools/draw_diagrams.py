"""Draw the diagrams of docs/ and the picture of the system as SVG: ``python tools/draw_diagrams.py [--check]``.

A page holds a diagram as Mermaid's text, which GitHub draws by itself. The site shows the picture that is committed
with it, named by the text's digest, so that readers need neither scripts nor another site. Drawing needs ``npm`` and
``chromium``; ``--check`` needs neither, nor does building the site, for which MkDocs calls this as a hook.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from reference_pages import PAGES
from system_picture import pictures

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PICTURES = DOCS / "assets" / "diagrams"

_MERMAID = "mermaid@12.3.0"
_BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^( *)```(\w+)\n *(?:#|//) ([\w./-]+\.\w+)\n", re.MULTILINE)
"""A block of code whose first line is a comment with its file's name."""
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PAGE = """<!doctype html><meta charset="utf-8"><body><script src="mermaid.min.js"></script><script>
mermaid.initialize({{
  startOnLoad: false, securityLevel: "strict", theme: "neutral", htmlLabels: false, flowchart: {{htmlLabels: false}},
  sequence: {{wrap: true, actorMargin: 40, width: 140}}, deterministicIds: true,
  fontFamily: "Helvetica, Arial, sans-serif"
}});
mermaid.render("diagram", {text}).then(drawn => {{
  const holder = document.createElement("pre");
  holder.id = "drawn";
  holder.textContent = drawn.svg;
  document.body.append(holder);
}});
</script>"""


def picture(text: str) -> Path:
    """Where the picture of a diagram is."""
    return PICTURES / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.svg"


def diagrams() -> Iterator[str]:
    """Return the text of each diagram in docs/, and on the pages made from the code."""
    for page in sorted(DOCS.rglob("*.md")):
        yield from _BLOCK.findall(page.read_text())
    for render in PAGES.values():
        yield from _BLOCK.findall(render())


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put the pictures in place of the texts, and files' names above their blocks. MkDocs calls it for each page."""
    up = "../" * page.file.src_uri.count("/")

    def shown(block: re.Match[str]) -> str:
        headings = _HEADING.findall(markdown[: block.start()])
        where = up + picture(block[1]).relative_to(DOCS).as_posix()
        return f"[![Diagram: {headings[-1] if headings else page.title}]({where}){{ .diagram }}]({where})"

    return _NAMED.sub(r'\1```\2 title="\3"\n', _BLOCK.sub(shown, markdown))


def draw(text: str, script: Path) -> str:
    """Let Mermaid draw in a browser.

    Raises:
        RuntimeError: It cannot read the text.
    """
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(script, directory)
        page = Path(directory, "page.html")
        page.write_text(_PAGE.format(text=json.dumps(text).replace("</", "<\\/")))
        browser = [_command("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
        command = [*browser, f"--user-data-dir={directory}/profile", "--dump-dom", page.as_uri()]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    drawn = re.search(r'<pre id="drawn">(.*?)</pre>', shown, re.DOTALL)
    if drawn is None:
        raise RuntimeError(f"Mermaid cannot draw this; try it at https://mermaid.live:\n{text}")
    return _sized(html.unescape(drawn[1])) + "\n"


def _sized(svg: str) -> str:
    """Return the picture with a size of its own, as an image has it."""
    _, _, width, height = ElementTree.fromstring(svg).attrib["viewBox"].split()  # noqa: S314  we have just drawn it
    return svg.replace('width="100%"', f'width="{float(width):.0f}" height="{float(height):.0f}"', 1)


def _command(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"Drawing diagrams needs the command {name}; install it.")
    return found


def main(check: bool) -> int:
    """Draw what is missing, and remove what no page shows; or only say so. 0 when all is well."""
    wanted = {picture(text): text for text in diagrams()}
    missing = [path for path in wanted if not path.exists()]
    stray = [path for path in PICTURES.glob("*.svg") if path not in wanted]
    old = {path: text for path, text in pictures().items() if not path.exists() or path.read_text() != text}
    if check:
        if missing or stray or old:
            print("Diagrams have changed; run python tools/draw_diagrams.py.", file=sys.stderr)
        return 1 if missing or stray or old else 0
    for path, text in old.items():
        path.write_text(text)
    for path in stray:
        path.unlink()
    if missing:
        PICTURES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([_command("npm"), "pack", "--silent", _MERMAID], cwd=directory, check=True)
            (packed,) = Path(directory).glob("*.tgz")
            with tarfile.open(packed) as archive:
                archive.extract("package/dist/mermaid.min.js", directory, filter="data")
            for path in missing:
                path.write_text(draw(wanted[path], Path(directory, "package/dist/mermaid.min.js")))
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
