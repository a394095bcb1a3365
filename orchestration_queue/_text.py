"""Text from data for terminals and logs: none of it moves the cursor, changes colors, or reorders or forges a line."""

from __future__ import annotations

import re

__all__ = ["UNSAFE", "clean"]

UNSAFE = re.compile(
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
    return UNSAFE.sub(lambda match: match[0] if lines and match[0] in "\n\t" else _spell(match[0]), text)


def _spell(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
