"""How work ends without an outcome of its own, in words that the executor and the launcher know again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["LOST", "STOPPED", "is_loss", "last_lines"]

LOST = "Lost: "
"""What the reason of a job begins with whose process was lost: nothing is known against the work itself."""
STOPPED = "The process has ended."
"""The last line of the log of a job that was revoked: its process is gone, whether it could tell Dagster or not."""
_STALLED = "stalled"
_LINES = 40
_TAIL_BYTES = 16_384


def is_loss(reason: str) -> bool:
    """Whether a job failed because a worker or a process was lost."""
    return reason.startswith(LOST) or _STALLED in reason


def last_lines(note: Mapping[str, str]) -> str:
    """The last lines that a work wrote to its standard error, as far as it told where that is."""
    path = Path(note.get("stderr", ""))
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-_LINES:])
