"""Records of the HTTP API: the audit log, and the flows that were submitted to its proxy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestration_queue.protocol.call import Call, Conversation, Operation, Reply, all_good, optional_text, text, texts
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import pairs, when, whole_number

__all__ = [
    "AuditEntry",
    "ProxyFlow",
    "name_proxy_flow",
    "read_proxy_flow",
    "recent_acts",
    "record_act",
    "remove_proxy_flow",
    "write_proxy_flow",
]

_MOST_ACTS = 10_000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act over HTTP.

    Attributes:
        at: When, by the server's clock.
        user: The name of the token; empty if none was required.
        act: What was done.
        queue: The queue; empty if the act concerns none.
        subject: The job, scheduler or flow; empty for the queue as a whole.
    """

    at: datetime | None
    user: str
    act: str
    queue: str
    subject: str


def _audit_key(prefix: str) -> str:
    return f"{prefix}:audit"


def record_act(prefix: str, user: str, act: str, queue: str, subject: str) -> Call:
    """Append an act to the audit log."""
    fields = ("user", user, "act", act, "queue", queue, "subject", subject)
    return Call("XADD", (_audit_key(prefix),), ("MAXLEN", "~", _MOST_ACTS, "*", *fields))


def recent_acts(prefix: str, count: int) -> Operation[list[AuditEntry]]:
    """Read the last acts, newest first."""

    def read(reply: Reply) -> list[AuditEntry]:
        return [_read_act(text(entry_id), pairs(fields)) for entry_id, fields in reply or ()]

    return Operation(Call("XREVRANGE", (_audit_key(prefix),), ("+", "-", "COUNT", count)), read)


def _read_act(entry_id: str, fields: dict[str, str]) -> AuditEntry:
    at = when(whole_number(entry_id.partition("-")[0]))
    return AuditEntry(at, *(fields.get(name, "") for name in ("user", "act", "queue", "subject")))


@dataclass(frozen=True, slots=True)
class ProxyFlow:
    """A flow that was submitted to the proxy.

    Attributes:
        id: The flow's id.
        kind: ``tree`` or ``dag``.
        created_ms: When it was submitted, epoch ms.
        jobs: Its jobs.
        roots: The jobs with which it ends (a tree) or begins (a graph).
    """

    id: str
    kind: str
    created_ms: int
    jobs: tuple[tuple[QueueKeys, str], ...]
    roots: tuple[tuple[QueueKeys, str], ...]


def _flow_keys(prefix: str, flow_id: str) -> tuple[str, str, str]:
    base = f"{prefix}:{{flow:{flow_id}}}"
    return f"{base}:meta", f"{base}:jobs", f"{base}:roots"


def write_proxy_flow(prefix: str, flow: ProxyFlow) -> list[Call]:
    """Record a flow. Send this before its jobs are added, so that it can be cancelled at any point."""
    meta, jobs, roots = _flow_keys(prefix, flow.id)
    calls = [
        Call("UNLINK", (jobs, roots)),
        Call("HSET", (meta,), ("createdAt", flow.created_ms, "kind", flow.kind)),
    ]
    for key, members in ((jobs, flow.jobs), (roots, flow.roots)):
        if members:
            calls.append(Call("SADD", (key,), tuple(f"{keys.queue}:{job_id}" for keys, job_id in members)))
    return calls


def name_proxy_flow(flow: ProxyFlow) -> Conversation[None]:
    """Write the flow's id to its jobs, once they are added."""
    records = [keys.job(job_id) for keys, job_id in flow.jobs]
    all_good((yield [Call("HSET", (record,), ("flowId", flow.id)) for record in records]))
    # A job may have completed and been removed meanwhile: don't leave a record with only this field.
    sizes = all_good((yield [Call("HLEN", (record,)) for record in records]))
    if gone := [Call("UNLINK", (record,)) for record, size in zip(records, sizes, strict=True) if size == 1]:
        all_good((yield gone))


def read_proxy_flow(prefix: str, flow_id: str) -> Conversation[ProxyFlow | None]:
    """Read the record of a flow; None without one."""
    meta, jobs, roots = _flow_keys(prefix, flow_id)
    calls = [Call("HMGET", (meta,), ("createdAt", "kind")), Call("SMEMBERS", (jobs,)), Call("SMEMBERS", (roots,))]
    described, job_members, root_members = all_good((yield calls))
    created, kind = map(optional_text, described)
    if created is None:
        return None
    return ProxyFlow(
        flow_id,
        kind or "tree",
        int(created) if created.isdecimal() else 0,
        tuple(_refs(prefix, texts(job_members))),
        tuple(_refs(prefix, texts(root_members))),
    )


def _refs(prefix: str, members: Sequence[str]) -> list[tuple[QueueKeys, str]]:
    pairs = (member.partition(":") for member in sorted(members))
    return [(QueueKeys(queue, prefix), job_id) for queue, _, job_id in pairs]


def remove_proxy_flow(prefix: str, flow_id: str) -> Operation[bool]:
    """Remove the record of a flow; its jobs stay."""

    def read(reply: Reply) -> bool:
        return bool(reply)

    return Operation(Call("UNLINK", _flow_keys(prefix, flow_id)), read)
