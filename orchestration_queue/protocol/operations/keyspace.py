"""Find by scanning all keys what no key lists: queues, flows, and the keys of a queue."""

from __future__ import annotations

import re
from collections import Counter

from orchestration_queue.options import name_problem
from orchestration_queue.protocol.call import BATCH_SIZE, Call, Conversation, all_good, chunks, integer, text, texts
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.queue_state import groups

__all__ = [
    "FIRST_PAGE",
    "active_jobs",
    "flow_dependencies",
    "kinds",
    "literal",
    "queue_names",
    "queue_pattern",
    "queues",
    "remove_queue",
    "scan",
    "scan_page",
    "some_jobs",
]


def active_jobs(keys: QueueKeys) -> Conversation[int]:
    """Count the jobs that any worker has, of lists, of the stream, or of a broadcast; one exchange."""
    described, (listed,) = yield from groups(keys, Call("GET", (keys.list_active,)))
    return sum(int(group["pending"]) for group in described) + max(0, int(listed or 0))


def remove_queue(keys: QueueKeys) -> Conversation[int]:
    """Remove every key of a queue; return how many. Scans all keys of the queue's server. Can be repeated at any point.

    The structures from which workers take jobs are removed first, so that no more jobs start; with them the sequence
    numbers of ordering keys, since those of jobs that are added meanwhile must not be ahead of their group's. The
    counter of ids is removed last: while jobs are left, a new job must not get the id of one of them.
    """
    last = [keys.id, keys.meta]
    first = [keys.stream, keys.priority, keys.lifo, keys.scheduled, keys.schedulers, keys.named("ordering")]
    removed = yield from _unlink(first)
    cursor = FIRST_PAGE
    while True:
        page, cursor = yield from scan_page(queue_pattern(keys, "*"), cursor, keys.stream)
        removed += yield from _unlink([key for key in page if key not in last])
        if cursor == FIRST_PAGE:
            break
    all_good((yield [Call("SREM", (keys.usage_queues,), (keys.queue,))]))
    return removed + (yield from _unlink(last))


def _unlink(found: list[str]) -> Conversation[int]:
    if not found:
        return 0
    (reply,) = all_good((yield [Call("UNLINK", tuple(found))]))
    return integer(reply)


FIRST_PAGE = "0"
"""The cursor with which a scan begins, and which ends it."""


def scan_page(pattern: str, cursor: str, near: str | None = None) -> Conversation[tuple[list[str], str]]:
    """Return one page of a scan: the matching keys among about 1,000, and where to continue. A key can be repeated."""
    (reply,) = all_good((yield [Call("SCAN", args=(cursor, "MATCH", pattern, "COUNT", BATCH_SIZE), near=near)]))
    return texts(reply[1]), text(reply[0])


def scan(pattern: str, near: str | None = None) -> Conversation[list[str]]:
    """Return all matching keys, sorted."""
    found: set[str] = set()
    cursor = FIRST_PAGE
    while True:
        page, cursor = yield from scan_page(pattern, cursor, near)
        found.update(page)
        if cursor == FIRST_PAGE:
            return sorted(found)


def literal(word: str) -> str:
    """Return a word as a pattern that matches only it."""
    return re.sub(r"([*?\[\]^\\-])", r"\\\1", word)


def queue_pattern(keys: QueueKeys, name: str) -> str:
    """Return the pattern for keys of one queue, from one for what follows the queue's name."""
    return f"{literal(keys.base)}:{name}"


_QUEUE_KEYS = ("id", "stream", "meta", "schedulers")
"""Each queue that was ever used has one of these."""


def queue_names(prefix: str) -> Conversation[list[str]]:
    """Return the names of all queues of one server with a key prefix. Scans all its keys."""
    return sorted((yield from queues(prefix)))


def queues(prefix: str) -> Conversation[dict[str, list[str]]]:
    """Return all queues of one server with a key prefix, with the ids of their workers. Scans all its keys."""
    keys = yield from scan(f"{literal(prefix)}:{{*}}:[imsw]*")
    shape = re.compile(re.escape(prefix) + r":\{(.*)\}:(?:" + "|".join(_QUEUE_KEYS) + "|w:(.+))")
    found: dict[str, list[str]] = {}
    for key in keys:
        # Keys of the HTTP proxy's flows are similar, but a queue can't have their names.
        if (match := shape.fullmatch(key)) and name_problem(match[1]) is None:
            workers = found.setdefault(match[1], [])
            workers += [match[2]] if match[2] else []
    return found


def some_jobs(prefix: str, most_of_queue: int, most: int) -> Conversation[tuple[dict[str, set[str]], bool]]:
    """Return ids of jobs of one server by queue. Scans its keys until enough were found.

    Args:
        prefix: First part of every key.
        most_of_queue: About how many of a queue are returned.
        most: About how many of all queues are returned.

    Returns:
        The ids, and whether all keys were scanned.
    """
    shape = re.compile(re.escape(prefix) + r":\{([^}]*)\}:job:(.+)", re.DOTALL)
    found: dict[str, set[str]] = {}
    cursor, number = FIRST_PAGE, 0
    while number < most:
        page, cursor = yield from scan_page(f"{literal(prefix)}:{{*}}:job:*", cursor)
        for key in page:
            if (match := shape.fullmatch(key)) and len(ids := found.setdefault(match[1], set())) <= most_of_queue:
                number += match[2] not in ids
                ids.add(match[2])
        if cursor == FIRST_PAGE:
            return found, True
    return found, False


def kinds(prefix: str) -> Conversation[dict[str, int]]:
    """Count the keys of one server with a key prefix by kind, such as ``job:*`` for all records of jobs.

    Scans all its keys, a page at a time.
    """
    queue_key = re.compile(re.escape(prefix) + r":\{[^}]*\}:([^:]+)(:.)?", re.DOTALL)
    found: Counter[str] = Counter()
    cursor = FIRST_PAGE
    while True:
        page, cursor = yield from scan_page(f"{literal(prefix)}:*", cursor)
        for key in page:
            match = queue_key.match(key)
            found[f"{match[1]}:*" if match and match[2] else match[1] if match else key[len(prefix) + 1 :]] += 1
        if cursor == FIRST_PAGE:
            return dict(found.most_common())


def flow_dependencies(keys: QueueKeys, flow_id: str) -> Conversation[dict[tuple[str, str], list[tuple[str, str]]]]:
    """Return which jobs of a flow wait for which, found from its jobs in one queue. Scans all keys.

    Returns:
        By queue and job id, the queues and ids of the jobs it waits for.
    """
    start = len(keys.job(""))
    found = yield from scan(f"{literal(keys.job(flow_id))}.*", keys.stream)
    todo = [(keys.queue, key[start:]) for key in found if ":" not in key[start:]]
    graph: dict[tuple[str, str], list[tuple[str, str]]] = {}
    while todo:
        for piece in chunks(todo):
            replies = yield [Call("SMEMBERS", (QueueKeys(queue, keys.prefix).deps(job_id),)) for queue, job_id in piece]
            for job, reply in zip(piece, all_good(replies), strict=True):
                members = sorted(texts(reply))
                graph[job] = [_queue_and_id(member) for member in members if f":{flow_id}." in member]
        todo = sorted({dep for deps in graph.values() for dep in deps} - graph.keys())
    return graph


def _queue_and_id(member: str) -> tuple[str, str]:
    base, _, job_id = member.rpartition(":")
    return base.partition("{")[2].rstrip("}"), job_id
