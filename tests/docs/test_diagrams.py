"""The site's diagrams are pictures that need neither scripts nor another site."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))
draw_diagrams = import_module("draw_diagrams")
PAGE: Any = SimpleNamespace(file=SimpleNamespace(src_uri="explanation/page.md"), title="A page")


def test_every_diagram_is_drawn() -> None:
    texts = list(draw_diagrams.diagrams())
    assert len(texts) >= 5
    for text in texts:
        drawn = draw_diagrams.picture(text).read_text()
        root = ElementTree.fromstring(drawn)  # noqa: S314  it is ours
        assert float(root.attrib["width"]) < 1200, "wide ones cannot be read on a page"
        assert not re.findall(r"(?:href|src|url\()\W*https?:", drawn)
        assert "<script" not in drawn
        words = set(re.findall(r"\w{5,}", " ".join(root.itertext())))
        assert words & set(re.findall(r"\w{5,}", text))
    assert draw_diagrams.main(check=True) == 0


def test_pages_show_the_pictures_in_place_of_the_texts() -> None:
    text = "flowchart TB\n    a --> b\n"
    shown = draw_diagrams.on_page_markdown(f"# One\n\n## Two\n\n```mermaid\n{text}```\n\nthe end\n", PAGE)
    where = f"../assets/diagrams/{draw_diagrams.picture(text).name}"
    assert shown == f"# One\n\n## Two\n\n[![Diagram: Two]({where}){{ .diagram }}]({where})\n\nthe end\n"


def test_a_diagram_that_was_changed_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw_diagrams, "diagrams", lambda: iter(["flowchart LR\n    other\n"]))
    assert draw_diagrams.main(check=True) == 1
    assert "run python tools/draw_diagrams.py" in capsys.readouterr().err
