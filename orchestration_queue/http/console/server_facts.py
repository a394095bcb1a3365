"""What the server says about its own state, as its page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestration_queue.protocol.call import Reply, text
from orchestration_queue.protocol.record import when

__all__ = ["facts", "slow_log"]

_MOST_WORDS = 12
_LONGEST = 200


def facts(info: Reply, functions: Sequence[Reply]) -> Mapping[str, str]:
    """Return the members of ``INFO``, with keys, persistence and libraries in words."""
    found = dict(line.split(":", 1) for line in text(info).splitlines() if ":" in line)
    counts = dict(each.split("=", 1) for each in found.get("db0", "").split(",") if "=" in each)
    if counts:
        found["keys"] = f"{int(counts['keys']):,}, of which {int(counts['expires']):,} expire"
    found["aof"] = "on" if found.get("aof_enabled") == "1" else "off"
    libraries = [dict(zip(map(text, each[::2]), each[1::2], strict=False)) for each in functions]
    found["libraries"] = ", ".join(sorted(text(each["library_name"]) for each in libraries if "library_name" in each))
    return found


def slow_log(entries: Sequence[Reply]) -> list[tuple[datetime | None, float, str]]:
    """Return when a slow command ran, how many seconds it took and its first words, the slowest first."""
    found: list[tuple[datetime | None, float, str]] = []
    for _, at_s, microseconds, words, *_rest in entries:
        said = " ".join(word.decode("utf-8", "replace") for word in words[:_MOST_WORDS])
        found.append((when(int(at_s) * 1000), int(microseconds) / 1e6, said[:_LONGEST]))
    return sorted(found, key=_seconds, reverse=True)


def _seconds(entry: tuple[Any, float, str]) -> float:
    return entry[1]
