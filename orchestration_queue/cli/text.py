"""Print text from data safely: none of it moves the cursor, changes colors, reorders a line or counts as markup."""

from __future__ import annotations

import json
import re
from datetime import datetime

import typer
from rich.text import Text

__all__ = ["Cell", "clean", "dump", "print_line", "styled", "text_of"]

Cell = str | Text
"""A cell of a table: plain text, which is escaped, or styled text."""

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control and invisible characters, overrides of direction, and lone surrogates, which cannot be encoded."""
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def clean(text: str, *, lines: bool = False) -> str:
    """Return text with its unsafe characters spelled out, such as ``ESC`` as its hexadecimal code.

    Args:
        text: Any text.
        lines: Keep line breaks and tabs.
    """
    return _UNSAFE.sub(lambda match: match[0] if lines and match[0] in "\n\t" else _spell(match[0]), text)


def _spell(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def dump(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON with unsafe characters escaped: safe in a terminal, and the same to programs."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)
    return _UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else json.dumps(match[0])[1:-1], text)


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
