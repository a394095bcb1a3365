"""The function library that does what qless's script does, and its text as a script."""

from __future__ import annotations

from orchestration_queue.protocol.library import Library

__all__ = ["LIBRARY", "script_text"]

LIBRARY = Library("qless", "3", "qless_version")

_FUNCTIONS = "-- Functions; as a script"


def script_text() -> str:
    """Return the text as a script for EVAL, for clients that bring a script of their own."""
    _, _, text = LIBRARY.text.partition("\n")
    return text.partition(_FUNCTIONS)[0] + "return call(KEYS, ARGV)\n"
