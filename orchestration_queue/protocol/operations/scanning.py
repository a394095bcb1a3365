"""Walking all keys of a server, page by page, for what no key lists."""

from __future__ import annotations

import re

from orchestration_queue.protocol.call import Call, text, texts
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.steps import HYDRATION, Steps, all_good

__all__ = ["FIRST_PAGE", "literal", "queue_pattern", "scan", "scan_page"]

FIRST_PAGE = "0"
"""Where a walk begins; it has ended when a page says the same."""


def scan_page(pattern: str, cursor: str, near: str | None = None) -> Steps[tuple[list[str], str]]:
    """One page of a walk: the matching ones of about 1,000 keys, and where to go on. A key may come twice."""
    (reply,) = all_good((yield [Call("SCAN", args=(cursor, "MATCH", pattern, "COUNT", HYDRATION), near=near)]))
    return texts(reply[1]), text(reply[0])


def scan(pattern: str, near: str | None = None) -> Steps[list[str]]:
    """All matching keys, sorted."""
    found: set[str] = set()
    cursor = FIRST_PAGE
    while True:
        page, cursor = yield from scan_page(pattern, cursor, near)
        found.update(page)
        if cursor == FIRST_PAGE:
            return sorted(found)


def literal(word: str) -> str:
    """The word as a pattern that matches nothing else."""
    return re.sub(r"([*?\[\]^\\-])", r"\\\1", word)


def queue_pattern(keys: QueueKeys, name: str) -> str:
    """The keys of one queue whose own part matches a pattern."""
    return f"{literal(keys.base)}:{name}"
