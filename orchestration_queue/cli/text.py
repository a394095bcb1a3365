"""Print text from data safely: none of it moves the cursor, changes colors, reorders a line or counts as markup."""

from __future__ import annotations

import json
from datetime import datetime

import typer
from rich.text import Text

from orchestration_queue._text import UNSAFE, clean

__all__ = ["Cell", "clean", "dump", "print_line", "styled", "text_of"]

Cell = str | Text
"""A cell of a table: plain text, which is escaped, or styled text."""


def dump(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON with unsafe characters escaped: safe in a terminal, and the same to programs."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)
    return UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else json.dumps(match[0])[1:-1], text)


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_line(text: str, *, lines: bool = False) -> None:
    """Print text to standard output, cleaned."""
    typer.echo(clean(text, lines=lines))


def styled(text: str, style: str = "") -> Text:
    """Return cleaned text in a style."""
    return Text(clean(text), style=style)


def text_of(cell: Cell) -> Text:
    """Return what a table prints for a cell; plain text keeps its line breaks."""
    return cell if isinstance(cell, Text) else Text(clean(cell, lines=True))
