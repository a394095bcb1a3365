"""Tags: strings by which jobs are found, cancelled, retried and removed together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orchestration_queue.errors import InvalidOptionError

__all__ = ["MAX_TAGS", "checked_tag", "checked_tags", "tags_from_wire"]

MAX_TAGS = 20
"""Maximum tags of a job."""
_LONGEST = 100


def checked_tag(tag: Any) -> str:
    """Return a tag.

    Raises:
        InvalidOptionError: It is not 1 to 100 printable characters.
    """
    if not isinstance(tag, str) or not 0 < len(tag) <= _LONGEST or not tag.isprintable():
        raise InvalidOptionError(
            f"A tag must be 1 to {_LONGEST} printable characters, got {tag!r}; pass a word such as 'tenant:acme'."
        )
    return tag


def checked_tags(tags: Any) -> tuple[str, ...]:
    """Return the tags of a job, without duplicates.

    Raises:
        InvalidOptionError: It is not a list, a tag is invalid, or there are too many.
    """
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise InvalidOptionError(f"`tags` must be a list of tags, got {tags!r}; pass `tags=['tenant:acme']`.")
    found = tuple(dict.fromkeys(checked_tag(tag) for tag in tags))
    if len(found) > MAX_TAGS:
        raise InvalidOptionError(f"`tags` must have at most {MAX_TAGS} tags, got {len(found)}; drop some.")
    return found


def tags_from_wire(stored: object) -> tuple[str, ...]:
    """Return the tags that any client stored, without invalid ones."""
    words = stored if isinstance(stored, list) else []
    sound = [word for word in words if isinstance(word, str) and 0 < len(word) <= _LONGEST and word.isprintable()]
    return tuple(dict.fromkeys(sound))[:MAX_TAGS]
