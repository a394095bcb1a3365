"""Finding what no key lists, by walking all keys of the server: for people who look around, not for programs."""

from __future__ import annotations

import re

from orchestration_queue.options import name_problem
from orchestration_queue.protocol.call import Call, texts
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.scanning import literal, scan
from orchestration_queue.protocol.operations.steps import Steps, all_good, chunks

__all__ = ["flow_dependencies", "queue_names"]

_QUEUE_KEYS = ("id", "stream", "meta", "schedulers")
"""Each queue that was ever used has one of these."""


def queue_names(prefix: str) -> Steps[list[str]]:
    """Names of all queues that one server holds under a key prefix. Walks all its keys."""
    keys = yield from scan(f"{literal(prefix)}:{{*}}:[ims]*")
    shape = re.compile(re.escape(prefix) + r":\{(.*)\}:(?:" + "|".join(_QUEUE_KEYS) + ")")
    # Flows of the HTTP proxy look alike, but their names are none a queue can have.
    names = {match[1] for key in keys if (match := shape.fullmatch(key))}
    return sorted(name for name in names if name_problem(name) is None)


def flow_dependencies(keys: QueueKeys, flow_id: str) -> Steps[dict[tuple[str, str], list[tuple[str, str]]]]:
    """Which jobs of a flow wait for which, found from the part of it in one queue. Walks all keys.

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
