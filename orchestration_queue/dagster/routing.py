"""What the tags of steps and runs say of where and how their work is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from orchestration_queue.dagster.steps.work_item import Isolation
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.base import MAX_PRIORITY

__all__ = ["QUEUE_TAGS", "RUN_QUEUE_TAG", "Route", "priority_of", "read_tag", "wire_priority"]

T = TypeVar("T")

PREFIX = "orchestration_queue/"
QUEUE_TAGS = (f"{PREFIX}queue", "dagster-celery/queue")
"""Tags of ops and runs that name a queue, the first that is there wins."""
RUN_QUEUE_TAG = f"{PREFIX}run_queue"
"""Names the queue of a run itself, where the others name that of its steps, too."""
_PRIORITY = f"{PREFIX}priority"
_CELERY_DEFAULT = 5
"""What an op of dagster-celery's has without a tag; here that is 0, as everywhere else in Dagster."""
_PLAIN = MAX_PRIORITY // 2


@dataclass(frozen=True, slots=True)
class Route:
    """Where and how one step is done.

    Attributes:
        queue: The queue's name.
        priority: As Dagster counts: the higher, the earlier.
        isolation: In which process.
        timeout: How long it may take; None for no limit.
        crash_retries: How often it is tried again after its process crashed.
    """

    queue: str
    priority: int
    isolation: Isolation
    timeout: timedelta | None
    crash_retries: int = 0

    def with_tags(self, step: Mapping[str, str], run: Mapping[str, str]) -> Route:
        """The same for a step and a run with these tags; a step's own go before its run's.

        Raises:
            InvalidOptionError: A tag says something impossible.
        """
        both = {**{name: run[name] for name in run if name not in step}, **step}
        queue = next((tags[name] for tags in (step, run) for name in QUEUE_TAGS if name in tags), self.queue)
        timeout = read_tag(both, f"{PREFIX}timeout", _seconds, "a number of seconds above 0")
        isolation = read_tag(both, f"{PREFIX}isolation", Isolation, "auto, fork, in_process or spawn")
        crashes = read_tag(both, f"{PREFIX}crash_retries", _count, "a whole number of 0 or more")
        return Route(
            queue,
            priority_of(step, run),
            isolation or self.isolation,
            timeout or self.timeout,
            self.crash_retries if crashes is None else crashes,
        )


def priority_of(step: Mapping[str, str], run: Mapping[str, str]) -> int:
    """The priority of a step, that of its run added. Runs themselves have no step's tags.

    Raises:
        InvalidOptionError: A tag is no number.
    """
    return _priority(step, "dagster-celery/priority", _CELERY_DEFAULT) + _priority(
        run, "dagster-celery/run_priority", 0
    )


def wire_priority(priority: int) -> int:
    """Dagster's priority as the queue has it, where 1 is the most urgent and 0 stands behind all that have one.

    What Dagster would do last, with a priority below 0, is done together with what has none.
    """
    return 0 if priority <= 0 else max(1, _PLAIN + 1 - priority)


def _priority(tags: Mapping[str, str], celery_name: str, celery_default: int) -> int:
    for name in (_PRIORITY, "dagster/priority"):
        if (found := read_tag(tags, name, int, "a whole number")) is not None:
            return found
    found = read_tag(tags, celery_name, int, "a whole number")
    return 0 if found is None else found - celery_default


def read_tag(tags: Mapping[str, str], name: str, read: Callable[[str], T], expected: str) -> T | None:
    """What a tag says; None when it is not there.

    Raises:
        InvalidOptionError: It says something else than what is expected of it.
    """
    if (stored := tags.get(name)) is None:
        return None
    try:
        return read(stored)
    except ValueError:
        raise InvalidOptionError(f"The tag {name!r} is {stored!r}; give it {expected}.") from None


def _seconds(stored: str) -> timedelta:
    seconds = timedelta(seconds=float(stored))
    if seconds <= timedelta(0):
        raise ValueError(stored)
    return seconds


def _count(stored: str) -> int:
    if (count := int(stored)) < 0:
        raise ValueError(stored)
    return count
